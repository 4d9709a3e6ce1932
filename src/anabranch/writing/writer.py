"""A writer: takes events, routes them to the open segments, and follows each until it is acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.closeable import Closeable
from anabranch.core.display import Displayed
from anabranch.core.python_rows import RowChecker, payload_view, to_stored_table, to_table
from anabranch.core.routing import check_key, key_text
from anabranch.errors import (
    AnabranchError,
    AppendRefused,
    Closed,
    InvalidArgument,
    SchemaMismatch,
    StreamNotFound,
    TooLarge,
)
from anabranch.log.appender import Appender
from anabranch.log.commit import WriterHandle
from anabranch.model.amounts import check_number
from anabranch.model.ids import Micros, StreamId, WriterId
from anabranch.model.names import is_unicode
from anabranch.model.schema import StreamSchema
from anabranch.model.seconds import check_seconds
from anabranch.model.times import to_micros
from anabranch.runtime.ids import token
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.writing.acknowledgement import Ack, Acknowledgement, BatchAck
from anabranch.writing.chunk import RawChunk, new_chunk
from anabranch.writing.chunk_buffer import ChunkBuffer
from anabranch.writing.event_rows import events_to_batch
from anabranch.writing.large_events import LargeEvents
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.producer_claim import OpenedProducer
from anabranch.writing.progress import WriterProgress
from anabranch.writing.queue import WriterQueue
from anabranch.writing.router import Router
from anabranch.writing.table_batches import check_sizes, pending_batches

_CHUNK_BYTES_MAX = 4 * limits.MIB  # single events are made into a batch at this size at the latest
_ROW_BYTES = 64  # assumed size of a row, besides its payload, before its batch is built


class Writer(Displayed, Closeable):
    """Appends events to one stream. Thread-safe; events of one thread keep their order per key.

    A write is accepted when the call returns, and durable when its acknowledgement says so; `flush` waits for all.
    Splits, merges and lost answers are handled internally. So are columns that the stream gained: they are discovered
    when they are first written. A writer made with a `writer_id` continues where the last one of that name stopped, and
    fences it off. `fence` guards every append with a number at least the stream's own.
    """

    def __init__(
        self,
        appender: Appender,
        catalog: Catalog,
        runtime: Runtime,
        stream: StreamId,
        *,
        writer_id: str | None = None,
        resumed: int | None = None,
        fence: int | None = None,
        on_close: Callable[[Writer], None] | None = None,
        note: Callable[[StreamId, str, Micros | None], None] | None = None,
        note_time_s: float | None = None,
        name: str = "",
        producer: OpenedProducer | None = None,
    ) -> None:
        """`note` is called with the times that the writer notes, and with None when it ends. `note_time_s`: see
        `Store.writer`. `name` is the stream's name as of now, for descriptions. `resumed`: the `claimed` of a writer
        of this id, to go on as its owner."""
        if note_time_s is not None:
            check_seconds("note_time_s", note_time_s)
            if note_time_s <= 0:
                raise InvalidArgument(f"expected note_time_s as a number of seconds above 0, got {note_time_s}")
        if fence is not None:
            fence = check_number("fence", fence)
        if writer_id is not None and (not isinstance(writer_id, str) or not writer_id or not is_unicode(writer_id)):
            raise InvalidArgument(f"expected writer_id as text of at least one character, got {writer_id!r:.100}")
        self._appender = appender
        self._runtime = runtime
        self._settings = runtime.settings
        self._times = runtime.settings.times
        self._tracing = runtime.tracing
        self._stream = stream
        self._stream_name = name or f"{stream:016x}"
        self._on_close = on_close
        self._closed = False
        self._ending = False  # a `close` is under way, or has finished
        self._handle = WriterHandle(WriterId(writer_id or token(runtime.ids)))
        progress = WriterProgress(catalog, runtime, stream, self._handle, named=writer_id is not None, resumed=resumed)
        self._producer = producer
        self._router = Router(progress, runtime.ids, fence=fence)
        self._buffer = ChunkBuffer(appender, runtime, stream, self._router.schema)
        self._queue = WriterQueue(
            appender, self._buffer, self._router, progress, runtime, fence=fence, producer=producer
        )
        self._refreshing = runtime.tasks.lock()
        self._fresh_until = runtime.clock.monotonic() + limits.SCHEMA_FRESH_S
        self._schema: StreamSchema
        self._checker: RowChecker | None
        self._text_key: str | None
        self._adopt(self._router.schema)
        self._small_bytes_max = min(self._settings.event_bytes_max, self._settings.large_event_bytes_max)
        self._large = LargeEvents(self._queue, self._router, appender, self._handle.id, runtime.tasks.lock())
        self._note = note
        self._noted = False
        self._noting: Periodic | None = None
        if note_time_s is not None:
            self._noting = Periodic(runtime, "noting", note_time_s, lambda: self.note_time(runtime.clock.now()))
            self._noting.start()

    def _facts(self) -> Mapping[str, object]:
        return {"id": self.id, "stream": self._stream_name, "state": "closed" if self._closed else "open"}

    @property
    def id(self) -> str:
        """The writer's name, under which logs store its progress."""
        return self._handle.id

    @property
    def claimed(self) -> int:
        """The fence with which a writer with an id claimed it."""
        return self._handle.highest

    @property
    def stream_id(self) -> StreamId:
        """The id of the stream that it writes to, which does not change with renames."""
        return self._stream

    @property
    def next_number(self) -> int:
        """The number of the next write, if the writer is a producer's; see `Store.writer`."""
        with self._buffer.lock:
            return self._queue.next_number + len(self._buffer.chunk)

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

        With `expected` the event is appended only if its segment holds exactly that many events, else ConditionFailed.
        An event larger than `Settings.event_bytes_max` behaves like any other, but its call blocks until its bytes are
        durable. Raises SchemaMismatch, InvalidKey, TooLarge, StreamSealed, Closed.
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
                time = to_micros(time, self._times)
        else:
            if not self._buffer.chunk.offered:
                self._freshen()
            event = self._to_mapping(event, key, time)
            size, weight = self._checker.bytes_of(event), _ROW_BYTES * (1 + len(event))
        if size > self._small_bytes_max or expected is not None:
            return self._write_alone(event, key, time, expected, size)
        buffer = self._buffer
        with buffer.lock:
            if self._closed or self._queue.fatal is not None:  # tested here too: a call costs 3 % of a write
                self._require_open()
            chunk = buffer.chunk
            if self._tracing is not None:
                self._trace(chunk.acknowledgement)
            row = len(chunk)
            if isinstance(chunk, RawChunk):
                chunk.add(event, key, time)  # type: ignore[arg-type]
            else:
                chunk.rows.append(event)
            buffer.bytes += size + weight
        if not chunk.offered:
            self._offer()
            chunk.offered = True
        elif buffer.bytes > _CHUNK_BYTES_MAX:
            self._close_chunk()
        return Ack(chunk.acknowledgement, row)

    def write_batch(self, data: Any, *, atomic: bool = False, expected: int | None = None) -> BatchAck:
        """Accept a batch: anything with `__arrow_c_stream__` (Arrow, pandas, polars …) whose columns are the stream's.

        Missing columns are null. With `atomic` all of it becomes visible at once or not at all; it must then fit one
        commit's memory, at most 1 GiB. `expected` as in `write`; all events must go to one segment then. Raises what
        `write` raises.
        """
        return self._write_batch(to_table(data), atomic=atomic, expected=expected)

    def write_numbered(self, data: Any, number: int, *, repeatable: bool) -> BatchAck:
        """For producers: `write_batch` of a batch or a list of events as the append `number`, which is not below the next
        one. `repeatable`: the caller chose the number, so another process may have appended it."""
        if isinstance(data, list | tuple):
            data = self._events_batch(data)
        self._queue.next_number = number
        return self._write_batch(to_table(data), atomic=True, expected=None, repeatable=repeatable)

    def _events_batch(self, events: Sequence[Any]) -> pa.RecordBatch:
        schema = self._schema
        try:
            return events_to_batch(events, schema, self._runtime.clock.now(), self._times)
        except SchemaMismatch:
            if not self._refresh_schema(schema):
                raise
            return events_to_batch(events, self._schema, self._runtime.clock.now(), self._times)

    def _write_batch(
        self, table: pa.Table, *, atomic: bool, expected: int | None, repeatable: bool = False
    ) -> BatchAck:
        self._require_open()
        if expected is not None:
            expected = check_number("expected", expected)
        table = self._to_stored(table)
        check_sizes(table, self._settings)
        acknowledgement = Acknowledgement(self._stream, self._appender, self._queue.refusals)
        acknowledgement.total = table.num_rows
        if self._producer is not None:
            atomic = True
            self._check_numbered(expected, table.num_rows)
        batches = deque(
            pending_batches(
                table, acknowledgement, self._router, self._schema, self._settings, atomic=atomic, expected=expected
            )
        )
        self._trace(acknowledgement)  # only now: a batch that is refused before has no span
        count = len(batches)
        for pending in batches:
            pending.repeatable = repeatable
        try:
            while batches:
                with self._large.before(batches[0]) as durable:
                    if not durable:
                        batches.popleft()
                        continue
                    self._accept(batches, acknowledgement, begun=len(batches) < count)
                    self._offer()
        except BaseException as exc:
            # Accepted in part: an exception from outside, perhaps while too much was pending.
            if len(batches) < count or batches[0].offered:
                self._queue.abandon(batches, AppendRefused("the call that wrote this batch was interrupted"))
            elif acknowledgement.span is not None:
                acknowledgement.span.end(acknowledgement.total, exc)
            raise
        return BatchAck(acknowledgement)

    def flush(self) -> None:
        """Return once every event accepted so far is durable. Raises the first refusal since the last flush."""
        self._wait_drained()
        self._raise(self._queue.refusals.first)

    def _raise(self, error: AnabranchError | None) -> None:
        if error is None:
            return
        try:
            raise error
        finally:  # an exception thrown in here has `error` as its context
            self._queue.refusals.clear()

    def _wait_drained(self) -> None:
        """Wait until every event accepted so far is durable or refused."""
        with self._buffer.lock:
            self._queue.close_chunk()
            outstanding = self._queue.outstanding()
            if self._queue.pending_bytes:  # Ctrl-C may have struck between accepting and offering
                self._appender.requeue(self._queue)
        for acknowledgement in outstanding:
            acknowledgement.wait_drained()

    def note_time(self, time: datetime | int | str) -> None:
        """Declare that what this writer writes from now on is not older than `time`. This advances the stream's
        watermark once all writers have declared so; see `Store.watermarks`. Waits until what was accepted before is
        durable; a refusal is raised by `flush`, not here. Durable when it returns. Raises InvalidArgument for a time
        before the last one."""
        moment = to_micros(time, self._times)
        self._require_open()
        if self._note is None:
            raise InvalidArgument("this writer can't note times: use one made by Store.writer")
        self._wait_drained()
        self._note(self._stream, self.id, moment)
        self._noted = True

    def close(self) -> None:
        """Return once every event accepted so far is durable, and accept no more. A second call is harmless; after Ctrl-C
        it does the remaining steps. Raises the first refusal of an accepted event that was not raised before, by a flush
        or the result of an acknowledgement."""
        try:
            with self._buffer.lock:
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
            self._wait_drained()
            self._raise(self._queue.refusals.unseen)
            if self._noted and self._note is not None:
                with suppress(StreamNotFound):  # deleted, together with the watermark that waits for this writer
                    self._note(self._stream, self.id, None)
        except AnabranchError:
            if self._on_close is not None:
                self._on_close(self)
            raise
        if self._on_close is not None:
            self._on_close(self)

    def _to_mapping(self, event: Any, key: Any, time: Any) -> dict[str, Any]:
        """A copy of a typed event as a mapping: the caller may reuse theirs for the next one."""
        if key is not None or time is not None:
            raise InvalidArgument("a typed stream takes key and time from the event's columns")
        schema, checker = self._schema, self._checker
        assert checker is not None, "a typed stream has one"
        try:
            row = checker.checked(event)
        except SchemaMismatch:
            if not self._refresh_schema(schema):
                raise
            checker = self._checker
            assert checker is not None, "a stream stays typed"
            row = checker.checked(event)
        if self._text_key is not None and (text := row.get(self._text_key)) is not None:
            check_key(text)
        return row

    def _to_stored(self, table: pa.Table) -> pa.Table:
        if self._checker is not None:
            self._freshen()
        schema = self._schema
        try:
            return to_stored_table(table, schema, self._times)
        except SchemaMismatch:
            if not self._refresh_schema(schema):
                raise
            return to_stored_table(table, self._schema, self._times)

    def _freshen(self) -> None:
        """Take up a check that the stream gained, `limits.SCHEMA_FRESH_S` later at the latest. Called for the first event
        of those that are committed together, and for each batch."""
        now = self._runtime.clock.monotonic()
        if now < self._fresh_until:
            return
        self._fresh_until = now + limits.SCHEMA_FRESH_S
        with suppress(AnabranchError):  # a catalog that can't be read is reported where it matters
            self._refresh_schema(self._schema)

    def _refresh_schema(self, known: StreamSchema) -> bool:
        """Switch to the stream's current columns, after something did not fit the `known` schema. Returns False where
        they are the known ones."""
        with self._refreshing:
            if self._schema is not known:
                return True  # another thread has done it
            if known.raw or not self._router.refresh_schema():
                return False
            with self._buffer.lock:
                self._queue.close_chunk()
                self._buffer.open(self._router.schema)
                self._adopt(self._router.schema)
        self._offer()
        return True

    def _adopt(self, schema: StreamSchema) -> None:
        self._checker = None if schema.raw else RowChecker(schema, self._times)
        self._text_key = _text_key(schema)
        # Set last: a thread that reads this schema has the new checker too, so what does not fit it is not retried.
        self._schema = schema

    def _write_alone(self, event: Any, key: Any, time: Any, expected: int | None, size: int) -> Ack:
        """Write a conditional or a large event."""
        if size > self._settings.large_event_bytes_max:
            raise TooLarge("an event", size, self._settings.large_event_bytes_max)
        self._require_open()
        if expected is not None:
            expected = check_number("expected", expected)
        chunk = new_chunk(self._schema, Acknowledgement(self._stream, self._appender, self._queue.refusals))
        if isinstance(chunk, RawChunk):
            chunk.payloads, chunk.keys, chunk.times = [event], [key], [time]
        else:
            chunk.rows = [event]
        self._trace(chunk.acknowledgement)
        batches = deque(chunk.close(self._runtime.clock.now()))
        if self._producer is not None:
            self._check_numbered(expected, len(batches), chunk.acknowledgement.error)
        self._queue.refusals.add_all(chunk.acknowledgement.errors)
        for pending in list(batches):
            pending.expected, pending.large = expected, size > self._settings.event_bytes_max
            with self._large.before(pending) as durable:
                if durable:
                    self._accept(batches, chunk.acknowledgement)
                    self._offer()
        return Ack(chunk.acknowledgement, 0)

    def _trace(self, acknowledgement: Acknowledgement) -> None:
        """Begin the span of an append, or have the one that was begun link to this caller too."""
        if self._tracing is not None:
            acknowledgement.trace(
                self._tracing.append(str(self._router.routes.info.name), self.id, acknowledgement.span)
            )

    def _check_numbered(self, expected: int | None, count: int, error: AnabranchError | None = None) -> None:
        """Raise for an append that a producer can't number. Only an append that is accepted as a whole gets a number."""
        if error is not None:
            raise error
        if expected is not None:
            raise InvalidArgument(
                "a producer's appends don't accept `expected`: their sequence numbers are the condition"
            )
        if count == 0:
            raise InvalidArgument("expected at least one event in a producer's append")

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("writer")
        if self._queue.fatal is not None:
            # To `close` it is not seen by this: events that were accepted before may have been refused with it.
            raise self._queue.fatal.with_traceback(None)  # else each raise would add to its traceback

    def _offer(self) -> None:
        """Offer the queue to the appender; wait while too much is pending."""
        self._appender.offer(self._queue)
        most = self._settings.pending_bytes_max or limits.PENDING_BYTES_MAX
        if self._queue.unsettled_bytes > most:
            self._appender.wait(lambda: self._queue.unsettled_bytes <= most // 2)

    def _accept(self, batches: deque[PendingBatch], acknowledgement: Acknowledgement, *, begun: bool = False) -> None:
        """Move the first pending batch to the queue, after the events of the open chunk. If it continues a batch that
        has `begun`, it is accepted even if the writer is closed meanwhile."""
        with self._buffer.lock:
            if not begun:
                self._require_open()
            self._queue.close_chunk()
            self._queue.enqueue([batches[0]], acknowledgement)
            batches.popleft()

    def _close_chunk(self) -> None:
        """Close the open chunk, which is big enough, in the writing thread, and have its events committed."""
        with self._buffer.lock:
            self._queue.close_chunk()
        self._offer()


def _text_key(schema: StreamSchema) -> str | None:
    """The column whose text is the routing key, if it is text."""
    return schema.key if schema.key is not None and pa.types.is_string(schema.columns.field(schema.key).type) else None
