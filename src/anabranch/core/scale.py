"""Scaling: which segments end, and which begin in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import WHOLE, KeyRange
from anabranch.model.stream import Segment, StreamView


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """In epoch `epoch`, `sealed` are retired and `created` take over their key ranges."""

    epoch: int
    sealed: tuple[Segment, ...]
    created: tuple[Segment, ...]


def plan_split(view: StreamView, segment: SegmentId, into: int) -> ScalePlan:
    """Split one current segment into equal ranges. Raises InvalidArgument."""
    if into < 2:
        raise InvalidArgument("a segment is split into at least 2")
    (mine,) = _current(view, [segment])
    return plan_replacement(view, [segment], mine.range.split(into))


def plan_merge(view: StreamView, segments: Sequence[SegmentId]) -> ScalePlan:
    """Merge current segments whose ranges adjoin into one. Raises InvalidArgument."""
    if len(segments) < 2:
        raise InvalidArgument("a merge takes at least 2 segments")
    ranges = sorted(segment.range for segment in _current(view, segments))
    if any(left.high != right.low for left, right in pairwise(ranges)):
        raise InvalidArgument("only segments whose key ranges adjoin can be merged")
    return plan_replacement(view, segments, [KeyRange(ranges[0].low, ranges[-1].high)])


def plan_segments(view: StreamView, count: int) -> ScalePlan | None:
    """Bring the stream to `count` segments of equal range; None where it has them. Raises InvalidArgument."""
    if not 1 <= count <= limits.SEGMENTS_MAX:
        raise InvalidArgument(f"a stream has 1 to {limits.SEGMENTS_MAX:,} segments, not {count}")
    wanted = set(WHOLE.split(count))
    kept = {segment.range for segment in view.current} & wanted
    sealed = [segment.id for segment in view.current if segment.range not in kept]
    return plan_replacement(view, sealed, sorted(wanted - kept)) if sealed else None


def plan_replacement(view: StreamView, sealed: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> ScalePlan:
    """Replace current segments by new ones of these ranges, which cover the same points once. Raises
    InvalidArgument."""
    ending = _current(view, sealed)
    if _outline([segment.range for segment in ending]) != _outline(ranges):
        raise InvalidArgument("the new ranges do not cover exactly the points of the segments they replace")
    if len(view.current) - len(ending) + len(ranges) > limits.SEGMENTS_MAX:
        raise InvalidArgument(f"a stream has at most {limits.SEGMENTS_MAX:,} segments")
    epoch, number = view.info.epoch + 1, view.info.next_number
    created = [Segment(SegmentId(epoch, number + i), part, None, 0) for i, part in enumerate(sorted(ranges))]
    return ScalePlan(epoch, tuple(ending), tuple(created))


def _current(view: StreamView, segments: Sequence[SegmentId]) -> list[Segment]:
    if not segments or len(set(segments)) != len(segments):
        raise InvalidArgument("name each segment once, and at least one")
    current = {segment.id: segment for segment in view.current}
    for segment in segments:
        if segment not in current:
            have = ", ".join(str(ident) for ident in current)
            raise InvalidArgument(f"{segment} is no current segment of '{view.info.name}'; there are {have}")
    return [current[segment] for segment in segments]


def _outline(ranges: Sequence[KeyRange]) -> list[tuple[int, int]] | None:
    """The ranges with adjoining ones joined; None where some overlap."""
    outline: list[tuple[int, int]] = []
    for part in sorted(ranges):
        if outline and part.low < outline[-1][1]:
            return None
        if outline and part.low == outline[-1][1]:
            outline[-1] = (outline[-1][0], part.high)
        else:
            outline.append((part.low, part.high))
    return outline
