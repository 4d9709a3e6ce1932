"""A writer: takes events, routes them to the open segments, and sees each through to its acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.routing import check_key, key_text
from anabranch.core.rows import RowChecker, conform, payload_view, table_of
from anabranch.core.sizes import Run, oversized, runs
from anabranch.errors import (
    AnabranchError,
    AppendRefused,
    Closed,
    InvalidArgument,
    SchemaMismatch,
    StoreUnavailable,
    StreamNotFound,
    TooLarge,
)
from anabranch.log.appender import Appender
from anabranch.log.commit import WriterName
from anabranch.model.ids import Micros, StreamId, WriterId
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_micros
from anabranch.runtime.ids import token
from anabranch.runtime.interrupts import Undisturbed
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.streams.ack import Ack, BatchAck, ChunkState
from anabranch.streams.chunk import Chunk, Piece, RawChunk, new_chunk
from anabranch.streams.courier import Courier
from anabranch.streams.large import LargeEvents
from anabranch.streams.routes import points_of
from anabranch.streams.standing import Standing

_CHUNK_BYTES_MAX = 4 * limits.MIB  # single events are made a batch at the latest when they weigh so much
_ROW_BYTES = 64  # what a row is taken to weigh beside its payload, before its batch is built


class Writer:
    """Appends events to one stream. Thread-safe; events of one thread keep their order per key.

    A write is accepted when the call returns, and durable when its acknowledgement says so; `flush` waits for all.
    Splits, merges and lost answers are dealt with inside, and so are columns that the stream gained: they are learnt of when
    they are first written. A writer made with a `writer_id` continues where the last one of
    that name stopped, and fences it off. `fence` guards every append with a number at least the stream's own.
    """

    def __init__(
        self,
        appender: Appender,
        catalog: Catalog,
        runtime: Runtime,
        stream: StreamId,
        *,
        writer_id: str | None = None,
        fence: int | None = None,
        on_close: Callable[[Writer], None] | None = None,
        note: Callable[[StreamId, str, Micros | None], None] | None = None,
        note_time_s: float | None = None,
    ) -> None:
        """`note` is told the times that the writer notes, and None when it ends. `note_time_s`: see `Store.writer`."""
        if note_time_s is not None and note_time_s <= 0:
            raise InvalidArgument(f"times are noted some seconds apart, not {note_time_s}")
        self._appender = appender
        self._runtime = runtime
        self._settings = runtime.settings
        self._stream = stream
        self._on_close = on_close
        self._lock = runtime.tasks.lock()
        self._closed = False
        self._ending = False  # somebody closes it, or has closed it
        self._name = WriterName(WriterId(writer_id or token(runtime.ids)))
        standing = Standing(catalog, runtime, stream, self._name, named=writer_id is not None)
        self._courier = Courier(appender, standing, runtime, fence=fence, drain=self._drain)
        self._learning = runtime.tasks.lock()
        self._schema: StreamSchema
        self._checker: RowChecker | None
        self._text_key: str | None
        self._chunk: Chunk
        self._adopt(self._courier.schema)
        self._usual_bytes_max = min(self._settings.event_bytes_max, self._settings.large_event_bytes_max)
        self._large = LargeEvents(self._courier, appender, self._name.id, runtime.tasks.lock())
        self._note = note
        self._noted = False
        self._noting: Periodic | None = None
        if note_time_s is not None:
            self._noting = Periodic(runtime, "noting", note_time_s, lambda: self.note_time(runtime.clock.now()))
            self._noting.start()

    @property
    def id(self) -> str:
        """The writer's name, by which logs remember its progress."""
        return self._name.id

    @property
    def stream_id(self) -> StreamId:
        """The stream that it writes to, whatever that is called by now."""
        return self._stream

    # accepting events

    def write(
        self,
        event: Any,
        *,
        key: Any = None,
        time: datetime | int | str | None = None,
        expected: int | None = None,
    ) -> Ack:
        """Accept one event: bytes or text for a raw stream (with its `key`, and its `time`, by default now), else a
        mapping of columns. Blocks while too much is pending.

        With `expected` the event is appended only if its segment holds exactly that many events, else
        ConditionFailed. An event beyond `Settings.event_bytes_max` is one event like any other, and its call blocks until
        its bytes are durable. Raises SchemaMismatch, InvalidKey, TooLarge, StreamSealed, Closed.
        """
        if self._checker is None:
            if type(event) is not bytes:
                event = payload_view(event, self._settings.event_bytes_max)
            size, weight = len(event), _ROW_BYTES
            if key is not None:
                if type(key) is not str:
                    key = key_text(key)
                check_key(key)
            if time is not None:
                time = to_micros(time)
        else:
            event = self._checked(event, key, time)
            size, weight = self._checker.bytes_of(event), _ROW_BYTES * (1 + len(event))
        if size > self._usual_bytes_max or expected is not None:
            return self._write_alone(event, key, time, expected, size)
        with self._lock:
            self._alive()
            chunk = self._chunk
            row = len(chunk)
            try:
                if isinstance(chunk, RawChunk):
                    if time is not None and chunk.times is None:
                        chunk.times = [None] * row
                    chunk.payloads.append(event)
                    chunk.keys.append(key)
                    if chunk.times is not None:
                        chunk.times.append(time)  # type: ignore[arg-type]
                else:
                    chunk.rows.append(event)
            except BaseException:  # Ctrl-C between the columns
                chunk.cut(row)
                raise
            self._courier.gathered_bytes += size + weight
        if not chunk.offered:
            self._offer()
            chunk.offered = True
        elif self._courier.gathered_bytes > _CHUNK_BYTES_MAX:
            self._hand_over()
        return Ack(chunk.state, row)

    def write_batch(self, data: Any, *, atomic: bool = False, expected: int | None = None) -> BatchAck:
        """Accept a batch: anything with `__arrow_c_stream__` (Arrow, pandas, polars …) whose columns are the stream's.

        Missing columns are null. With `atomic` all of it appears at once or not at all; it must then fit one commit's
        memory, at most 1 GiB. `expected` as in `write`; all events must go to one segment then. Raises as `write`.
        """
        self._alive()
        table = self._conformed(table_of(data))
        self._check_sizes(table)
        state = ChunkState(self._stream, self._appender)
        state.total = table.num_rows
        pieces = deque(self._pieces(table, state, whole=atomic or expected is not None))
        for piece in pieces:
            piece.atomic, piece.expected = atomic, expected
        count = len(pieces)
        try:
            while pieces:
                with self._large.before(pieces[0]) as durable:
                    if not durable:
                        pieces.popleft()
                        continue
                    self._accept(pieces, 1, state, begun=len(pieces) < count)
                    self._offer()
        except BaseException:
            if len(pieces) < count:  # Ctrl-C, perhaps while too much was pending: flush must not wait for the rest
                self._courier.abandon(pieces, AppendRefused("the call that wrote this batch was interrupted"))
            raise
        return BatchAck(state)

    def flush(self) -> None:
        """Return once every event accepted so far is durable. Raises the first refusal since the last flush."""
        self._settle()
        with Undisturbed():  # Ctrl-C must not take the place of what nobody was told yet
            error, self._courier.refusal = self._courier.refusal, None
            if error is not None:
                raise error

    def _settle(self) -> None:
        """Wait until every event accepted so far has landed or was refused."""
        with self._lock:
            states = self._courier.outstanding()
            if len(self._chunk):
                states.append(self._chunk.state)
            if self._courier.pending_bytes:  # Ctrl-C may have struck where it was accepted and not yet offered
                self._appender.again(self._courier)
        for state in states:
            state.wait(None)

    def note_time(self, time: datetime | int | str) -> None:
        """Say that what this writer writes from now on is not older than `time`, which advances the stream's watermark once
        all writers have said so; see `Store.watermark`. Waits until what was accepted before is durable; a refusal is
        raised by `flush`, not here. Durable when it returns. Raises InvalidArgument for a time before the last one."""
        moment = to_micros(time)
        self._alive()
        if self._note is None:
            raise InvalidArgument("this writer can't note times: take one of Store.writer")
        self._settle()
        self._note(self._stream, self.id, moment)
        self._noted = True

    def close(self) -> None:
        """Flush, then take no more. A second call is harmless; behind Ctrl-C it does what is left. Raises as `flush`."""
        try:
            with self._lock:
                if self._ending:
                    return
                self._closed = self._ending = True
            self._end()
        except AnabranchError:
            raise
        except BaseException:
            self._ending = False
            raise

    def _end(self) -> None:
        try:
            if self._noting is not None:
                self._noting.close()
            self.flush()
            if self._noted and self._note is not None:
                with suppress(StreamNotFound):  # it was deleted, and with it whoever waits for this writer
                    self._note(self._stream, self.id, None)
        except AnabranchError:
            if self._on_close is not None:
                self._on_close(self)
            raise
        if self._on_close is not None:
            self._on_close(self)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except AnabranchError:
            if error is None:
                raise

    def _checked(self, event: Any, key: Any, time: Any) -> dict[str, Any]:
        """A typed event as a mapping of our own: the caller may go on to use theirs for the next one."""
        if key is not None or time is not None:
            raise InvalidArgument("a typed stream takes key and time from the event's columns")
        schema, checker = self._schema, self._checker
        assert checker is not None, "a typed stream has one"
        try:
            checker.check(event)
        except SchemaMismatch:
            if not self._learn(schema):
                raise
            self._checker.check(event)  # type: ignore[union-attr] # a stream stays typed
        if self._text_key is not None and (text := event.get(self._text_key)) is not None:
            check_key(text)
        return dict(event)

    def _conformed(self, table: pa.Table) -> pa.Table:
        schema = self._schema
        try:
            return conform(table, schema)
        except SchemaMismatch:
            if not self._learn(schema):
                raise
            return conform(table, self._schema)

    def _learn(self, known: StreamSchema) -> bool:
        """Something does not fit the `known` schema: go on with the columns that the stream has by now. False where these
        are the known ones."""
        with self._learning:
            if self._schema is not known:
                return True  # another thread was here
            if known.raw or not self._courier.learn():
                return False
            with Undisturbed(), self._lock:
                self._close_chunk()
                self._adopt(self._courier.schema)
        self._offer()
        return True

    def _adopt(self, schema: StreamSchema) -> None:
        self._checker = None if schema.raw else RowChecker(schema)
        self._text_key = _text_key(schema)
        self._chunk = new_chunk(schema, ChunkState(self._stream, self._appender))
        # Last: who sees this one, and something that does not fit all the same, is not told to look again.
        self._schema = schema

    def _check_sizes(self, table: pa.Table) -> None:
        if table.nbytes > limits.BATCH_BYTES_MAX:
            raise TooLarge("a batch", table.nbytes, limits.BATCH_BYTES_MAX)
        if (large := oversized(table, self._settings.large_event_bytes_max)) is not None:
            raise large

    def _pieces(self, table: pa.Table, state: ChunkState, *, whole: bool) -> list[Piece]:
        """The table as pieces of at most about one commit, large events alone; their points are computed here, in the
        caller's thread."""
        if table.num_rows == 0:
            return []
        batches = table.combine_chunks().to_batches()
        if whole and len(batches) > 1:
            raise TooLarge("an atomic batch", table.nbytes, limits.BATCH_BYTES_MAX)
        pieces, begin = [], 0
        for batch in batches:
            for start, stop, large in self._cut(batch, whole=whole):
                part = batch.slice(start, stop - start)
                rows = np.arange(begin, begin + part.num_rows)
                points = points_of(part, self._schema, self._courier.spread(part.num_rows))
                pieces.append(Piece(part, [(state, rows)], points, large=large))
                begin += part.num_rows
        return pieces

    def _cut(self, batch: pa.RecordBatch, *, whole: bool) -> Iterator[Run]:
        """Where a batch is cut. One that must stay whole is not, so its large events share its commit."""
        for run in runs(pa.Table.from_batches([batch]), self._settings.event_bytes_max):
            if whole:
                yield Run(0, batch.num_rows, run.large and batch.num_rows == 1)
                return
            part = batch.slice(run.start, run.stop - run.start)
            parts = 1 if run.large else max(1, -(-part.nbytes // self._settings.commit_bytes_max))
            step = -(-part.num_rows // parts)
            for start in range(run.start, run.stop, step):
                yield Run(start, min(start + step, run.stop), run.large)

    def _write_alone(self, event: Any, key: Any, time: Any, expected: int | None, size: int) -> Ack:
        """A conditional event, or a large one."""
        if size > self._settings.large_event_bytes_max:
            raise TooLarge("an event", size, self._settings.large_event_bytes_max)
        self._alive()
        chunk = new_chunk(self._schema, ChunkState(self._stream, self._appender))
        if isinstance(chunk, RawChunk):
            chunk.payloads, chunk.keys, chunk.times = [event], [key], [time]
        else:
            chunk.rows = [event]
        pieces = deque(chunk.close(self._runtime.clock.now()))
        self._courier.note(chunk.state.error)
        for piece in list(pieces):
            piece.expected, piece.large = expected, size > self._settings.event_bytes_max
            with self._large.before(piece) as durable:
                if durable:
                    self._accept(pieces, 1, chunk.state)
                    self._offer()
        return Ack(chunk.state, 0)

    def _alive(self) -> None:
        if self._closed:
            raise Closed("writer")
        if self._courier.dead is not None:
            raise self._courier.dead.with_traceback(None)  # else each raising of it would add to its traceback

    def _offer(self) -> None:
        """Have the appender come; wait where too much is pending."""
        self._appender.offer(self._courier)
        most = self._settings.pending_bytes_max or limits.PENDING_BYTES_MAX
        if self._courier.unsettled_bytes > most:
            self._appender.wait(lambda: self._courier.unsettled_bytes <= most // 2)

    def _accept(self, pieces: deque[Piece], count: int, state: ChunkState, *, begun: bool = False) -> None:
        """Queue the first `count` pieces behind the rows gathered so far. A batch that has `begun` is accepted whole,
        even where the writer is closed meanwhile."""
        with Undisturbed(), self._lock:
            if not begun:
                self._alive()
            self._close_chunk()
            self._courier.enqueue([pieces.popleft() for _ in range(count)], state)

    def _hand_over(self) -> None:
        """Close a chunk that is big enough, in the writing thread, and go on with a fresh one."""
        with Undisturbed(), self._lock:
            self._close_chunk()
        self._offer()

    def _drain(self) -> None:
        # Queued under the writer's lock: a batch written meanwhile must not overtake these rows.
        with self._lock:
            self._close_chunk()

    def _close_chunk(self) -> None:
        """Queue the rows gathered so far. Needs the lock."""
        chunk = self._chunk
        if len(chunk):
            self._chunk = new_chunk(self._schema, ChunkState(self._stream, self._appender))
            self._courier.gathered_bytes = 0
            try:
                pieces = chunk.close(self._runtime.clock.now())
            except Exception as exc:  # no memory, say: whose events these are must hear of it
                chunk.state.give_up(len(chunk), StoreUnavailable(f"the append failed: {exc!r}"))
                pieces = []
            self._courier.note(chunk.state.error)  # that of a row which no column took
            self._courier.enqueue(pieces, chunk.state)


def _text_key(schema: StreamSchema) -> str | None:
    """The column whose text is the routing key, if it is text."""
    return schema.key if schema.key is not None and pa.types.is_string(schema.columns.field(schema.key).type) else None
