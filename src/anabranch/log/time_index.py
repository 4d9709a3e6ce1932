"""The time index: finds where, in a segment and in a stream, the events at or after a time begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.catalog.port import Catalog, Reading
from anabranch.core import cuts
from anabranch.core.spans import locate
from anabranch.errors import BlobMissing, CorruptCatalog, InvalidArgument, StreamNotFound, Truncated
from anabranch.log.plan import MissingBlob, PlannedExtent
from anabranch.log.read import LogReader, Selection
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.view import load, with_current_spans
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.stream import Extent, StreamView


def cut_at(
    logs: LogReader,
    view: StreamView,
    time: Micros,
    *,
    by_event_time: bool = False,
    pin: tuple[SegmentId, int] | None = None,
) -> StreamCut:
    """The cut before the first event at or after `time` (µs) in stream order. In every segment it is at the first
    event of that time or later, or at the segment's end if there is none.

    The time is the append time, or with `by_event_time` the event time. By event time, events after the cut may be
    earlier than `time`, but no event before the cut is at or after `time`. The result is the same before and after
    compaction. `pin` places one segment exactly (see `core.cuts.walk_cut`)."""
    if by_event_time and view.info.schema.time is None:
        raise InvalidArgument(f"'{view.info.name}' has no event time; use the append time")

    def first(segment: SegmentId) -> int | None:
        return first_at(logs, view, segment, time, by_event_time=by_event_time)

    return cuts.walk_cut(view, first, pin=pin)


def approximate_cut(catalog: Catalog, view: StreamView, time: Micros) -> StreamCut:
    """The approximate cut at an append time, from the catalog alone. If the exact cut lies inside an extent, this one
    is at the extent's beginning. It is never after the exact cut, and a later time never gives an earlier cut."""
    with catalog.reading() as reading:
        now = with_current_spans(reading, view)

        def first(segment: SegmentId) -> int | None:
            found = _first_extent(reading, now, segment, 0, view.length(segment), time, by_event_time=False)
            return None if found is None else found.start + found.shift

        return cuts.walk_cut(view, first)


def first_at(logs: LogReader, view: StreamView, segment: SegmentId, time: Micros, *, by_event_time: bool) -> int | None:
    """The first readable offset of the segment, within the view, whose event is at or after `time`, or None."""
    offset, stop = view.segments[segment].head, view.length(segment)
    missing = MissingBlob()
    while True:
        with logs.catalog.reading() as reading:
            now = with_current_spans(reading, view)
            found = _first_extent(reading, now, segment, offset, stop, time, by_event_time=by_event_time)
            if found is None:
                return None
            columns = logs.columns(reading, now.logs[found.extent.log].stream, found.extent.schema)
        piece = PlannedExtent(*found, columns)
        try:
            position = _first_in_piece(logs, view, piece, time, by_event_time)
        except BlobMissing as exc:
            missing.plan_again(exc)
            continue
        if position is not None:
            return position + piece.shift
        offset = piece.stop + piece.shift


def append_time(logs: LogReader, view: StreamView, segment: SegmentId, offset: int) -> Micros:
    """When one event was appended. Raises StreamNotFound, Truncated."""
    source = SegmentReader(logs, view, segment)
    while True:
        (piece,) = source.plan(offset, offset + 1).extents
        low, high = piece.extent.appended.low, piece.extent.appended.high
        if low is None:
            raise CorruptCatalog(f"an extent of segment {segment} has no append time", "extents")
        if low == high:
            return low
        try:
            _, times = next(logs.append_times(piece))
        except BlobMissing as exc:
            source.plan_again(exc)
            continue
        return Micros(times[0].value)


def newest_event(logs: LogReader, view: StreamView, segment: SegmentId, start: int, stop: int) -> Micros | None:
    """The greatest event time of the segment's offsets `start <= offset < stop`, None if no event has a time. Uses the
    catalog; reads events only of extents that also hold events outside these offsets. Raises StreamNotFound,
    Truncated."""
    source = SegmentReader(logs, view, segment)
    newest: Micros | None = None
    offset = start
    while offset < stop:
        page = source.plan(offset, stop)
        for piece in page.extents:
            try:
                newest = _newer(newest, _newest_in_piece(logs, view, piece, newest))
            except BlobMissing as exc:
                source.plan_again(exc)
                break
            offset = piece.stop + piece.shift
        else:
            offset = page.stop
    return newest


def event_times_at(logs: LogReader, cut: StreamCut) -> dict[SegmentId, Micros]:
    """For each segment the newest event time of the extent that holds the last event before the cut, from the catalog
    alone. A segment is left out if no event before the cut is readable in it, or if the extent has no event times. So
    a stream without event times gives no segments. Raises StreamNotFound."""
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


def _newest_in_piece(logs: LogReader, view: StreamView, piece: PlannedExtent, known: Micros | None) -> Micros | None:
    """The greatest event time of the piece, or None if it is not greater than `known`."""
    highest = piece.extent.events.high
    if highest is None or (known is not None and highest <= known):
        return None
    if (piece.start, piece.stop) == (piece.extent.start, piece.extent.stop):
        return highest
    newest = known
    for _, times in times_of(logs, view, piece, True):
        greatest = pc.max(times.cast(pa.int64())).as_py()
        newest = _newer(newest, None if greatest is None else Micros(greatest))
    return newest


def _newer(one: Micros | None, other: Micros | None) -> Micros | None:
    return max((each for each in (one, other) if each is not None), default=None)


class _ExtentPart(NamedTuple):
    """The selected part of an extent, with the fields of a `PlannedExtent`."""

    extent: Extent
    start: int
    stop: int
    shift: int


def _first_extent(
    reading: Reading, view: StreamView, segment: SegmentId, start: int, stop: int, time: Micros, *, by_event_time: bool
) -> _ExtentPart | None:
    """The first extent that may hold an event at or after `time` among the readable offsets `start <= offset < stop`
    of the segment. The view must have the spans of this snapshot."""
    if segment not in view.segments:  # truncated since
        return None
    for span, low, high in locate(view.spans.get(segment, ()), max(start, view.segments[segment].head), stop):
        if not by_event_time and view.logs[span.log].appended_at < time:
            continue
        extent = reading.extent_at_time(span.log, low, time, by_event_time=by_event_time)
        if extent is not None and extent.start < high:
            return _ExtentPart(extent, max(extent.start, low), min(extent.stop, high), span.offset - span.start)
    return None


def _first_in_piece(
    logs: LogReader, view: StreamView, piece: PlannedExtent, time: Micros, by_event_time: bool
) -> int | None:
    appended = piece.extent.appended
    if not by_event_time and appended.low is not None and appended.low >= time:
        return piece.start
    for first, times in times_of(logs, view, piece, by_event_time):
        late = np.flatnonzero(pc.fill_null(pc.greater_equal(times.cast(pa.int64()), time), False))
        if len(late):
            return first + int(late[0])
    return None


def times_of(
    logs: LogReader, view: StreamView, piece: PlannedExtent, by_event_time: bool
) -> Iterator[tuple[int, pa.Array]]:
    """Event or append times of a planned extent, as pairs of first position and array."""
    if not by_event_time:
        yield from logs.append_times(piece)
        return
    assert view.info.schema.time is not None
    wanted = pa.schema([view.info.schema.columns.field(view.info.schema.time)])
    for rows in logs.rows([piece], Selection(wanted)):
        yield rows.first - piece.shift, rows.batch.column(0)
