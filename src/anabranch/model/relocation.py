"""How the places of a stream map to new segments after some of its events were replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.model.ids import SegmentId


class Kept(NamedTuple):
    """Offsets `start <= offset < stop` of the former segment `old` are now the offsets from `at` on of the segment
    `new`."""

    old: SegmentId
    start: int
    stop: int
    new: SegmentId
    at: int


class RelocatedCut(NamedTuple):
    """How a former segment maps to the segments that replaced it.

    Offsets below `place` are before the replacement. A reader at an offset of at most `after` has read nothing after
    that place but removed events. Both are -1 for a segment that is entirely after the replacement. `front` and
    `behind` are the segments that its two parts became, each None if that part does not exist; `behind` ends at the
    offset `end`.
    """

    segment: SegmentId
    place: int
    after: int
    front: SegmentId | None
    behind: SegmentId | None
    end: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """How one replacement changed the places of its stream."""

    standing: tuple[RelocatedCut, ...]
    kept: tuple[Kept, ...]
