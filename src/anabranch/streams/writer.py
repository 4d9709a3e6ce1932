"""A writer: takes events, routes them to the open segments, and sees each through to its acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.routing import key_text
from anabranch.core.rows import RowChecker, conform
from anabranch.errors import AnabranchError, Closed, InvalidArgument, SchemaMismatch, TooLarge
from anabranch.log.appender import Appender
from anabranch.log.commit import WriterName
from anabranch.model.ids import StreamId, WriterId
from anabranch.model.times import to_micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.streams.ack import Ack, BatchAck, ChunkState
from anabranch.streams.chunk import Piece, RawChunk, new_chunk
from anabranch.streams.courier import Courier
from anabranch.streams.routes import points_of

_CHUNK_BYTES_MAX = 4 * limits.MIB  # single events are made a batch at the latest when they weigh so much
_ROW_BYTES = 64  # what a row is taken to weigh beside its payload, before its batch is built


class Writer:
    """Appends events to one stream. Thread-safe; events of one thread keep their order per key.

    A write is accepted when the call returns, and durable when its acknowledgement says so; `flush` waits for all.
    Splits, merges and lost answers are dealt with inside. A writer made with a `writer_id` continues where the last one of
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
    ) -> None:
        self._appender = appender
        self._runtime = runtime
        self._settings = runtime.settings
        self._stream = stream
        self._on_close = on_close
        self._lock = runtime.tasks.lock()
        self._closed = False
        self._name = WriterName(WriterId(writer_id or token(runtime.ids)))
        self._courier = Courier(
            appender, catalog, runtime, stream, self._name, named=writer_id is not None, fence=fence, drain=self._drain
        )
        self._schema = self._courier.routes.info.schema
        self._checker = None if self._schema.raw else RowChecker(self._schema)
        self._chunk = new_chunk(self._schema, ChunkState(stream, appender))

    @property
    def id(self) -> str:
        """The writer's name, by which logs remember its progress."""
        return self._name.id

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
        ConditionFailed. Raises SchemaMismatch, InvalidKey, TooLarge, StreamSealed, Closed.
        """
        size = self._check_raw(event) if self._checker is None else self._check_typed(event, key, time)
        if self._checker is None:
            if type(event) is not bytes:
                event = event.encode() if isinstance(event, str) else bytes(event)
            if key is not None and type(key) is not str:
                key = key_text(key)
            if time is not None:
                time = to_micros(time)
        if expected is not None:
            return self._write_expecting(event, key, time, expected)
        with self._lock:
            if self._closed:
                raise Closed("writer")
            chunk = self._chunk
            if isinstance(chunk, RawChunk):
                row = len(chunk.payloads)
                if time is not None and chunk.times is None:
                    chunk.times = [None] * row
                chunk.payloads.append(event)
                chunk.keys.append(key)
                if chunk.times is not None:
                    chunk.times.append(time)  # type: ignore[arg-type]
            else:
                row = len(chunk.rows)
                chunk.rows.append(event)
            self._courier.gathered_bytes += size
        if row == 0:
            self._announce(chunk.state)
        elif self._courier.gathered_bytes > _CHUNK_BYTES_MAX:
            self._hand_over()
        return Ack(chunk.state, row)

    def write_batch(self, data: Any, *, atomic: bool = False, expected: int | None = None) -> BatchAck:
        """Accept a batch: anything with `__arrow_c_stream__` (Arrow, pandas, polars …) whose columns are the stream's.

        Missing columns are null. With `atomic` all of it appears at once or not at all; it must then fit one commit's
        memory, at most 1 GiB. `expected` as in `write`; all events must go to one segment then. Raises as `write`.
        """
        table = conform(data, self._schema)
        self._check_sizes(table)
        state = ChunkState(self._stream, self._appender)
        state.total = table.num_rows
        pieces = self._pieces(table, state, whole=atomic or expected is not None)
        for piece in pieces:
            piece.atomic, piece.expected = atomic, expected
            self._accept([piece])
            self._announce(state)
        return BatchAck(state)

    def flush(self) -> None:
        """Return once every event accepted so far is durable. Raises the first refusal since the last flush."""
        for state in self._courier.outstanding():
            state.wait(None)
        error, self._courier.refusal = self._courier.refusal, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Flush, then take no more. A second call is harmless. Raises as `flush`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.flush()
        finally:
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

    def _check_raw(self, event: Any) -> int:
        if not isinstance(event, (bytes, str, bytearray, memoryview)):
            raise SchemaMismatch(f"an event of a raw stream is bytes or text, not {type(event).__name__}")
        size = len(event)
        if size > self._settings.event_bytes_max:
            raise TooLarge("an event", size, self._settings.event_bytes_max)
        return size + _ROW_BYTES

    def _check_typed(self, event: Any, key: Any, time: Any) -> int:
        assert self._checker is not None
        if key is not None or time is not None:
            raise InvalidArgument("a typed stream takes key and time from the event's columns")
        self._checker.check(event)
        return _ROW_BYTES * (1 + len(event))

    def _check_sizes(self, table: pa.Table) -> None:
        if table.nbytes > limits.BATCH_BYTES_MAX:
            raise TooLarge("a batch", table.nbytes, limits.BATCH_BYTES_MAX)
        if table.nbytes > self._settings.event_bytes_max:
            for field in table.schema:
                if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
                    largest = pc.max(pc.binary_length(table.column(field.name))).as_py() or 0
                    if largest > self._settings.event_bytes_max:
                        raise TooLarge(f"an event's column '{field.name}'", largest, self._settings.event_bytes_max)

    def _pieces(self, table: pa.Table, state: ChunkState, *, whole: bool) -> list[Piece]:
        """The table as pieces of at most about one commit; their points are computed here, in the caller's thread."""
        if table.num_rows == 0:
            return []
        batches = table.combine_chunks().to_batches()
        if whole and len(batches) > 1:
            raise TooLarge("an atomic batch", table.nbytes, limits.BATCH_BYTES_MAX)
        pieces, begin = [], 0
        for batch in batches:
            parts = 1 if whole else max(1, -(-batch.nbytes // self._settings.commit_bytes_max))
            step = -(-batch.num_rows // parts)
            for start in range(0, batch.num_rows, step):
                part = batch.slice(start, step)
                rows = np.arange(begin, begin + part.num_rows)
                points = points_of(part, self._schema, self._courier.spread(part.num_rows))
                pieces.append(Piece(part, [(state, rows)], points))
                begin += part.num_rows
        return pieces

    def _write_expecting(self, event: Any, key: Any, time: Any, expected: int) -> Ack:
        chunk = new_chunk(self._schema, ChunkState(self._stream, self._appender))
        if isinstance(chunk, RawChunk):
            chunk.payloads, chunk.keys, chunk.times = [event], [key], [time]
        else:
            chunk.rows = [event]
        pieces = chunk.close(self._runtime.clock.now())
        for piece in pieces:
            piece.expected = expected
        self._accept(pieces)
        self._announce(chunk.state)
        return Ack(chunk.state, 0)

    def _announce(self, state: ChunkState) -> None:
        """Count the state among what flush waits for, and have the appender come; wait where too much is pending."""
        if self._courier.dead is not None:
            raise self._courier.dead
        self._courier.watch(state)
        self._appender.offer(self._courier)
        most = self._settings.pending_bytes_max
        if self._courier.unsettled_bytes > most:
            self._appender.wait(lambda: self._courier.unsettled_bytes <= most // 2)

    def _accept(self, pieces: list[Piece]) -> None:
        """Queue the pieces behind the rows gathered so far."""
        with self._lock:
            if self._closed:
                raise Closed("writer")
            for piece in [*self._close_chunk(), *pieces]:
                self._courier.enqueue(piece)

    def _hand_over(self) -> None:
        """Close a chunk that is big enough, in the writing thread, and go on with a fresh one."""
        with self._lock:
            pieces = self._close_chunk()
            for piece in pieces:
                self._courier.enqueue(piece)
        if pieces:
            self._announce(pieces[0].origins[0][0])

    def _drain(self) -> None:
        # Queued under the writer's lock: a batch written meanwhile must not overtake these rows.
        with self._lock:
            for piece in self._close_chunk():
                self._courier.enqueue(piece)

    def _close_chunk(self) -> list[Piece]:
        """The rows gathered so far as a piece. Needs the lock."""
        chunk = self._chunk
        if not len(chunk):
            return []
        self._chunk = new_chunk(self._schema, ChunkState(self._stream, self._appender))
        self._courier.gathered_bytes = 0
        return chunk.close(self._runtime.clock.now())
