"""The mappings of a stream's offsets by replacements of time ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.relocation import Kept, RelocatedCut, Relocation


@dataclass(frozen=True, slots=True)
class Relocations:
    """One for each replacement, the oldest first."""

    moves: tuple[Relocation, ...]


RELOCATED: Final[StateKind[StreamId, Relocations]] = state_kind(
    "relocated",
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=Relocations,
    example=(
        StreamId(0x2BCD55E1E5C62EE7),
        Relocations(
            (
                Relocation(
                    (RelocatedCut(SegmentId(0, 0), 40, 60, SegmentId(1, 1), SegmentId(2, 2), 100),),
                    (
                        Kept(SegmentId(0, 0), 0, 40, SegmentId(1, 1), 0),
                        Kept(SegmentId(0, 0), 60, 100, SegmentId(2, 2), 0),
                    ),
                ),
            )
        ),
    ),
)
