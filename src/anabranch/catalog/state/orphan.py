"""Companions whose stream is deleted, and that are still to be deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId


@dataclass(frozen=True, slots=True)
class Orphan:
    """The id of the deleted stream."""

    of: StreamId


ORPHAN: Final[StateKind[StreamId, Orphan]] = state_kind(
    "orphan",
    by="the companion's id, 16 hex digits",
    key=STREAM_KEY,
    value=Orphan,
    example=(StreamId(0x1122334455667788), Orphan(StreamId(0x2BCD55E1E5C62EE7))),
)
