"""Logical bytes between places, from the running totals of logs. Looks up a few rows, whatever the distance.

The result is exact if a place is the edge of an extent. Within an extent, all events count as equally large, so
compaction, which makes extents larger, may change such a result a little. If what lies before a log's first extent was
collected, its size is estimated from the mean of the whole log.
"""

from __future__ import annotations

from anabranch.catalog.port import Reading
from anabranch.core.cuts import ranges
from anabranch.core.spans import locate
from anabranch.model.append import LogState
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.segment_range import RangesBetween, SegmentRange
from anabranch.model.stream import StreamView


def measure(reading: Reading, view: StreamView, start: StreamCut, end: StreamCut) -> RangesBetween:
    """The range between two cuts, with its bytes. Raises InvalidCut, also if `end` lies before `start`."""
    found = [
        SegmentRange(segment, low, high, segment_bytes(reading, view, segment, low, high))
        for segment, low, high in ranges(view, start, end)
    ]
    return RangesBetween(view.info.id, start, end, tuple(found))


def segment_bytes(reading: Reading, view: StreamView, segment: SegmentId, start: int, stop: int) -> int:
    """The logical bytes of the segment's offsets `start <= offset < stop`. Looks up at most four extents per span."""
    return sum(
        size_at(reading, view.logs[span.log], high) - size_at(reading, view.logs[span.log], low)
        for span, low, high in locate(view.spans.get(segment, ()), start, stop)
    )


def size_at(reading: Reading, log: LogState, position: int) -> int:
    """The log's logical bytes before `position`, which never fall as it rises. `log` may be older than the snapshot."""
    if position <= 0:
        return 0
    if position >= log.length:
        return log.size
    extent = reading.extent_before(log.id, position)
    if extent is None:
        return _mean(log, position)
    if extent.stop <= position:
        return extent.size_end
    begun = min(_size_before(reading, log, extent.start), extent.size_end)
    return begun + (extent.size_end - begun) * (position - extent.start) // (extent.stop - extent.start)


def _size_before(reading: Reading, log: LogState, start: int) -> int:
    """The running total at the beginning of an extent."""
    before = reading.extent_before(log.id, start) if start else None
    if before is None:
        return _mean(log, start)
    return before.size_end


def _mean(log: LogState, position: int) -> int:
    return log.size * position // log.length if log.length else 0
