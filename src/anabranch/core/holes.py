"""Holes: what of a log no span views, though something is viewed before and behind it.

A copy of a stream's first day and the stream's own last week leave such a hole when all between was truncated. What a hole
held goes, and one extent without bytes stays in its place, the mark: so positions, running sizes and times are told as before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from anabranch.core.compaction import GONE, joined
from anabranch.model.append import Bounds, Place
from anabranch.model.stream import Extent, Span

_END = 1 << 62

Range = tuple[int, int]


def viewed(spans: Iterable[Span]) -> list[Range]:
    """The positions that any of a log's spans views, as ranges in order that don't touch each other. What follows the log
    reaches beyond all positions."""
    found: list[Range] = []
    full = ((span.start, _END if span.stop is None else span.stop) for span in spans if span.start != span.stop)
    for start, stop in sorted(full):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def gaps(ranges: Sequence[Range]) -> list[Range]:
    """What lies between ranges that are in order."""
    return [(before[1], after[0]) for before, after in pairwise(ranges)]


def sees(ranges: Sequence[Range], extent: Extent) -> bool:
    """True if any of the ranges, which are in order, holds a position of the extent."""
    last = bisect_right(ranges, (extent.stop - 1, _END)) - 1
    return last >= 0 and ranges[last][1] > extent.start


def hollow(page: Sequence[Extent], hole: Range) -> list[Extent]:
    """Those of neighbouring extents that lie wholly in a hole and are still to go; none where one mark is all there is."""
    inside = [extent for extent in page if hole[0] <= extent.start and extent.stop <= hole[1]]
    return [] if [extent.encoding for extent in inside] == [GONE] else inside


def mark(gone: Sequence[Extent]) -> Extent:
    """What stays in the place of neighbouring extents."""
    last = gone[-1]
    return replace(
        last,
        start=gone[0].start,
        blob=None,
        key=None,
        encoding=GONE,
        place=Place(0, 0),
        checksum=0,
        appended=Bounds(gone[0].appended.low, last.appended.high),
        events=joined(extent.events for extent in gone),
        data=None,
    )
