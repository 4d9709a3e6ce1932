"""How the places of a stream map to new segments after some of its events were replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.model.ids import SegmentId


class Kept(NamedTuple):
    """Offsets `start <= offset < stop` of the former segment `old` are now the offsets of the segment `new` that begin
    at `at`."""

    old: SegmentId
    start: int
    stop: int
    new: SegmentId
    at: int


class RelocatedCut(NamedTuple):
    """How a former segment maps to the segments that replaced it.

    Offsets below `place` are before the replacement. A reader at an offset of at most `after` has read only removed
    events after `place`. Both are -1 for a segment that is entirely after the replacement. `front` and `behind` are the
    segments that the parts before and after the replacement became, each None if that part does not exist; `behind`
    ends at the offset `end`."""

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

    def to_json(self) -> dict[str, object]:
        """The form stored in the catalog."""
        standing = [
            [s.segment.packed, s.place, s.after, s.front and s.front.packed, s.behind and s.behind.packed, s.end]
            for s in self.standing
        ]
        return {"standing": standing, "kept": [[k.old.packed, k.start, k.stop, k.new.packed, k.at] for k in self.kept]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Relocation:
        """The inverse of `to_json`."""

        def segment(packed: int | None) -> SegmentId | None:
            return None if packed is None else SegmentId.unpack(packed)

        unpack = SegmentId.unpack
        return cls(
            tuple(RelocatedCut(unpack(s), p, a, segment(f), segment(b), e) for s, p, a, f, b, e in value["standing"]),
            tuple(Kept(unpack(old), start, stop, unpack(new), at) for old, start, stop, new, at in value["kept"]),
        )
