"""The id of the store, which distinguishes its backups, manifests and archives from those of other stores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import StateKind, only_key, state_kind

ONLY: Final = "id"
_HEX: Final = re.compile(r"[0-9a-f]{32}\Z")


def is_store_id(text: object) -> bool:
    """True for a text that may be the id of a store."""
    return isinstance(text, str) and bool(_HEX.match(text))


@dataclass(frozen=True, slots=True)
class StoreId:
    """`id`: 128 random bits, 32 hex digits. A restored or rebuilt store has the id of the store that it continues."""

    id: str

    def __post_init__(self) -> None:
        if not is_store_id(self.id):
            raise ValueError("expected the id of a store as 32 hex digits")


STORE_ID: Final[StateKind[str, StoreId]] = state_kind(
    "store_id",
    by="`id`",
    key=only_key(ONLY),
    value=StoreId,
    example=(ONLY, StoreId("5d41402abc4b2a767f3c9a1e8b2d4c60")),
)
