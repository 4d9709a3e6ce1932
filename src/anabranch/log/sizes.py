"""Logical bytes between places, from the running totals of logs: a few rows are looked up, however much lies between.

They are exact where a place is the edge of an extent. Within an extent, events are taken to weigh the same: places in it
are counted in proportion, and a compaction, which makes extents larger, may change such an answer a little. Where
what lies before a log's first extent was collected, its beginning is estimated from the mean of the whole log.
"""

from __future__ import annotations

from anabranch.catalog.port import Reading
from anabranch.core.cuts import ranges
from anabranch.core.spans import locate
from anabranch.model.append import LogState
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.segment_range import Between, SegmentRange
from anabranch.model.stream import StreamView


def measure(reading: Reading, view: StreamView, start: StreamCut, end: StreamCut) -> Between:
    """What lies between two cuts, with its bytes. Raises InvalidCut, where `end` lies before `start` too."""
    found = [
        SegmentRange(segment, low, high, segment_bytes(reading, view, segment, low, high))
        for segment, low, high in ranges(view, start, end)
    ]
    return Between(view.info.id, start, end, tuple(found))


def segment_bytes(reading: Reading, view: StreamView, segment: SegmentId, start: int, stop: int) -> int:
    """The logical bytes of the segment's offsets `start <= offset < stop`. At most four extents a span are looked up."""
    return sum(
        size_at(reading, view.logs[span.log], high) - size_at(reading, view.logs[span.log], low)
        for span, low, high in locate(view.spans.get(segment, ()), start, stop)
    )


def size_at(reading: Reading, log: LogState, position: int) -> int:
    """The log's logical bytes before `position`. Rises with it. `log` may be a little older than the snapshot."""
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
    """The running size where an extent begins."""
    before = reading.extent_before(log.id, start) if start else None
    if before is None:
        return _mean(log, start)
    return before.size_end


def _mean(log: LogState, position: int) -> int:
    return log.size * position // log.length if log.length else 0
