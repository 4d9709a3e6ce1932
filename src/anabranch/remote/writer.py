"""The writer of a broker's stream: accepts events, and has them appended exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.core.byte_stream import became_bytes, only_bytes
from anabranch.core.closeable import closed_on_error
from anabranch.core.event_sizes import size_runs
from anabranch.core.python_rows import payload_bytes, to_table
from anabranch.core.raw_event import RawEvent
from anabranch.core.routing import check_key, check_keys, key_text
from anabranch.errors import (
    AnabranchError,
    Closed,
    Fenced,
    InvalidArgument,
    StoreUnavailable,
    StreamSealed,
    TooLarge,
)
from anabranch.model.amounts import check_number
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.producer import check_producer_name, unnamed_producer
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_micros
from anabranch.remote.append_call import SentBatch
from anabranch.remote.append_queue import AppendQueue
from anabranch.remote.connection import Connection
from anabranch.remote.stream_description import describe
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.writing.acknowledgement import Ack, Acknowledgement, BatchAck, Rows
from anabranch.writing.chunk import RawChunk
from anabranch.writing.event_writer import ROW_BYTES, EventWriter, check_note_time, checked_expected
from anabranch.writing.table_batches import check_sizes


class RemoteWriter(EventWriter):
    """`anabranch.writing.writer.Writer` through a broker. Thread-safe.

    Every batch carries a number of the writer's producer, so a batch that is sent again after a lost connection, to the
    same broker or another one, is appended once. How a writer is opened changes this:

    - `writer_id` or `producer`: continues where the last writer of that name stopped, and fences it off.
    - `fence`: has no producer. An append whose answer is lost is refused with AppendUncertain.
    - `byte_fence`: the fence of a byte stream's claim. The conditions of its appends serve as their numbers.

    An append with a condition (`expected`) has no number either: if its answer is lost, it is refused with
    AppendUncertain. Such a call returns once it is answered, unless the writer has a `fence`. A writer with a `writer_id`
    or a `producer` refuses conditions.
    """

    def __init__(
        self,
        connection: Connection,
        runtime: Runtime,
        stream: str | StreamName,
        *,
        writer_id: str | None = None,
        producer: str | None = None,
        fence: int | None = None,
        byte_fence: int | None = None,
        note_time_s: float | None = None,
        on_close: Callable[[RemoteWriter], None] = lambda writer: None,
        end_times: Callable[[StreamId, str], object] = lambda stream, name: None,
    ) -> None:
        """`end_times` notes that watermarks need no longer wait for this writer of a stream. Raises StreamNotFound,
        StreamSealed, PermissionDenied, StoreUnavailable."""
        check_note_time(note_time_s)
        if [writer_id, producer, fence].count(None) < 2:
            raise InvalidArgument("pass only one of writer_id=, producer= and fence=")
        if fence is not None:
            fence = check_number("fence", fence)
        named = writer_id if producer is None else producer
        if named is not None:
            check_producer_name(named, "writer_id" if producer is None else "a producer's name")
        described = describe(connection, stream)
        if described.sealed:
            raise StreamSealed(str(described.name))
        if described.byte_stream and byte_fence is None:
            raise only_bytes(described.name)
        super().__init__(
            runtime,
            described.id,
            described.schema,
            ident=named or unnamed_producer(token(runtime.ids)),
            name=str(described.name),
            numbered=producer is not None,
            waiter=None,
            on_close=on_close,
        )
        self._connection = connection
        self._times_ended = end_times
        self._named = named is not None
        command = v1.AppendCommand(stream=self._stream_name, stream_id=self._stream)
        if byte_fence is not None:
            command.byte_fence = byte_fence
        elif fence is not None:
            command.fence = fence
        else:
            command.producer = self._id
        self._unconditional = command.HasField("producer")
        # A larger event is sent alone, so that it is large to the broker too.
        self._small_bytes_max = min(
            *(self._settings.event_bytes_max, self._settings.large_event_bytes_max, limits.REMOTE_CHUNK_BYTES_MAX)
        )
        self._queue = AppendQueue(
            connection, runtime, command, self._refusals, named=self._named, each_numbered=self._numbered
        )
        self._queue.gathered, self._queue.close_chunk = lambda: self._buffer.bytes, self._close_chunk
        self._queue.explained = self._explained
        self._conditional: AppendQueue | None = None
        if self._named:
            with closed_on_error(self._queue):
                self._queue.claim(self._schema.columns)
        self._start_noting(note_time_s)

    @property
    def next_number(self) -> int:
        """See `Writer.next_number`."""
        with self._buffer.lock:
            return self._queue.next_number

    # accepting events

    def write(
        self,
        event: Any,
        *,
        key: Any = None,
        time: datetime | int | str | None = None,
        expected: int | None = None,
    ) -> Ack:
        """See `Writer.write`."""
        if self._checker is None:
            if type(event) is not bytes:
                event = payload_bytes(event)  # a copy: it is sent after the call has returned
            size, weight = len(event), ROW_BYTES
            if key is not None:
                if type(key) is not str:
                    key = key_text(key)
                check_key(key)
            if time is not None:
                time = to_micros(time, self._times)
        else:
            event = self._to_mapping(event, key, time)
            size, weight = self._checker.bytes_of(event), ROW_BYTES * (1 + len(event))
        if size > self._small_bytes_max or expected is not None or self._numbered:
            return self._write_alone(event, key, time, expected, size)
        buffer = self._buffer
        with buffer.lock:
            if self._closed or self._queue.fatal is not None:
                self._require_open()
            chunk = buffer.chunk
            row = len(chunk)
            if isinstance(chunk, RawChunk):
                chunk.add(event, key, time)  # type: ignore[arg-type]
            else:
                chunk.rows.append(event)
            before, after = buffer.bytes, buffer.bytes + size + weight
            buffer.bytes = after
        if not before or before < limits.REMOTE_CHUNK_BYTES <= after:
            self._queue.wake()
        elif after > limits.REMOTE_CHUNK_BYTES_MAX:
            self._close_chunk()
            self._queue.wait_for_room()
        return Ack(chunk.acknowledgement, row)

    def write_batch(self, data: Any, *, atomic: bool = False, expected: int | None = None) -> BatchAck:
        """See `Writer.write_batch`."""
        self._require_open()
        expected = checked_expected(expected)
        table = self._to_stored(to_table(data))
        check_sizes(table, self._settings)
        if self._schema.key is not None:
            check_keys(table.column(self._schema.key))
        atomic = atomic or self._numbered
        self._check_append(expected, table.num_rows)
        acknowledgement = self._acknowledgement()
        acknowledgement.total = acknowledgement.accepted = table.num_rows
        begin, whole = 0, atomic or expected is not None
        for batch in _cut(table, self._settings.event_bytes_max, whole=whole):
            rows = np.arange(begin, begin + batch.num_rows)
            begin += batch.num_rows
            self._append([self._sent(batch, acknowledgement, rows, atomic=atomic, expected=expected)], expected)
        return BatchAck(acknowledgement)

    def _send_time(self, time_us: Micros | None) -> None:
        if time_us is None:
            if self._unconditional:  # another kind of writer is closed by the broker
                with suppress(StoreUnavailable):  # the watermark soon takes it for idle
                    self._times_ended(self._stream, self._id)
            return
        acknowledgement = self._acknowledgement()
        batch = pa.RecordBatch.from_pylist([], schema=self._schema.columns)
        metadata = v1.AppendMetadata(note_time_us=time_us)
        acknowledgement.total = 1  # the answer makes it 0
        self._accept([SentBatch(batch, acknowledgement, np.zeros(1, np.intp), metadata, 0, numbered=False)])
        BatchAck(acknowledgement).result()

    def _release(self) -> None:
        self._queue.close()
        if self._conditional is not None:
            self._conditional.close()
        super()._release()

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """For acknowledgements; see `Waiter`."""
        return self._queue.wait(done, timeout_s)

    # the work

    def _write_alone(self, event: Any, key: Any, time: Any, expected: int | None, size: int) -> Ack:
        expected = checked_expected(expected)
        chunk, closed = self._close_alone(event, key, time, expected, size)
        batches = [
            self._sent(_columns(each.events), chunk.acknowledgement, each.origins[0][1], expected=expected)
            for each in closed
        ]
        chunk.acknowledgement.accepted = 1
        self._append(batches, expected)
        return Ack(chunk.acknowledgement, 0)

    def _append(self, batches: list[SentBatch], expected: int | None) -> None:
        if expected is None or not self._unconditional:
            self._accept(batches)
            self._queue.wait_for_room()
            return
        # A producer's appends are numbered and have no condition. So a conditional append is sent outside the
        # producer's call, after the earlier appends and before the later ones.
        self._wait_drained()
        with self._buffer.lock:
            self._require_open()
            if self._conditional is None:
                command = v1.AppendCommand(stream=self._stream_name, stream_id=self._stream)
                self._conditional = AppendQueue(self._connection, self._runtime, command, self._refusals, named=False)
        self._conditional.add(batches)
        self._conditional.wait_drained()

    def _sent(
        self,
        batch: pa.RecordBatch,
        acknowledgement: Acknowledgement,
        rows: Rows,
        *,
        atomic: bool = False,
        expected: int | None = None,
    ) -> SentBatch:
        return SentBatch(
            batch, acknowledgement, rows, v1.AppendMetadata(atomic=atomic, expected=expected), batch.nbytes
        )

    def _accept(self, batches: list[SentBatch]) -> None:
        with self._buffer.lock:
            self._queue_chunk()
            self._queue.add(batches)

    def _close_chunk(self) -> None:
        with self._buffer.lock:
            self._queue_chunk()

    def _queue_chunk(self) -> None:
        """Put the gathered events into the queue. Needs the buffer's lock."""
        closed = self._buffer.close()
        if closed is None:
            return
        batches = closed.batches or []
        self._refusals.add_all(closed.acknowledgement.errors)
        self._queue.add([self._sent(_columns(each.events), each.origins[0][0], each.origins[0][1]) for each in batches])
        self._buffer.queued()

    def _wait_drained(self) -> None:
        self._close_chunk()
        self._queue.wait_drained()

    def _check_append(self, expected: int | None, count: int, error: AnabranchError | None = None) -> None:
        super()._check_append(expected, count, error)
        if expected is not None and self._named:
            raise InvalidArgument(
                "through a broker, a writer with a writer_id takes no `expected`; one with a fence does"
            )

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("writer")
        fatal = self._queue.fatal
        if fatal is not None and not isinstance(fatal, Fenced):  # the acknowledgement raises Fenced
            raise fatal.with_traceback(None)  # else each raise would add to its traceback

    def _explained(self, error: AnabranchError) -> AnabranchError:
        """The error to raise for a refusal, by a writer that was opened while the stream was raw."""
        if not isinstance(error, InvalidArgument) or not self._schema.raw:
            return error
        try:
            if not describe(self._connection, self._stream_name, self._stream).schema.raw:
                return became_bytes(self._stream_name)
        except AnabranchError:
            return error
        return error

    def _refresh_schema(self, known: StreamSchema) -> bool:
        schema = describe(self._connection, self._stream_name, self._stream).schema
        with self._buffer.lock:
            if self._schema is not known:
                return True  # another thread has done it
            if schema == known or schema.raw:
                return False
            self._queue_chunk()
            self._buffer.open(schema)
            self._adopt(schema)
            return True


def _columns(events: pa.RecordBatch | RawEvent) -> pa.RecordBatch:
    return events.batch() if isinstance(events, RawEvent) else events


def _cut(table: pa.Table, event_bytes_max: int, *, whole: bool) -> Iterator[pa.RecordBatch]:
    """The batches that are sent: large events alone, others together. One that is `whole` is not cut."""
    if whole and table.num_rows:
        batches = table.combine_chunks().to_batches()
        if len(batches) > 1:
            raise TooLarge("an atomic batch", table.nbytes, limits.BATCH_BYTES_MAX)
        yield from batches
        return
    for run in size_runs(table, event_bytes_max):
        for batch in table.slice(run.start, run.stop - run.start).to_batches():
            parts = -(-batch.nbytes // limits.REMOTE_BATCH_BYTES)
            step = -(-batch.num_rows // max(1, parts))
            for start in range(0, batch.num_rows, max(1, step)):
                yield batch.slice(start, step)
