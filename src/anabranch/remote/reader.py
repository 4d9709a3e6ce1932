"""The reader of a broker's stream: events or Arrow batches, synchronous or with `async for`, bounded or following."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import repeat
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.core.constant_columns import consecutive, constant
from anabranch.core.display import Displayed
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import Closed, InvalidArgument
from anabranch.model.columns import ADDED, TIME_TYPE, select_columns
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import SegmentId
from anabranch.model.names import StreamName
from anabranch.model.rate import Rate
from anabranch.model.time_kind import TimeKind, time_kind
from anabranch.model.times import to_micros
from anabranch.reading.arrow_export import to_pandas, to_polars
from anabranch.reading.async_bridge import AsyncBridge
from anabranch.reading.bounds import Place
from anabranch.reading.c_stream import CStream
from anabranch.reading.pacing import Pacing
from anabranch.remote.connection import Connection
from anabranch.remote.described import describe
from anabranch.remote.places import place_message
from anabranch.remote.read_call import ReadCall, Received
from anabranch.runtime.ports import Runtime
from anabranch.wire.v1 import anabranch_pb2 as v1

if TYPE_CHECKING:
    import pandas
    import polars


class _EventsUnderWay(NamedTuple):
    received: Received
    left: Iterator[int]
    events: Iterator[Event]


_PAYLOAD: Final = "payload"  # of raw events: their body, whichever columns are asked for


class RemoteReader(Displayed):
    """`anabranch.reading.reader.Reader` through a broker. After a lost connection it continues at the same cut, also at
    another broker, so nothing is lost or repeated. At most about `limits.CONNECTION_BYTES_MAX` are read ahead."""

    def __init__(
        self,
        connection: Connection,
        runtime: Runtime,
        stream: str | StreamName,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        between: tuple[datetime | int | str, datetime | int | str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
        rate: Rate | None = None,
        on_close: Callable[[RemoteReader], None] = lambda reader: None,
        window: Callable[[StreamCut], TimeWindow] = lambda position: TimeWindow(),
    ) -> None:
        """See `Reader`; also raises PermissionDenied, StoreUnavailable."""
        if follow and end is not None:
            raise InvalidArgument("a reader that follows the stream can't have an end: omit one of them")
        if batch_rows < 1:
            raise InvalidArgument(f"expected at least one row per batch, got {batch_rows}")
        time_kind(by)
        self._connection = connection
        self._runtime = runtime
        self._on_close = on_close
        self._window = window
        self._follow = follow
        self._own_names = columns is not None
        info = describe(connection, stream)
        self._info = info
        self._names = select_columns(columns, info.schema.columns)
        rules = runtime.settings.times
        self._command = v1.ReadCommand(
            stream=str(info.name),
            stream_id=info.id,
            start=place_message(start, rules),
            end=None if end is None else place_message(end, rules),
            follow=follow,
            columns=self._received_names(),
            not_before=None if between is None else v1.Place(time_us=to_micros(between[0], rules)),
            before=None if between is None else v1.Place(time_us=to_micros(between[1], rules)),
            by=by,
            batch_rows=min(batch_rows, limits.READ_ROWS_MAX),
            compact=True,
        )
        self._call = ReadCall(connection, runtime, self._command)
        self.schema: pa.Schema = pa.schema([*(self._call.schema.field(name) for name in self._names), *ADDED])
        self._position: Mapping[SegmentId, int] = self._call.position
        self._under_way: _EventsUnderWay | None = None
        self._pacing = Pacing(runtime, rate)
        self._rest: Received | None = None  # received, but held back by the rate
        self._ready: Received | None = None  # received for a coroutine, but not handed out yet
        self._exports: list[CStream] = []
        self._pump = AsyncBridge(runtime.tasks, self._fill, self._wake)
        self._closed = self._ending = False

    def _received_names(self) -> list[str]:
        """The columns, then what events need besides; at least one, since Arrow counts the rows of columns."""
        schema = self._info.schema
        more = [each for each in (schema.key, schema.time) if each is not None and each not in self._names]
        return [*self._names, *more] or schema.columns.names[:1]

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
        """See `Reader.position`."""
        positions = dict(self._position)
        if self._under_way is not None:
            received = self._under_way.received
            done = received.batch.num_rows - length_hint(self._under_way.left)
            if done:
                last = received.first + done - 1 if received.offsets is None else received.offsets[done - 1].as_py()
                complete = done == received.batch.num_rows
                positions = {**received.after, received.segment: received.stop if complete else last + 1}
        return StreamCut.of(self._info.id, positions)

    @property
    def end(self) -> StreamCut | None:
        """See `Reader.end`."""
        return self._call.end

    def time_window(self) -> TimeWindow:
        """See `Reader.time_window`."""
        return self._window(self.position)

    @property
    def rate(self) -> Rate | None:
        """See `Reader.rate`."""
        return self._pacing.rate

    @rate.setter
    def rate(self, rate: Rate | None) -> None:
        self._pacing.change(rate)

    # events

    def __iter__(self) -> Iterator[Event]:
        """See `Reader.__iter__`."""
        self._enter(as_events=True)
        return self._events()

    def __aiter__(self) -> AsyncIterator[Event]:
        """See `Reader.__aiter__`."""
        self._enter(as_events=True)
        return self._events_async()

    def _events(self) -> Iterator[Event]:
        while True:
            if self._under_way is not None:
                yield from self._under_way.events
            received = self._wait()
            if received is None:
                return
            self._hand_out(received)

    async def _events_async(self) -> AsyncIterator[Event]:
        while True:
            if self._under_way is not None:
                for event in self._under_way.events:
                    yield event
            received = await self._wait_async()
            if received is None:
                return
            self._hand_out(received)

    def _hand_out(self, received: Received) -> None:
        self._finish()
        run = EventRun(
            self._info.id,
            self._info.schema,
            received.segment,
            received.batch,
            received.first,
            None if received.offsets is None else received.offsets.to_pylist(),
            received.appended,
            self._names if self._own_names else None,
        )
        left = iter(range(received.batch.num_rows))
        self._under_way = _EventsUnderWay(received, left, map(Event, repeat(run), left))

    # batches

    def batches(self) -> RemoteBatches:
        """See `Reader.batches`."""
        self._enter(as_events=False)
        return RemoteBatches(self)

    def read(self, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next batch; None if none was received within `timeout_s` seconds, or at the end. A reader without `follow`
        waits for the broker however long it takes. Raises Closed."""
        self._enter(as_events=False)
        received = self._wait(timeout_s if self._follow else None)
        return None if received is None else self._batch(received)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """See `Reader.__arrow_c_stream__`."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """See `Reader.to_arrow`."""
        if self._follow:
            raise InvalidArgument("a following reader has no end; use its batches, or open a reader without follow")
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """See `Reader.to_pandas`."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """See `Reader.to_polars`."""
        return to_polars(self.to_arrow())

    def _batch(self, received: Received) -> pa.RecordBatch:
        self._finish()
        count = received.batch.num_rows
        offsets = consecutive(received.first, count) if received.offsets is None else received.offsets
        appended = received.appended
        times = constant(appended, count, TIME_TYPE) if isinstance(appended, int) else appended
        added = [constant(received.segment.packed, count), offsets, times]
        self._position = received.after
        return pa.RecordBatch.from_arrays([*received.batch.columns[: len(self._names)], *added], schema=self.schema)

    # continuing after a truncation

    def skip_truncated(self) -> int:
        """See `Reader.skip_truncated`."""
        if self._closed:
            raise Closed("reader")
        if self._pump.busy:
            raise InvalidArgument("this reader already has a consumer; open another reader")
        self._restart(self.position, skip=True)
        return self._call.skipped

    def _restart(self, position: StreamCut, *, skip: bool = False) -> None:
        self._call.close()
        self._command.start.text = str(position)
        self._command.skip_truncated = skip
        self._call = ReadCall(self._connection, self._runtime, self._command)
        self._under_way, self._ready, self._rest, self._position = None, None, None, self._call.position

    # closing

    @property
    def at_end(self) -> bool:
        """See `Reader.at_end`."""
        return self._ready is None and self._rest is None and self._under_way is None and self._call.ended

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """See `Reader.close`."""
        if self._ending:
            return
        try:
            self._closed = self._ending = True
            self._pump.close()
            self._pacing.wake()
            self._call.close()
            for exported in self._exports:
                exported.close()
            self._on_close(self)
        except BaseException:
            self._ending = False
            raise

    def __enter__(self) -> RemoteReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> RemoteReader:
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
        if as_events and self._info.schema.raw and _PAYLOAD not in self._call.schema.names:
            self._command.columns.append(_PAYLOAD)
            self._restart(self.position)
        under_way = self._under_way
        if under_way is not None and not as_events and length_hint(under_way.left):
            self._restart(self.position)  # the rest of these rows as a batch

    def _finish(self) -> None:
        """Move the position past the events under way."""
        if self._under_way is not None:
            self._position, self._under_way = self._under_way.received.after, None

    def _wait(self, timeout_s: float | None = None) -> Received | None:
        return self._supplied(self._take() or self._pull(timeout_s, lambda: self._closed))

    async def _wait_async(self) -> Received | None:
        if self._ready is None and not self._closed:
            with suppress(Closed):
                await self._pump.call()
        return self._supplied(self._take())

    def _fill(self, interrupted: Callable[[], bool]) -> bool:
        if self._ready is None:
            self._ready = self._pull(None, interrupted)
        return self._ready is not None or not interrupted()

    def _take(self) -> Received | None:
        received, self._ready = self._ready, None
        return None if self._closed else received

    def _pull(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> Received | None:
        clock = self._runtime.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        if not self._pacing.wait(until, interrupted):
            return None
        left = None if until is None else max(0.0, until - clock.monotonic())
        received, self._rest = self._rest or self._receive(left, interrupted), None
        if received is not None and self._pacing.rate is not None:
            received, self._rest = _divided(received, self._pacing.take(received.batch.num_rows, received.batch.nbytes))
        return received

    def _receive(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> Received | None:
        while True:
            found = self._call.next(timeout_s, interrupted)
            if found is None or isinstance(found, Received):
                return found
            self._finish()
            self._position = found

    def _supplied(self, received: Received | None) -> Received | None:
        if received is None and self._rest is None and not self._closed:
            self._finish()
        return received

    def _wake(self) -> None:
        self._pacing.wake()
        with self._call.changed:
            self._call.changed.notify_all()

    def _exported(self, batches: Iterator[pa.RecordBatch]) -> CStream:
        exported = CStream(self._runtime.tasks, batches, lambda: self._closed, endless=self._follow)
        self._exports.append(exported)
        return exported


class RemoteBatches:
    """See `anabranch.reading.reader.BatchStream`."""

    def __init__(self, reader: RemoteReader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (received := self._reader._wait()) is not None:
            yield self._reader._batch(received)

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        while (received := await self._reader._wait_async()) is not None:
            yield self._reader._batch(received)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        batches = pa.RecordBatchReader.from_batches(self.schema, self._reader._exported(iter(self)))
        return batches.__arrow_c_stream__(requested_schema)


def _divided(received: Received, count: int) -> tuple[Received, Received | None]:
    """The first rows of a batch, and the others."""
    batch, offsets, times = received.batch, received.offsets, received.appended
    if count >= batch.num_rows:
        return received, None
    first = received.first + count if offsets is None else offsets[count].as_py()
    stop = first if offsets is None else offsets[count - 1].as_py() + 1
    before, after = (
        received._replace(
            batch=batch.slice(row, length),
            first=begin,
            offsets=None if offsets is None else offsets.slice(row, length),
            appended=times if isinstance(times, int) else times.slice(row, length),
        )
        for begin, row, length in ((received.first, 0, count), (first, count, None))
    )
    return before._replace(stop=stop, after={**received.after, received.segment: stop}), after
