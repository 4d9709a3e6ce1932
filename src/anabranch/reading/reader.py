"""The reader of one stream: events or Arrow batches, synchronous or with `async for`, bounded or following."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import repeat
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.core.constant_columns import constant
from anabranch.core.display import Displayed
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import Closed, InvalidArgument
from anabranch.log.read import LogReader, SegmentRows, Selection, appended_of, offsets_of
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.columns import ADDED, select_columns
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.rate import Rate
from anabranch.model.time_kind import TimeKind
from anabranch.model.times import TimeRules, to_micros
from anabranch.reading.arrow_export import to_pandas, to_polars
from anabranch.reading.async_bridge import AsyncBridge
from anabranch.reading.bounds import Place, to_cut
from anabranch.reading.c_stream import CStream
from anabranch.reading.cursor import StreamCursor, StreamDelivery
from anabranch.reading.pacing import Pacing
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    import pandas
    import polars


class _UnderWay(NamedTuple):
    """Events that are being handed out one by one; `left` counts those that are still to come."""

    delivery: StreamDelivery
    left: Iterator[int]
    events: Iterator[Event]


class Reader(Displayed):
    """Reads one stream, beginning at a place. For one consumer; only `close` may be called, and `rate` set, from another
    thread.

    `start` and `end` are HEAD, TAIL, a StreamCut, an EventPointer, a time (datetime, µs or ISO 8601 text; an append
    time, or with `by="event"` an event time), or the text of any of these. `end` is exclusive. Without `end`, the
    reader ends at the tail as of its opening; with `follow`, it waits for more until it is closed or the stream is
    sealed. All events of one key come in the order in which they were appended, across splits and merges too; a
    following reader finds new segments by itself. Segments take turns, so neighbouring events of different keys come
    roughly in append order.

    `columns` are those that a batch or an event's body holds, in this order. None means all columns as of opening.
    Columns that the stream gains later are not read. A column that is widened later is read with its old type;
    SchemaMismatch is raised at a value that does not fit. `between=(from, to)` leaves out events whose event time
    is not in `from <= time < to`, and those without one. `rate` limits how fast events are handed out.

    Raises StreamNotFound, Truncated, InvalidArgument and its subclasses, and EventNotFound for a pointer. While
    reading, also raises Truncated if the position was truncated away (`skip_truncated` continues then), StreamNotFound
    if the stream was deleted, CorruptBlob and BlobMissing if the store is damaged; no wrong row has been handed out
    then.
    """

    def __init__(
        self,
        catalog: Catalog,
        logs: LogReader,
        tail: Tail,
        runtime: Runtime,
        stream: StreamId,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        between: tuple[datetime | int | str, datetime | int | str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
        rate: Rate | None = None,
        on_close: Callable[[Reader], None] | None = None,
        window: Callable[[StreamCut], TimeWindow] = lambda position: TimeWindow(),
    ) -> None:
        if follow and end is not None:
            raise InvalidArgument("a reader that follows the stream can't have an end: omit one of them")
        if batch_rows < 1:
            raise InvalidArgument(f"expected at least one row per batch, got {batch_rows}")
        self._catalog = catalog
        self._logs = logs
        self._tail = tail
        self._clock = runtime.clock
        self._tracing = runtime.tracing
        self._tasks = runtime.tasks
        self._exports: list[CStream] = []
        self._on_close = on_close
        self._window = window
        self._follow = follow
        with catalog.reading() as reading:
            view = load(reading, stream)
        self._info = view.info
        self._names = select_columns(columns, view.info.schema.columns)
        self._own_names = columns is not None
        self._rows_max = min(batch_rows, limits.READ_ROWS_MAX)
        self._between = None if between is None else _micros(between, runtime.settings.times)
        if between is not None and view.info.schema.time is None:
            raise InvalidArgument(f"'{view.info.name}' has no event time to select by")
        self.schema: pa.Schema = pa.schema([*(view.info.schema.columns.field(n) for n in self._names), *ADDED])

        begin = to_cut(logs, view, start, by=by)
        self._end = None if follow else cuts.tail_cut(view)
        if end is not None:
            self._end = to_cut(logs, view, end, by=by)
        if self._end is not None:
            cuts.ranges(view, begin, self._end)  # refuses an end before the start
        self._delivered = begin.as_dict()
        self._under_way: _UnderWay | None = None
        self._as_events = False
        self._flow = StreamCursor(catalog, logs, view, start=begin, end=self._end, selection=self._selection())
        self._busy = runtime.tasks.lock()
        self._pacing = Pacing(runtime, rate)
        self._rest: StreamDelivery | None = None  # pulled, but held back by the rate
        self._ready: StreamDelivery | None = None  # pulled for a coroutine, but not handed out yet
        self._astray = False  # rows were pulled but perhaps not handed out, since Ctrl-C struck in between
        self._pump = AsyncBridge(runtime.tasks, self._fill, self._wake)
        self._closed = False
        self._ending = False  # `close` is running or has run

    def _facts(self) -> Mapping[str, object]:
        return {
            "stream": str(self._info.name),
            "state": "closed" if self._closed else "following" if self._follow else "open",
            "position": self.position,
            "columns": self.schema.names,
        }

    # what it reads

    @property
    def stream(self) -> StreamName:
        """The stream's name when the reader was opened."""
        return self._info.name

    @property
    def position(self) -> StreamCut:
        """The cut after the last event or batch handed out: a reader that starts there continues exactly."""
        positions = dict(self._delivered)
        if self._under_way is not None:
            rows = self._under_way.delivery.rows
            done = rows.batch.num_rows - length_hint(self._under_way.left)
            if done:
                last = rows.first + done - 1 if rows.offsets is None else rows.offsets[done - 1].as_py()
                complete = done == rows.batch.num_rows
                positions[self._under_way.delivery.segment] = rows.stop if complete else last + 1
        return StreamCut.of(self._info.id, positions)

    @property
    def offsets(self) -> Mapping[SegmentId, int]:
        """`position` without the stream, after whole batches."""
        return self._delivered

    @property
    def end(self) -> StreamCut | None:
        """The cut at which it ends; None if it follows the stream."""
        return self._end

    def time_window(self) -> TimeWindow:
        """The time bounds of the position, from the times that writers noted: all events after it have times of at
        least `lower`. Both bounds are None if nothing was noted."""
        return self._window(self.position)

    @property
    def rate(self) -> Rate | None:
        """How fast events are handed out at most; None: no limit. May be set at any time, by any thread."""
        return self._pacing.rate

    @rate.setter
    def rate(self, rate: Rate | None) -> None:
        self._pacing.change(rate)

    # events

    def __iter__(self) -> Iterator[Event]:
        """The events from the position on. Raises Closed."""
        self._enter(as_events=True)
        return self._events()

    def __aiter__(self) -> AsyncIterator[Event]:
        """Like `__iter__`, for coroutines; never blocks the event loop. Raises Closed."""
        self._enter(as_events=True)
        return self._events_async()

    def _events(self) -> Iterator[Event]:
        while True:
            if self._under_way is not None:
                yield from self._under_way.events
            delivery = self._wait()
            if delivery is None:
                return
            self._hand_out(delivery)

    async def _events_async(self) -> AsyncIterator[Event]:
        while True:
            if self._under_way is not None:
                for event in self._under_way.events:
                    yield event
            delivery = await self._wait_async()
            if delivery is None:
                return
            self._hand_out(delivery)

    def _hand_out(self, delivery: StreamDelivery) -> None:
        self._deliver(delivery, whole=False)
        rows = delivery.rows
        run = EventRun(
            self._info.id,
            self._info.schema,
            delivery.segment,
            rows.batch,
            rows.first,
            None if rows.offsets is None else rows.offsets.to_pylist(),
            rows.appended,
            self._names if self._own_names else None,
        )
        left = iter(range(rows.batch.num_rows))
        # `map` over C iterators makes an event in a tenth of a microsecond; a Python loop takes three times as long.
        self._under_way = _UnderWay(delivery, left, map(Event, repeat(run), left))
        self._astray = False

    # batches

    def batches(self) -> BatchStream:
        """The rows from the position on as `pa.RecordBatch`es of `Reader.schema`: the columns, then `_segment` (int64,
        `SegmentId.packed`), `_offset` (int64) and `_appended` (timestamp[us, UTC]). Each holds rows of one segment, in
        offset order. Iterate it with `for` or `async for`. Raises Closed."""
        self._enter(as_events=False)
        return BatchStream(self)

    def read(self, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next batch; None if there is none within `timeout_s` seconds or at the end. Raises Closed."""
        self._enter(as_events=False)
        delivery = self._wait(timeout_s)
        return None if delivery is None else self._batch(delivery)

    def read_rows(self, timeout_s: float = 0.0, *, look: bool = True) -> tuple[SegmentId, SegmentRows] | None:
        """The rows of the next batch as they are stored, with offsets and append times beside the columns; for what sends
        them on. Without `look`, only those that are known of: it doesn't ask the catalog for more. None and errors as in `read`."""
        self._enter(as_events=False)
        delivery = self._wait(timeout_s, look=look)
        if delivery is None:
            return None
        self._deliver(delivery, whole=True)
        self._astray = False
        return delivery.segment, delivery.rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """`batches` in Arrow's C interface, so that pyarrow, DuckDB, polars and pandas take the reader itself."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows from the position to the end as one table of `Reader.schema`, in memory. A writer takes it as it is,
        and leaves out the three added columns. Raises InvalidArgument for a following reader, Closed."""
        if self._follow:
            raise InvalidArgument("a following reader has no end; use its batches, or open a reader without follow")
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """`to_arrow` as a DataFrame of pandas. Also raises MissingExtra."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """`to_arrow` as a DataFrame of polars. Also raises MissingExtra."""
        return to_polars(self.to_arrow())

    def _batch(self, delivery: StreamDelivery) -> pa.RecordBatch:
        rows, shared = delivery.rows, len(self._delivered) > 1
        segment = constant(delivery.segment.packed, rows.batch.num_rows)
        added = [segment, offsets_of(rows, shared=shared), appended_of(rows, shared=shared)]
        batch = pa.RecordBatch.from_arrays([*rows.batch.columns[: len(self._names)], *added], schema=self.schema)
        self._deliver(delivery, whole=True)
        self._astray = False
        return batch

    # continuing after a truncation

    def skip_truncated(self) -> int:
        """Continues at the stream's head where that has passed the position, as after `Truncated`. In segments where
        the position is ahead of the head, nothing is read twice. Returns how many events were never handed out and are
        gone. Raises Closed, StreamNotFound, and InvalidArgument if the reader has another consumer."""
        if self._closed:
            raise Closed("reader")
        if self._pump.busy:
            raise InvalidArgument("this reader already has a consumer; open another reader")
        with self._busy:
            with self._catalog.reading() as reading:
                view = load(reading, self._info.id)
            if not self.position.as_dict().keys() <= view.segments.keys():  # a replacement removed some of them
                self._end = None if self._end is None else cuts.map_relocated(view, self._end) or cuts.tail_cut(view)
            goal, gone = cuts.skip_truncated(view, self.position)
            self._flow.close()
            self._under_way, self._ready, self._rest, self._delivered = None, None, None, goal.as_dict()
            self._flow = StreamCursor(
                self._catalog, self._logs, view, start=goal, end=self._end, selection=self._selection()
            )
            self._astray = False
            return gone

    # closing

    @property
    def at_end(self) -> bool:
        """True if nothing can follow the position: it is the end, or the stream is sealed and read whole."""
        return self._ready is None and self._rest is None and self._under_way is None and self._flow.exhausted

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Closes the reader: wakes a consumer that waits for events, and ends an iteration under way. May be called
        again; after Ctrl-C a second call does what is left."""
        if self._ending:
            return
        try:
            self._closed = self._ending = True
            self._pump.close()
            self._wake()
            self._tidy()
            for exported in self._exports:
                exported.close()
            if self._on_close is not None:
                self._on_close(self)
        except BaseException:
            self._ending = False
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # the work

    def _enter(self, *, as_events: bool) -> None:
        if self._closed:
            raise Closed("reader")
        if self._pump.busy:
            raise InvalidArgument("this reader already has a consumer; open another reader")
        if as_events is self._as_events and not self._astray:
            return
        with self._busy:
            self._begin_anew(as_events=as_events)  # the other kind needs other columns

    def _begin_anew(self, *, as_events: bool) -> None:
        """Starts reading again from the position, discarding what was pulled already."""
        start, view = self.position, self._flow.view
        self._flow.close()
        self._as_events, self._under_way, self._ready, self._rest = as_events, None, None, None
        self._delivered = start.as_dict()
        self._flow = StreamCursor(
            self._catalog, self._logs, view, start=start, end=self._end, selection=self._selection()
        )
        self._astray = False

    def _selection(self) -> Selection:
        schema = self._info.schema
        names = list(self._names)
        if self._as_events:  # an event has its key and time, whatever its body holds
            wanted = [schema.key, schema.time, "payload" if schema.raw else None]
            names += [name for name in wanted if name is not None and name not in names]
        # A batch without columns has no row count, so at least one column is read; it is dropped again in the end.
        names = names or [schema.time or schema.key or schema.columns.names[0]]
        columns = pa.schema([schema.columns.field(name) for name in names])
        return Selection(columns, self._rows_max, schema.time, self._between)

    def _wait(self, timeout_s: float | None = None, *, look: bool = True) -> StreamDelivery | None:
        """The next rows. If the reader follows and may `look`, waits for them at most `timeout_s` seconds. Returns None if
        there are none or the reader was closed."""
        try:
            with self._busy:
                if self._astray:
                    self._begin_anew(as_events=self._as_events)
                self._astray = True
                return self._supplied(self._take() or self._wait_alone(timeout_s, lambda: self._closed, look=look))
        except Exception:
            self._astray = False  # the cursor can continue after an error
            raise
        finally:
            self._tidy()

    async def _wait_async(self) -> StreamDelivery | None:
        if self._ready is None and not self._closed:
            with suppress(Closed):
                await self._pump.call()
        return self._supplied(self._take())

    def _fill(self, interrupted: Callable[[], bool]) -> bool:
        """Gets the next rows ready. Returns False if it was interrupted; True without rows means the end."""
        try:
            with self._busy:
                if self._ready is None:
                    self._ready = self._wait_alone(None, interrupted)
                return self._ready is not None or not interrupted()
        finally:
            self._tidy()

    def _take(self) -> StreamDelivery | None:
        delivery, self._ready = self._ready, None
        return None if self._closed else delivery

    def _wake(self) -> None:
        self._pacing.wake()
        self._tail.notify()

    def _wait_alone(
        self, timeout_s: float | None, interrupted: Callable[[], bool], *, look: bool = True
    ) -> StreamDelivery | None:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        if not self._pacing.wait(deadline, interrupted):
            return None
        delivery, self._rest = self._rest or self._pull(deadline, interrupted, look=look), None
        if delivery is not None and self._pacing.rate is not None:
            batch = delivery.rows.batch
            delivery, self._rest = _divided(delivery, self._pacing.take(batch.num_rows, batch.nbytes))
        return delivery

    def _pull(self, deadline: float | None, interrupted: Callable[[], bool], *, look: bool) -> StreamDelivery | None:
        while not interrupted():
            began_at = None if self._tracing is None else self._tracing.now()
            delivery = self._flow.pull()
            if delivery is not None:
                if self._tracing is not None and began_at is not None:
                    name, rows = str(delivery.view.info.name), delivery.rows.batch.num_rows
                    self._tracing.read(began_at, name, delivery.segment, rows)
                return delivery
            if self._flow.exhausted or not look:
                return None
            seen = self._tail.generation()
            if self._flow.refresh():
                continue
            left = None if deadline is None else deadline - self._clock.monotonic()
            if interrupted() or self._flow.exhausted or (left is not None and left <= 0):
                return None
            self._tail.wait(seen, left)
        return None

    def _supplied(self, delivery: StreamDelivery | None) -> StreamDelivery | None:
        if delivery is None:
            if not self._closed and self._rest is None:
                # Everything delivered is handed out, and what lies after it was filtered out.
                self._delivered, self._under_way = self._flow.positions, None
            self._astray = False
        return delivery

    def _deliver(self, delivery: StreamDelivery, *, whole: bool) -> None:
        """Moves the position: past the delivery under way, into the new one's segment, and past that one if `whole`."""
        if self._under_way is not None:
            before = self._under_way.delivery
            self._delivered[before.segment] = before.rows.stop
            self._under_way = None
        if delivery.skipped or delivery.segment not in self._delivered:
            self._delivered = cuts.skip_exhausted(delivery.view, {**self._delivered, **delivery.skipped})
        if whole:
            self._delivered[delivery.segment] = delivery.rows.stop

    def _exported(self, batches: Iterator[pa.RecordBatch]) -> CStream:
        exported = CStream(self._tasks, batches, lambda: self._closed, endless=self._end is None)
        self._exports.append(exported)
        return exported

    def _tidy(self) -> None:
        # A thread that is reading when the reader is closed cleans up by itself; a signal handler must not wait for it.
        if self._closed and self._busy.acquire(blocking=False):
            try:
                self._flow.close()
            finally:
                self._busy.release()


class BatchStream:
    """The batches of a reader. Also a stream in Arrow's C interface, for pyarrow, DuckDB and polars. They get Closed
    if a reader with an end is closed before it, because their result would lack rows."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (delivery := self._reader._wait()) is not None:
            yield self._reader._batch(delivery)

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        while (delivery := await self._reader._wait_async()) is not None:
            yield self._reader._batch(delivery)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        batches = pa.RecordBatchReader.from_batches(self.schema, self._reader._exported(iter(self)))
        return batches.__arrow_c_stream__(requested_schema)


def _divided(delivery: StreamDelivery, count: int) -> tuple[StreamDelivery, StreamDelivery | None]:
    """The first rows of a delivery, and the others."""
    if count >= delivery.rows.batch.num_rows:
        return delivery, None
    before, after = delivery.rows.split(count)
    return delivery._replace(rows=before), delivery._replace(rows=after, skipped={})


def _micros(between: tuple[datetime | int | str, datetime | int | str], rules: TimeRules) -> tuple[int, int]:
    return int(to_micros(between[0], rules)), int(to_micros(between[1], rules))
