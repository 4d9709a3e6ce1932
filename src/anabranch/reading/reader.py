"""The reader of one stream: events or Arrow batches, synchronous or with `async for`, bounded or following."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.core.closeable import Closeable
from anabranch.core.constant_columns import constant
from anabranch.core.display import Displayed
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import InvalidArgument
from anabranch.log.read import SegmentRows, appended_of, offsets_of
from anabranch.model.columns import ADDED
from anabranch.model.cut import StreamCut
from anabranch.model.event import Event
from anabranch.model.ids import SegmentId
from anabranch.model.names import StreamName
from anabranch.model.rate import Rate
from anabranch.model.seconds import wait_limit
from anabranch.reading.arrow_export import to_pandas, to_polars
from anabranch.reading.c_stream import CStream
from anabranch.reading.events_under_way import EventsUnderWay
from anabranch.reading.row_source import RowSource, StreamDelivery
from anabranch.reading.row_supply import RowSupply
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    import pandas
    import polars


class Reader(Displayed, Closeable):
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

    The stream may also be a broker's, with the same behaviour. After a lost connection, the reader continues at the same
    cut, also at another broker, so nothing is lost or repeated. It reads ahead by about `limits.CONNECTION_BYTES_MAX` at
    most. Also raises PermissionDenied, StoreUnavailable.
    """

    def __init__(
        self,
        source: RowSource,
        runtime: Runtime,
        *,
        rate: Rate | None = None,
        on_close: Callable[[Reader], None] = lambda reader: None,
        window: Callable[[StreamCut], TimeWindow] = lambda position: TimeWindow(),
    ) -> None:
        self._source = source
        self._supply = RowSupply(source, runtime, rate)
        self._tasks = runtime.tasks
        self._on_close = on_close
        self._window = window
        self.schema: pa.Schema = pa.schema([*source.columns, *ADDED])
        self._width = len(source.columns)
        self._body = None if source.options.columns is None else source.columns.names
        self._delivered = source.start.as_dict()
        self._under_way: EventsUnderWay | None = None
        self._as_events = False
        self._astray = False  # rows were pulled but perhaps not handed out, since Ctrl-C struck in between
        self._exports: list[CStream] = []
        self._ending = False  # `close` is running or has run

    def _facts(self) -> Mapping[str, object]:
        return {
            "stream": str(self.stream),
            "state": "closed" if self.closed else "following" if self._source.options.follow else "open",
            "position": self.position,
            "columns": self.schema.names,
        }

    # what it reads

    @property
    def stream(self) -> StreamName:
        """The stream's name when the reader was opened."""
        return self._source.name

    @property
    def position(self) -> StreamCut:
        """The cut after the last event or batch handed out: a reader that starts there continues exactly."""
        positions = dict(self._delivered)
        if self._under_way is not None and (offset := self._under_way.next_offset) is not None:
            positions[self._under_way.delivery.segment] = offset
        return StreamCut.of(self._source.stream, positions)

    @property
    def offsets(self) -> Mapping[SegmentId, int]:
        """`position` without the stream, after whole batches."""
        return self._delivered

    @property
    def end(self) -> StreamCut | None:
        """The cut at which it ends; None if it follows the stream."""
        return self._source.end

    def time_window(self) -> TimeWindow:
        """The time bounds of the position, from the times that writers noted: all events after it have times of at
        least `lower`. Both bounds are None if nothing was noted."""
        return self._window(self.position)

    @property
    def rate(self) -> Rate | None:
        """The maximum rate at which events are handed out; None: no limit. May be set at any time, by any thread."""
        return self._supply.pacing.rate

    @rate.setter
    def rate(self, rate: Rate | None) -> None:
        self._supply.pacing.change(rate)

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
            self._continue(as_events=True)
            delivery = self._wait()
            if delivery is None:
                return
            self._hand_out(delivery)

    async def _events_async(self) -> AsyncIterator[Event]:
        while True:
            if self._under_way is not None:
                for event in self._under_way.events:
                    yield event
            self._continue(as_events=True)
            delivery = await self._wait_async()
            if delivery is None:
                return
            self._hand_out(delivery)

    def _hand_out(self, delivery: StreamDelivery) -> None:
        self._deliver(delivery, whole=False)
        self._under_way = EventsUnderWay.of(delivery, self._source, self._body)
        self._astray = False

    # batches

    def batches(self) -> BatchStream:
        """The rows from the position on as `pa.RecordBatch`es of `Reader.schema`: the columns, then `_segment` (int64,
        `SegmentId.packed`), `_offset` (int64) and `_appended` (timestamp[us, UTC]). Each holds rows of one segment, in
        offset order. Iterate it with `for` or `async for`. Raises Closed."""
        self._enter(as_events=False)
        return BatchStream(self)

    def read(self, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next batch; None if there is none within `timeout_s` seconds or at the end. A broker's reader without `follow`
        waits for the broker however long it takes. Raises Closed, InvalidArgument."""
        limit_s = wait_limit("timeout_s", timeout_s)
        self._enter(as_events=False)
        delivery = self._wait(None if self._source.ignores_timeout else limit_s)
        return None if delivery is None else self._batch(delivery)

    def read_rows(self, timeout_s: float = 0.0, *, look: bool = True) -> tuple[SegmentId, SegmentRows] | None:
        """The rows of the next batch as they are stored, with offsets and append times beside the columns; for code
        that passes them on to a client. Without `look`, returns only rows that are known already, without a look-up for
        more. None and errors as in `read`."""
        limit_s = wait_limit("timeout_s", timeout_s)
        self._enter(as_events=False)
        delivery = self._wait(limit_s, look=look)
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
        if self._source.options.follow:
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
        batch = pa.RecordBatch.from_arrays([*rows.batch.columns[: self._width], *added], schema=self.schema)
        self._deliver(delivery, whole=True)
        self._astray = False
        return batch

    # continuing after a truncation

    def skip_truncated(self) -> int:
        """Continues at the stream's head where the head has passed the position, as after `Truncated`. In segments
        where the position is ahead of the head, nothing is read twice. Returns how many events were never handed out
        and are gone. Raises Closed, StreamNotFound, and InvalidArgument if the reader has another consumer."""
        self._supply.check_free()
        self._astray = True
        start, gone = self._supply.skip_truncated(self.position, as_events=self._as_events)
        self._move_to(start)
        self._astray = False
        return gone

    # closing

    @property
    def at_end(self) -> bool:
        """True if nothing can follow the position: it is the end, or the stream is sealed and read whole."""
        return not self._supply.holds_rows and self._under_way is None and self._source.exhausted

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._supply.closed

    def close(self) -> None:
        """Closes the reader: wakes a consumer that waits for events, and ends an iteration under way. May be called
        again; after Ctrl-C a second call does what is left."""
        if self._ending:
            return
        try:
            self._ending = True
            self._supply.close()
            for exported in self._exports:
                exported.close()
            self._on_close(self)
        except BaseException:
            self._ending = False
            raise

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # the work

    def _enter(self, *, as_events: bool) -> None:
        self._supply.check_free()
        if as_events is self._as_events and not self._astray:
            return
        under_way = self._under_way
        if self._astray or (under_way and length_hint(under_way.left)) or not self._source.serves(as_events=as_events):
            self._begin_anew(as_events=as_events)
        else:
            self._as_events = as_events

    def _continue(self, *, as_events: bool) -> None:
        """Called by an iteration before it takes rows: another iteration may have moved the position since."""
        if as_events is not self._as_events and not self.closed:
            self._enter(as_events=as_events)

    def _begin_anew(self, *, as_events: bool) -> None:
        """Starts reading again from the position, discarding what was pulled already."""
        start = self.position
        self._astray = True
        self._as_events = as_events
        self._move_to(start)
        self._supply.restart(start, as_events=as_events)
        self._astray = False

    def _move_to(self, start: StreamCut) -> None:
        """Sets the position. The events under way are not handed out any more, not even by an iteration that has them."""
        dropped = self._under_way
        self._delivered, self._under_way = start.as_dict(), None
        if dropped is not None:
            deque(dropped.left, maxlen=0)

    def _wait(self, timeout_s: float | None = None, *, look: bool = True) -> StreamDelivery | None:
        """The next rows. If the reader follows and may `look`, waits for them at most `timeout_s` seconds. Returns None if
        there are none or the reader was closed."""
        if self._astray and not self.closed:
            self._begin_anew(as_events=self._as_events)
        self._astray = True
        try:
            delivery = self._supply.take(timeout_s, look=look)
        except Exception:
            self._astray = False  # the source can continue after an error
            raise
        return self._supplied(delivery)

    async def _wait_async(self) -> StreamDelivery | None:
        return self._supplied(await self._supply.take_async())

    def _supplied(self, delivery: StreamDelivery | None) -> StreamDelivery | None:
        if delivery is None:
            if not self.closed and not self._supply.holds_rows:
                # Everything delivered is handed out; events after it were filtered out.
                self._delivered, self._under_way = self._source.positions, None
            self._astray = False
        return delivery

    def _deliver(self, delivery: StreamDelivery, *, whole: bool) -> None:
        """Moves the position past the previous delivery and into the segment of the new one. If `whole`, also past the
        new delivery."""
        if self._under_way is not None:
            before = self._under_way.delivery
            self._delivered[before.segment] = before.rows.stop
            self._under_way = None
        if delivery.before is not None:
            self._delivered = dict(delivery.before)
        if whole:
            self._delivered[delivery.segment] = delivery.rows.stop

    def _exported(self, batches: Iterator[pa.RecordBatch]) -> CStream:
        exported = CStream(self._tasks, batches, lambda: self.closed, endless=self._source.options.follow)
        self._exports.append(exported)
        return exported


class BatchStream:
    """The batches of a reader. Also a stream in Arrow's C interface, for pyarrow, DuckDB and polars. These get Closed
    if a reader with an end is closed before its end, because their result would lack rows."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            self._reader._continue(as_events=False)
            delivery = self._reader._wait()
            if delivery is None:
                return
            yield self._reader._batch(delivery)

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        while True:
            self._reader._continue(as_events=False)
            delivery = await self._reader._wait_async()
            if delivery is None:
                return
            yield self._reader._batch(delivery)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        batches = pa.RecordBatchReader.from_batches(self.schema, self._reader._exported(iter(self)))
        return batches.__arrow_c_stream__(requested_schema)
