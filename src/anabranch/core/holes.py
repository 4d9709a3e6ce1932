"""Holes: ranges of a log that no span views, although events before and after are viewed.

For example, a copy of a stream's first day and the stream's own last week leave such a hole when everything between was
truncated. The events of a hole are deleted, and one extent without bytes, the mark, replaces them. So positions,
running sizes and times stay valid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from anabranch.core.compaction import GONE, merged_bounds
from anabranch.core.ranges import Range, union
from anabranch.model.append import BlobLocation, TimeBounds
from anabranch.model.stream import Extent, Span

_END = 1 << 62


def viewed_ranges(spans: Iterable[Span]) -> list[Range]:
    """The positions that any of a log's spans views, as ordered ranges that don't touch each other. A span that follows
    the log extends beyond all positions."""
    return union((span.start, _END if span.stop is None else span.stop) for span in spans)


def gaps(ranges: Sequence[Range]) -> list[Range]:
    """The gaps between ordered ranges."""
    return [(before[1], after[0]) for before, after in pairwise(ranges)]


def intersects(ranges: Sequence[Range], extent: Extent) -> bool:
    """True if any of the ordered ranges holds a position of the extent."""
    last = bisect_right(ranges, (extent.stop - 1, _END)) - 1
    return last >= 0 and ranges[last][1] > extent.start


def extents_in_hole(page: Sequence[Extent], hole: Range) -> list[Extent]:
    """The adjacent extents that lie entirely in a hole and still have to be deleted; empty if only a mark is left."""
    inside = [extent for extent in page if hole[0] <= extent.start and extent.stop <= hole[1]]
    return [] if [extent.encoding for extent in inside] == [GONE] else inside


def collected_marker(collected_extents: Sequence[Extent]) -> Extent:
    """The extent without bytes that replaces adjacent extents."""
    last = collected_extents[-1]
    return replace(
        last,
        start=collected_extents[0].start,
        blob=None,
        key=None,
        encoding=GONE,
        location=BlobLocation(0, 0),
        checksum=0,
        appended=TimeBounds(collected_extents[0].appended.low, last.appended.high),
        events=merged_bounds(extent.events for extent in collected_extents),
        data=None,
    )
