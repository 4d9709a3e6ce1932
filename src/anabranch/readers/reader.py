"""A reader of one stream: as events or as Arrow batches, synchronously or with `async for`, bounded or following."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import repeat
from operator import length_hint
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.core.shared import constant
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import Closed, InvalidArgument
from anabranch.log.read import LogReader, Selection, appended_of, offsets_of
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.columns import ADDED, chosen
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.times import to_micros
from anabranch.readers.flow import Delivery, Flow
from anabranch.readers.place import Place, TimeKind, to_cut
from anabranch.readers.pump import Pump
from anabranch.runtime.ports import Runtime


class _UnderWay(NamedTuple):
    """Events that are being handed out one by one; `left` counts those that are still to come."""

    delivery: Delivery
    left: Iterator[int]
    events: Iterator[Event]


class Reader:
    """Reads one stream from a place on. For one consumer; only `close` may be called from another thread.

    `start` and `end` are HEAD, TAIL, a StreamCut, an EventPointer, a time (datetime, µs or ISO 8601 text; an append
    time, or with `by="event"` an event time), or the text of any of these. `end` is exclusive. Without `end` the reader
    ends at the tail as of its opening, or with `follow` goes on and waits for more, until it is closed or the stream is
    sealed. All events of one key come in the order in which they were appended, across splits and merges too; a
    following reader finds new segments by itself. Segments take turns, so neighbouring events of different keys come
    roughly in the order of their append.

    `columns` are those a batch or a body holds, in this order (None: all as of opening; columns that the stream gains
    later are not seen, and one that is widened is read as it was, as long as values fit: then SchemaMismatch).
    `between=(from, to)` leaves out events whose event time does not lie in `from <= time < to`, and those without one.

    Raises StreamNotFound, Truncated, InvalidArgument and its kinds, EventNotFound for a pointer; while reading also
    Truncated when the position was truncated away (`skip_truncated` goes on then), StreamNotFound when the stream was
    deleted, CorruptBlob and BlobMissing where the store is damaged: then no wrong row has been handed out.
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
        on_close: Callable[[Reader], None] | None = None,
        window: Callable[[StreamCut], TimeWindow] = lambda position: TimeWindow(),
    ) -> None:
        if follow and end is not None:
            raise InvalidArgument("a reader either follows the stream or ends somewhere")
        if batch_rows < 1:
            raise InvalidArgument(f"a batch holds at least one row, not {batch_rows}")
        self._catalog = catalog
        self._logs = logs
        self._tail = tail
        self._clock = runtime.clock
        self._on_close = on_close
        self._window = window
        with catalog.reading() as reading:
            view = load(reading, stream)
        self._info = view.info
        self._names = chosen(columns, view.info.schema.columns)
        self._own_names = columns is not None
        self._rows_max = min(batch_rows, limits.READ_ROWS_MAX)
        self._between = None if between is None else (int(to_micros(between[0])), int(to_micros(between[1])))
        if between is not None and view.info.schema.time is None:
            raise InvalidArgument(f"'{view.info.name}' has no event time to select by")
        self.schema: pa.Schema = pa.schema([*(view.info.schema.columns.field(n) for n in self._names), *ADDED])

        begin = to_cut(catalog, logs, view, start, by=by)
        self._end = None if follow else cuts.tail_cut(view)
        if end is not None:
            self._end = to_cut(catalog, logs, view, end, by=by)
        if self._end is not None:
            cuts.ranges(view, begin, self._end)  # refuses an end before the start
        self._delivered = begin.as_dict()
        self._under_way: _UnderWay | None = None
        self._as_events = False
        self._flow = Flow(catalog, logs, view, start=begin, end=self._end, selection=self._selection())
        self._busy = runtime.tasks.lock()
        self._ready: Delivery | None = None  # pulled for a coroutine, but not handed out yet
        self._astray = False  # what was pulled may not have been handed out: Ctrl-C struck in between
        self._pump = Pump(runtime.tasks, self._fill, tail.notify)
        self._closed = False
        self._ending = False  # somebody closes it, or has closed it

    # what it reads

    @property
    def stream(self) -> StreamName:
        """The stream's name when the reader was opened."""
        return self._info.name

    @property
    def position(self) -> StreamCut:
        """The cut behind the last event or batch handed out: a reader that starts there goes on exactly."""
        positions = dict(self._delivered)
        if self._under_way is not None:
            rows = self._under_way.delivery.rows
            done = rows.batch.num_rows - length_hint(self._under_way.left)
            if done:
                last = rows.first + done - 1 if rows.offsets is None else rows.offsets[done - 1].as_py()
                complete = done == rows.batch.num_rows
                positions[self._under_way.delivery.segment] = rows.stop if complete else last + 1
        return StreamCut.of(self._info.id, positions)

    def time_window(self) -> TimeWindow:
        """What the writers' noted times say of the position: all events behind it have times of at least `lower`. Both bounds
        are None where nothing was noted."""
        return self._window(self.position)

    # events

    def __iter__(self) -> Iterator[Event]:
        """The events from the position on. Raises Closed."""
        self._enter(as_events=True)
        return self._events()

    def __aiter__(self) -> AsyncIterator[Event]:
        """The same for coroutines; the event loop is never blocked. Raises Closed."""
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

    def _hand_out(self, delivery: Delivery) -> None:
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
        # `map` over C iterators makes an event in a tenth of a microsecond; a loop of our own takes thrice as long.
        self._under_way = _UnderWay(delivery, left, map(Event, repeat(run), left))
        self._astray = False

    # batches

    def batches(self) -> Batches:
        """The rows from the position on as `pa.RecordBatch`es of `Reader.schema`: the columns, then `_segment` (int64,
        `SegmentId.packed`), `_offset` (int64) and `_appended` (timestamp[us, UTC]). Each holds rows of one segment, in
        offset order. To be iterated with `for` or `async for`. Raises Closed."""
        self._enter(as_events=False)
        return Batches(self)

    def read(self, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next batch; None if there is none within `timeout_s` seconds or at the end. Raises Closed."""
        self._enter(as_events=False)
        delivery = self._wait(timeout_s)
        return None if delivery is None else self._batch(delivery)

    def _batch(self, delivery: Delivery) -> pa.RecordBatch:
        rows, shared = delivery.rows, len(self._delivered) > 1
        segment = constant(delivery.segment.packed, rows.batch.num_rows)
        added = [segment, offsets_of(rows, shared=shared), appended_of(rows, shared=shared)]
        batch = pa.RecordBatch.from_arrays([*rows.batch.columns[: len(self._names)], *added], schema=self.schema)
        self._deliver(delivery, whole=True)
        self._astray = False
        return batch

    # going on behind what is gone

    def skip_truncated(self) -> int:
        """Go on at the stream's head, where that has passed the position, as after `Truncated`. In segments where the
        position is ahead of it, nothing is read twice. Returns how many events were never handed out and are gone.
        Raises Closed, StreamNotFound, and InvalidArgument where the reader has another consumer."""
        if self._closed:
            raise Closed("reader")
        if self._pump.busy:
            raise InvalidArgument("a reader has one consumer at a time; open another reader")
        with self._busy:
            with self._catalog.reading() as reading:
                view = load(reading, self._info.id)
            position = self.position
            goal = cuts.furthest(view, position, cuts.head_cut(view))
            self._flow.close()
            self._under_way, self._ready, self._delivered = None, None, goal.as_dict()
            self._flow = Flow(self._catalog, self._logs, view, start=goal, end=self._end, selection=self._selection())
            self._astray = False
            return cuts.distance(view, position, goal)

    # closing

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """End the reader: whoever waits for its events is woken, and an iteration under way ends. A second close is
        harmless; behind Ctrl-C it does what is left."""
        if self._ending:
            return
        try:
            self._closed = self._ending = True
            self._pump.close()
            self._tail.notify()
            self._tidy()
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
            raise InvalidArgument("a reader has one consumer at a time; open another reader")
        if as_events is self._as_events and not self._astray:
            return
        with self._busy:
            self._begin_anew(as_events=as_events)  # the other kind needs other columns

    def _begin_anew(self, *, as_events: bool) -> None:
        """Read on from the position, whatever was pulled already."""
        start, view = self.position, self._flow.view
        self._flow.close()
        self._as_events, self._under_way, self._ready = as_events, None, None
        self._delivered = start.as_dict()
        self._flow = Flow(self._catalog, self._logs, view, start=start, end=self._end, selection=self._selection())
        self._astray = False

    def _selection(self) -> Selection:
        schema = self._info.schema
        names = list(self._names)
        if self._as_events:  # an event knows its key and time, whatever its body holds
            wanted = [schema.key, schema.time, "payload" if schema.raw else None]
            names += [name for name in wanted if name is not None and name not in names]
        # A batch without columns has no rows to count, so there is always one, which is left out again in the end.
        names = names or [schema.time or schema.key or schema.columns.names[0]]
        columns = pa.schema([schema.columns.field(name) for name in names])
        return Selection(columns, self._rows_max, schema.time, self._between)

    def _wait(self, timeout_s: float | None = None) -> Delivery | None:
        """The next rows, waiting for them at most `timeout_s` seconds if the reader follows; None where there are none
        or the reader was closed."""
        try:
            with self._busy:
                if self._astray:
                    self._begin_anew(as_events=self._as_events)
                self._astray = True
                return self._supplied(self._take() or self._wait_alone(timeout_s, lambda: self._closed))
        except Exception:
            self._astray = False  # the flow knows how to go on behind an error
            raise
        finally:
            self._tidy()

    async def _wait_async(self) -> Delivery | None:
        if self._ready is None and not self._closed:
            with suppress(Closed):
                await self._pump.call()
        return self._supplied(self._take())

    def _fill(self, interrupted: Callable[[], bool]) -> bool:
        """Have the next rows ready. False if it was interrupted; True without rows is the end."""
        try:
            with self._busy:
                if self._ready is None:
                    self._ready = self._wait_alone(None, interrupted)
                return self._ready is not None or not interrupted()
        finally:
            self._tidy()

    def _take(self) -> Delivery | None:
        delivery, self._ready = self._ready, None
        return None if self._closed else delivery

    def _wait_alone(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> Delivery | None:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while not interrupted():
            delivery = self._flow.pull()
            if delivery is not None:
                return delivery
            if self._flow.exhausted:
                return None
            seen = self._tail.seen()
            if self._flow.refresh():
                continue
            left = None if deadline is None else deadline - self._clock.monotonic()
            if interrupted() or self._flow.exhausted or (left is not None and left <= 0):
                return None
            self._tail.wait(seen, left)
        return None

    def _supplied(self, delivery: Delivery | None) -> Delivery | None:
        if delivery is None:
            if not self._closed:
                # All that was delivered is handed out, and what lies behind it was left out.
                self._delivered, self._under_way = self._flow.positions, None
            self._astray = False
        return delivery

    def _deliver(self, delivery: Delivery, *, whole: bool) -> None:
        """Move the position: behind what was under way, into the delivery's segment, and behind the delivery."""
        if self._under_way is not None:
            before = self._under_way.delivery
            self._delivered[before.segment] = before.rows.stop
            self._under_way = None
        if delivery.skipped or delivery.segment not in self._delivered:
            self._delivered = cuts.settle(delivery.view, {**self._delivered, **delivery.skipped})
        if whole:
            self._delivered[delivery.segment] = delivery.rows.stop

    def _tidy(self) -> None:
        # Whoever is at work when the reader is closed tidies up behind itself; a signal handler must not wait for it.
        if self._closed and self._busy.acquire(blocking=False):
            try:
                self._flow.close()
            finally:
                self._busy.release()


class Batches:
    """The batches of a reader. Also a stream in Arrow's C interface, so that pyarrow, DuckDB and polars can take it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        """That of every batch."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (delivery := self._reader._wait()) is not None:
            yield self._reader._batch(delivery)

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        while (delivery := await self._reader._wait_async()) is not None:
            yield self._reader._batch(delivery)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        batches = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return batches.__arrow_c_stream__(requested_schema)
