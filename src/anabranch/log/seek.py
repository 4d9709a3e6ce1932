"""The time index: where, in a segment and in a stream, the events at or after a time begin."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.core.compaction import GONE
from anabranch.core.spans import locate, offset_of
from anabranch.errors import BlobMissing, InvalidArgument
from anabranch.log.plan import Piece
from anabranch.log.read import LogReader, Selection
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, Micros, SegmentId
from anabranch.model.stream import StreamView


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

    def first(segment: SegmentId) -> int | None:
        head, length = view.segments[segment].head, view.length(segment)
        with catalog.reading() as reading:
            for span, low, high in locate(view.spans.get(segment, ()), head, length):
                if view.logs[span.log].appended_at < time:
                    continue
                extent = reading.extent_at_time(span.log, low, time, by_event_time=False)
                if extent is not None and extent.start < high:
                    return offset_of(span, max(extent.start, low))
        return None

    return cuts.walk_cut(view, first)


def first_at(
    catalog: Catalog, logs: LogReader, view: StreamView, segment: SegmentId, time: Micros, *, by_event_time: bool
) -> int | None:
    """The segment's first readable offset whose event is at or after `time`, or None."""
    head, length = view.segments[segment].head, view.length(segment)
    for span, low, high in locate(view.spans.get(segment, ()), head, length):
        position = _first_in_log(catalog, logs, view, span.log, low, high, time, by_event_time)
        if position is not None:
            return offset_of(span, position)
    return None


def _first_in_log(
    catalog: Catalog,
    logs: LogReader,
    view: StreamView,
    log: LogId,
    start: int,
    stop: int,
    time: Micros,
    by_event_time: bool,
) -> int | None:
    missing: BlobMissing | None = None
    while start < stop:
        with catalog.reading() as reading:
            extent = reading.extent_at_time(log, start, time, by_event_time=by_event_time)
            if extent is None or extent.start >= stop:
                return None
            if extent.encoding == GONE:  # truncated and collected since the view was taken
                start = extent.stop
                continue
            state = reading.logs([log])[log]
            columns = logs.columns(reading, state.stream, extent.schema)
        if missing is not None and extent.key == missing.key:
            raise missing
        piece = Piece(extent, max(extent.start, start), min(extent.stop, stop), 0, columns)
        try:
            position = _first_in_piece(logs, view, piece, time, by_event_time)
        except BlobMissing as exc:
            missing = exc  # compacted and collected since: ask again, once
            continue
        if position is not None:
            return position
        start = piece.stop
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
        yield rows.first, rows.batch.column(0)
