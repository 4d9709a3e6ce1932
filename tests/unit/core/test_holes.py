"""What of a log no span views, held to sets of positions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.compaction import GONE, PARQUET
from anabranch.core.holes import collected_marker, extents_in_hole, gaps, intersects, viewed_ranges
from anabranch.model.append import BlobLocation, TimeBounds
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId
from anabranch.model.stream import Extent, Span

LENGTH = 40
spans = st.lists(
    st.tuples(st.integers(0, LENGTH), st.integers(0, 12) | st.none()).map(
        lambda each: Span(SegmentId(0, 0), 0, LogId(1), each[0], None if each[1] is None else each[0] + each[1])
    ),
    max_size=6,
)


def extent(start: int, stop: int) -> Extent:
    times = TimeBounds(Micros(start), Micros(stop))
    return Extent(
        LogId(1),
        start,
        stop,
        BlobId(start),
        "k",
        PARQUET,
        BlobLocation(0, 0, start),
        1,
        7,
        times,
        times,
        size_end=10 * stop,
    )


def positions(found: list[tuple[int, int]]) -> set[int]:
    return {position for start, stop in found for position in range(start, min(stop, 2 * LENGTH))}


@given(spans, st.lists(st.integers(1, 2 * LENGTH - 1), unique=True))
def test_what_nobody_views_goes_and_a_mark_stays_that_holds_sizes_and_times(
    found: list[Span], edges: list[int]
) -> None:
    stops = [2 * LENGTH if span.stop is None else span.stop for span in found]
    seen = {position for span, stop in zip(found, stops, strict=True) for position in range(span.start, stop)}
    ranges = viewed_ranges(found)
    assert positions(ranges) == seen
    holes = gaps(ranges)
    between = set(range(min(seen), max(seen))) - seen if seen else set()
    assert positions(holes) == between
    cut = [0, *sorted(edges), 2 * LENGTH]
    extents = [extent(start, stop) for start, stop in pairwise(cut)]
    for each in extents:
        assert intersects(ranges, each) == bool(seen & set(range(each.start, each.stop)))
    for hole in holes:
        gone = extents_in_hole(extents, hole)
        assert gone == [each for each in extents if set(range(each.start, each.stop)) <= set(range(*hole))]
        if gone:
            left = collected_marker(gone)
            assert (left.start, left.stop, left.size_end) == (gone[0].start, gone[-1].stop, gone[-1].size_end)
            assert (left.encoding, left.blob, left.key, left.data) == (GONE, None, None, None)
            assert left.appended == left.events == TimeBounds(gone[0].appended.low, gone[-1].appended.high)
            assert extents_in_hole([left], hole) == []
            assert extents_in_hole([left, left], hole) == [left, left]
