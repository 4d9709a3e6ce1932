"""Up to which event time each segment of a stream is read."""

from __future__ import annotations

from anabranch.errors import StreamNotFound, Truncated
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId


def event_times_at(logs: LogReader, cut: StreamCut) -> dict[SegmentId, Micros]:
    """For each segment the newest event time of the extent that holds the last event before the cut, from the catalog
    alone. Left out are segments of which nothing was read, or whose events have no time, or where what was read is
    truncated; so all segments of a stream without event times. Raises StreamNotFound."""
    with logs.catalog.reading() as reading:
        view = load(reading, cut.stream)
    if view.info.schema.time is None:
        return {}
    times: dict[SegmentId, Micros] = {}
    for segment, position in cut.as_dict().items():
        part = view.segments.get(segment)
        if part is None or not part.head < position <= view.length(segment):
            continue
        try:
            (piece,) = SegmentReader(logs, view, segment).plan(position - 1, position).extents
        except (StreamNotFound, Truncated):
            continue
        if piece.extent.events.high is not None:
            times[segment] = piece.extent.events.high
    return times
