"""What events weigh: logical bytes of a segment range, from the running totals that logs and extents keep. Nothing is read
but a few catalog rows."""

from __future__ import annotations

from anabranch.catalog.port import Reading
from anabranch.core.spans import locate
from anabranch.model.append import LogState
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView


def weigh(reading: Reading, view: StreamView, segment: SegmentId, start: int, stop: int) -> int:
    """The logical bytes of the offsets `start <= offset < stop` of a segment: what they weighed when they were appended.
    Within an extent all events are taken to weigh the same."""
    total = 0
    for span, low, high in locate(view.spans.get(segment, ()), start, stop):
        log = view.logs[span.log]
        total += size_at(reading, log, high) - size_at(reading, log, low)
    return total


def size_at(reading: Reading, log: LogState, position: int) -> int:
    """A log's running size at a position."""
    if position >= log.length:
        return log.size
    extent = reading.extent_before(log.id, position) if position else None
    if extent is None:
        return 0 if position == 0 else log.size * position // log.length  # collected: on average
    if extent.stop <= position:
        return extent.size_end
    before = size_at(reading, log, extent.start)
    return before + (extent.size_end - before) * (position - extent.start) // (extent.stop - extent.start)
