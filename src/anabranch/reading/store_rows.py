"""The rows of a stream that lies in the store itself."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.log.read import LogReader, Selection
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.columns import select_columns
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.reading.bounds import to_cut
from anabranch.reading.cursor import StreamCursor
from anabranch.reading.row_source import ReaderOptions, StreamDelivery
from anabranch.runtime.ports import Runtime


class StoreRows:
    """The `RowSource` of an embedded store's reader. Waits for rows at the tail."""

    ignores_timeout = False

    def __init__(
        self, catalog: Catalog, logs: LogReader, tail: Tail, runtime: Runtime, stream: StreamId, options: ReaderOptions
    ) -> None:
        """Raises StreamNotFound, Truncated, InvalidArgument and its subclasses, and EventNotFound for a pointer."""
        self._catalog = catalog
        self._logs = logs
        self._tail = tail
        self._clock = runtime.clock
        self._tracing = runtime.tracing
        with catalog.reading() as reading:
            view = load(reading, stream)
        self.options = options
        self.stream, self.name, self.schema = stream, view.info.name, view.info.schema
        names = select_columns(options.columns, self.schema.columns)
        self.columns: pa.Schema = pa.schema([self.schema.columns.field(name) for name in names])
        self._between = options.between_us(runtime.settings.times)
        if self._between is not None and self.schema.time is None:
            raise InvalidArgument(f"'{self.name}' has no event time to select by")
        self.start = to_cut(logs, view, options.start, by=options.by)
        self.end = None if options.follow else cuts.tail_cut(view)
        if options.end is not None:
            self.end = to_cut(logs, view, options.end, by=options.by)
        if self.end is not None:
            cuts.ranges(view, self.start, self.end)  # refuses an end before the start
        self._selection = self._selected(as_events=False)
        self._cursor = self._at(view, self.start)
        self._busy = runtime.tasks.lock()
        self._closed = False

    @property
    def positions(self) -> dict[SegmentId, int]:
        """See `RowSource`."""
        return self._cursor.positions

    @property
    def exhausted(self) -> bool:
        """See `RowSource`."""
        return self._cursor.exhausted

    def serves(self, *, as_events: bool) -> bool:
        """See `RowSource`."""
        return self._selected(as_events=as_events) == self._selection

    def pull(self, until: float | None, interrupted: Callable[[], bool], *, look: bool) -> StreamDelivery | None:
        """See `RowSource`."""
        try:
            with self._busy:
                return self._pull(until, interrupted, look=look)
        finally:
            self._tidy()

    def _pull(self, until: float | None, interrupted: Callable[[], bool], *, look: bool) -> StreamDelivery | None:
        while not interrupted():
            began_at = None if self._tracing is None else self._tracing.now()
            delivery = self._cursor.pull()
            if delivery is not None:
                if self._tracing is not None and began_at is not None:
                    name, count = str(self._cursor.view.info.name), delivery.rows.batch.num_rows
                    self._tracing.read(began_at, name, delivery.segment, count)
                return delivery
            if self._cursor.exhausted or not look:
                return None
            seen = self._tail.generation()
            if self._cursor.refresh():
                continue
            left = None if until is None else until - self._clock.monotonic()
            if interrupted() or self._cursor.exhausted or (left is not None and left <= 0):
                return None
            self._tail.wait(seen, left)
        return None

    def restart(self, start: StreamCut, *, as_events: bool) -> None:
        """See `RowSource`."""
        with self._busy:
            self._begin(self._cursor.view, start, as_events=as_events)

    def skip_truncated(self, start: StreamCut, *, as_events: bool) -> tuple[StreamCut, int]:
        """See `RowSource`."""
        with self._busy:
            with self._catalog.reading() as reading:
                view = load(reading, self.stream)
            if not start.as_dict().keys() <= view.segments.keys():  # a replacement removed some of them
                self.end = None if self.end is None else cuts.map_relocated(view, self.end) or cuts.tail_cut(view)
            goal, gone = cuts.skip_truncated(view, start)
            self._begin(view, goal, as_events=as_events)
        return goal, gone

    def wake(self) -> None:
        """See `RowSource`."""
        self._tail.notify()

    def close(self) -> None:
        """See `RowSource`."""
        self._closed = True
        self._tail.notify()
        self._tidy()

    def _begin(self, view: StreamView, start: StreamCut, *, as_events: bool) -> None:
        self._cursor.close()
        self._selection = self._selected(as_events=as_events)
        self._cursor = self._at(view, start)

    def _at(self, view: StreamView, start: StreamCut) -> StreamCursor:
        return StreamCursor(self._catalog, self._logs, view, start=start, end=self.end, selection=self._selection)

    def _selected(self, *, as_events: bool) -> Selection:
        schema, names = self.schema, list(self.columns.names)
        if as_events:  # an event has its key and time, whatever its body holds
            wanted = [schema.key, schema.time, "payload" if schema.raw else None]
            names += [name for name in wanted if name is not None and name not in names]
        # A batch without columns has no row count, so at least one column is read; it is dropped again in the end.
        names = names or [schema.time or schema.key or schema.columns.names[0]]
        columns = pa.schema([schema.columns.field(name) for name in names])
        return Selection(columns, self.options.rows_max, schema.time, self._between)

    def _tidy(self) -> None:
        # A thread that is reading when the source is closed cleans up by itself; a signal handler must not wait for it.
        if self._closed and self._busy.acquire(blocking=False):
            try:
                self._cursor.close()
            finally:
                self._busy.release()
