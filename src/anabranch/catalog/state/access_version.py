"""How often tokens, roles and bindings have changed, so that brokers look at them only after a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import StateKind, only_key, state_kind

ONLY: Final = "version"


@dataclass(frozen=True, slots=True)
class AccessVersion:
    """`changes` counts from 1. Without a row nothing was ever changed."""

    changes: int


ACCESS_VERSION: Final[StateKind[str, AccessVersion]] = state_kind(
    "access_version", by="`version`", key=only_key(ONLY), value=AccessVersion, example=(ONLY, AccessVersion(7))
)
