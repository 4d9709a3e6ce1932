"""Scaling: which segments end, and which replace them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch import limits
from anabranch.core.ranges import covered
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import check_count
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import FULL_KEY_RANGE, KeyRange
from anabranch.model.stream import Segment, StreamView


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """In epoch `epoch`, the segments `sealed` are retired and those `created` take over their key ranges."""

    epoch: int
    sealed: tuple[Segment, ...]
    created: tuple[Segment, ...]


def plan_split(view: StreamView, segment: SegmentId, into: int) -> ScalePlan:
    """Split one current segment into equal ranges. Raises InvalidArgument."""
    into = check_count("into=, the parts of a segment,", into, least=2, most=limits.SEGMENTS_MAX)
    (chosen,) = _current(view, [segment])
    return plan_replacement(view, [segment], chosen.range.split(into))


def plan_merge(view: StreamView, segments: Sequence[SegmentId]) -> ScalePlan:
    """Merge current segments with adjacent ranges into one. Raises InvalidArgument."""
    if len(segments) < 2:
        raise InvalidArgument(f"expected at least 2 segments to merge, got {len(segments)}")
    ranges = sorted(segment.range for segment in _current(view, segments))
    if any(left.high != right.low for left, right in pairwise(ranges)):
        raise InvalidArgument("expected segments with adjacent key ranges to merge")
    return plan_replacement(view, segments, [KeyRange(ranges[0].low, ranges[-1].high)])


def plan_segments(view: StreamView, count: int) -> ScalePlan | None:
    """Change the stream to `count` segments of equal range; None if it already has them. Raises InvalidArgument."""
    count = check_count("the number of segments", count, least=1, most=limits.SEGMENTS_MAX)
    wanted = set(FULL_KEY_RANGE.split(count))
    unchanged = {segment.range for segment in view.current} & wanted
    sealed = [segment.id for segment in view.current if segment.range not in unchanged]
    return plan_replacement(view, sealed, sorted(wanted - unchanged)) if sealed else None


def plan_replacement(view: StreamView, sealed: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> ScalePlan:
    """Replace current segments by new ones with these ranges, which must cover the same points once. Raises
    InvalidArgument."""
    sealed_segments = _current(view, sealed)
    before = [segment.range for segment in sealed_segments]
    if covered(before) != covered(ranges) or _width(before) != _width(ranges):  # else some of them overlap
        raise InvalidArgument("expected new ranges that cover exactly the key space of the segments they replace")
    if len(view.current) - len(sealed_segments) + len(ranges) > limits.SEGMENTS_MAX:
        raise InvalidArgument(f"expected at most {limits.SEGMENTS_MAX:,} segments in a stream")
    epoch, number = view.info.epoch + 1, view.info.next_number
    created = [Segment(SegmentId(epoch, number + i), part, None, 0) for i, part in enumerate(sorted(ranges))]
    return ScalePlan(epoch, tuple(sealed_segments), tuple(created))


def _current(view: StreamView, segments: Sequence[SegmentId]) -> list[Segment]:
    if not segments or len(set(segments)) != len(segments):
        raise InvalidArgument("expected at least one segment, and each once")
    current = {segment.id: segment for segment in view.current}
    for segment in segments:
        if segment not in current:
            have = ", ".join(str(ident) for ident in current)
            raise InvalidArgument(f"expected a current segment of '{view.info.name}' ({have}), got {segment}")
    return [current[segment] for segment in segments]


def _width(ranges: Sequence[KeyRange]) -> int:
    return sum(each.high - each.low for each in ranges)
