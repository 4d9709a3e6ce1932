"""The time index: where, in a segment and in a stream, the events at or after a time begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.catalog.port import Catalog, Reading
from anabranch.core import cuts
from anabranch.core.spans import locate
from anabranch.errors import BlobMissing, InvalidArgument
from anabranch.log.plan import Piece
from anabranch.log.read import LogReader, Selection
from anabranch.log.view import readable, respanned
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.stream import Extent, StreamView


def cut_at(
    catalog: Catalog,
    logs: LogReader,
    view: StreamView,
    time: Micros,
    *,
    by_event_time: bool = False,
    pin: tuple[SegmentId, int] | None = None,
) -> StreamCut:
    """The cut before the first event at or after `time` (µs) in stream order: in every segment the cut stands at the
    first event of that time or later, or at its end where there is none.

    By append time, or by event time: then events behind the cut may be earlier than `time`, but none before it is
    at or after it. The same before and after compaction. `pin` places one segment exactly (see `core.cuts.walk_cut`).
    """
    if by_event_time and view.info.schema.time is None:
        raise InvalidArgument(f"'{view.info.name}' has no event time; use the append time")

    def first(segment: SegmentId) -> int | None:
        return first_at(catalog, logs, view, segment, time, by_event_time=by_event_time)

    return cuts.walk_cut(view, first, pin=pin)


def about(catalog: Catalog, view: StreamView, time: Micros) -> StreamCut:
    """About the cut at an append time, from the catalog alone: where that lies inside an extent, this one lies at its
    beginning. Never behind the exact one, and it does not go back when the time rises."""
    with catalog.reading() as reading:
        now = respanned(reading, view)

        def first(segment: SegmentId) -> int | None:
            found = _first_extent(reading, now, segment, 0, view.length(segment), time, by_event_time=False)
            return None if found is None else found.start + found.shift

        return cuts.walk_cut(view, first)


def first_at(
    catalog: Catalog, logs: LogReader, view: StreamView, segment: SegmentId, time: Micros, *, by_event_time: bool
) -> int | None:
    """The first offset of the segment that can be read and whose event is at or after `time`, or None; not beyond the
    segment's end in the view."""
    offset, stop = view.segments[segment].head, view.length(segment)
    missing: BlobMissing | None = None
    while True:
        with catalog.reading() as reading:
            now = respanned(reading, view)
            found = _first_extent(reading, now, segment, offset, stop, time, by_event_time=by_event_time)
            if found is None:
                return None
            columns = logs.columns(reading, now.logs[found.extent.log].stream, found.extent.schema)
        if missing is not None and found.extent.key == missing.key:
            raise missing
        piece = Piece(*found, columns)
        try:
            position = _first_in_piece(logs, view, piece, time, by_event_time)
        except BlobMissing as exc:
            missing = exc  # compacted and collected since: ask again, once
            continue
        if position is not None:
            return position + piece.shift
        offset = piece.stop + piece.shift


def append_time(catalog: Catalog, logs: LogReader, view: StreamView, segment: SegmentId, offset: int) -> Micros:
    """When one event was appended. Raises StreamNotFound, Truncated."""
    missing: BlobMissing | None = None
    while True:
        with catalog.reading() as reading:
            now = readable(reading, view, segment, offset)
            (piece,) = logs.plan(reading, now, segment, offset, offset + 1).pieces
        low, high = piece.extent.appended.low, piece.extent.appended.high
        assert low is not None, "an extent always has an append time"
        if low == high:
            return low
        if missing is not None and piece.extent.key == missing.key:
            raise missing
        try:
            _, times = next(logs.append_times(piece))
        except BlobMissing as exc:
            missing = exc  # as above
            continue
        return Micros(times[0].value)


class _Found(NamedTuple):
    """What is wanted of an extent, as a `Piece` has it."""

    extent: Extent
    start: int
    stop: int
    shift: int


def _first_extent(
    reading: Reading, view: StreamView, segment: SegmentId, start: int, stop: int, time: Micros, *, by_event_time: bool
) -> _Found | None:
    """The first extent that may hold an event at or after `time` among what can be read of the segment's offsets
    `start <= offset < stop`. The view has the spans of this snapshot."""
    if segment not in view.segments:  # truncated since
        return None
    for span, low, high in locate(view.spans.get(segment, ()), max(start, view.segments[segment].head), stop):
        if not by_event_time and view.logs[span.log].appended_at < time:
            continue
        extent = reading.extent_at_time(span.log, low, time, by_event_time=by_event_time)
        if extent is not None and extent.start < high:
            return _Found(extent, max(extent.start, low), min(extent.stop, high), span.offset - span.start)
    return None


def _first_in_piece(logs: LogReader, view: StreamView, piece: Piece, time: Micros, by_event_time: bool) -> int | None:
    appended = piece.extent.appended
    if not by_event_time and appended.low is not None and appended.low >= time:
        return piece.start
    for first, times in _times(logs, view, piece, by_event_time):
        late = np.flatnonzero(pc.fill_null(pc.greater_equal(times.cast(pa.int64()), time), False))
        if len(late):
            return first + int(late[0])
    return None


def _times(logs: LogReader, view: StreamView, piece: Piece, by_event_time: bool) -> Iterator[tuple[int, pa.Array]]:
    """A piece's event or append times, in runs that begin at a position."""
    if not by_event_time:
        yield from logs.append_times(piece)
        return
    assert view.info.schema.time is not None
    wanted = pa.schema([view.info.schema.columns.field(view.info.schema.time)])
    for rows in logs.rows([piece], Selection(wanted)):
        yield rows.first - piece.shift, rows.batch.column(0)
