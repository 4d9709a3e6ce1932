"""The last row of the change outbox that was published to the notification stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import StateKind, only_key, state_kind

ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Notified:
    """The number of that row."""

    sequence: int


NOTIFIED: Final[StateKind[str, Notified]] = state_kind(
    "notified", by="`all`", key=only_key(ALL), value=Notified, example=(ALL, Notified(512))
)
