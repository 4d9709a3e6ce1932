"""A writer: takes events, routes them to the open segments, and follows each until it is acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.python_rows import payload_view, to_table
from anabranch.core.routing import check_key, key_text
from anabranch.errors import (
    AnabranchError,
    AppendRefused,
    Closed,
    InvalidArgument,
    SchemaMismatch,
)
from anabranch.log.appender import Appender
from anabranch.log.commit import WriterHandle
from anabranch.model.amounts import check_number
from anabranch.model.ids import Micros, StreamId, WriterId
from anabranch.model.names import is_unicode
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.writing.acknowledgement import Ack, Acknowledgement, BatchAck
from anabranch.writing.chunk import RawChunk
from anabranch.writing.event_rows import events_to_batch
from anabranch.writing.event_writer import ROW_BYTES, EventWriter, check_note_time, checked_expected
from anabranch.writing.large_events import LargeEvents
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.producer_claim import OpenedProducer
from anabranch.writing.progress import WriterProgress
from anabranch.writing.queue import WriterQueue
from anabranch.writing.router import Router
from anabranch.writing.table_batches import check_sizes, pending_batches

_CHUNK_BYTES_MAX = 4 * limits.MIB  # single events are made into a batch at this size at the latest


class Writer(EventWriter):
    """Appends events to one stream. Thread-safe; events of one thread keep their order per key.

    A write is accepted when the call returns, and durable when its acknowledgement says so; `flush` waits until all
    accepted events are durable. Splits, merges and lost answers are handled internally. So are columns that the stream
    gained: they are discovered when they are first written. A writer with a `writer_id` continues where the last writer
    of that name stopped, and fences it off. `fence` guards every append: it must be at least the stream's own fence.
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
        on_close: Callable[[Writer], object] = lambda writer: None,
        note: Callable[[StreamId, str, Micros | None], None] | None = None,
        note_time_s: float | None = None,
        name: str = "",
        producer: OpenedProducer | None = None,
    ) -> None:
        """`note` is called with the times that the writer notes, and with None when it ends. `note_time_s`: see
        `Store.writer`. `name` is the stream's name as of now, for descriptions. `resumed`: the `claimed` of an
        earlier writer with this id, to continue as its owner."""
        check_note_time(note_time_s)
        if fence is not None:
            fence = check_number("fence", fence)
        if writer_id is not None and (not isinstance(writer_id, str) or not writer_id or not is_unicode(writer_id)):
            raise InvalidArgument(f"expected writer_id as text of at least one character, got {writer_id!r:.100}")
        self._handle = WriterHandle(WriterId(writer_id or token(runtime.ids)))
        progress = WriterProgress(catalog, runtime, stream, self._handle, named=writer_id is not None, resumed=resumed)
        self._router = Router(progress, runtime.ids, fence=fence)
        super().__init__(
            runtime,
            stream,
            self._router.schema,
            ident=self._handle.id,
            name=name or f"{stream:016x}",
            numbered=producer is not None,
            waiter=appender,
            on_close=on_close,
        )
        self._appender = appender
        self._tracing = runtime.tracing
        self._queue = WriterQueue(
            appender, self._buffer, self._router, progress, runtime, fence=fence, producer=producer
        )
        self._refreshing = runtime.tasks.lock()
        self._fresh_until = runtime.clock.monotonic() + limits.SCHEMA_FRESH_S
        self._small_bytes_max = min(self._settings.event_bytes_max, self._settings.large_event_bytes_max)
        self._large = LargeEvents(self._queue, self._router, appender, self._handle.id, runtime.tasks.lock())
        self._note = note
        self._start_noting(note_time_s)

    @property
    def claimed(self) -> int:
        """The fence with which a writer with an id claimed it."""
        return self._handle.highest

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
            size, weight = len(event), ROW_BYTES
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
            size, weight = self._checker.bytes_of(event), ROW_BYTES * (1 + len(event))
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
        expected = checked_expected(expected)
        table = self._to_stored(table)
        check_sizes(table, self._settings)
        acknowledgement = self._acknowledgement()
        acknowledgement.total = table.num_rows
        atomic = atomic or self._numbered
        self._check_append(expected, table.num_rows)
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

    def _wait_drained(self) -> None:
        with self._buffer.lock:
            self._queue.close_chunk()
            outstanding = self._queue.outstanding()
            if self._queue.pending_bytes:  # Ctrl-C may have struck between accepting and offering
                self._appender.requeue(self._queue)
        for acknowledgement in outstanding:
            acknowledgement.wait_drained()

    def _send_time(self, time_us: Micros | None) -> None:
        if self._note is None:
            raise InvalidArgument("this writer can't note times: use one made by Store.writer")
        self._note(self._stream, self.id, time_us)

    def _freshen(self) -> None:
        """Apply a check that the stream gained, at most `limits.SCHEMA_FRESH_S` later. Called for each batch, and for
        the first of the events that are committed together."""
        now = self._runtime.clock.monotonic()
        if now < self._fresh_until:
            return
        self._fresh_until = now + limits.SCHEMA_FRESH_S
        with suppress(AnabranchError):  # a catalog that can't be read is reported where it matters
            self._refresh_schema(self._schema)

    def _refresh_schema(self, known: StreamSchema) -> bool:
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

    def _write_alone(self, event: Any, key: Any, time: Any, expected: int | None, size: int) -> Ack:
        expected = checked_expected(expected)
        chunk, closed = self._close_alone(event, key, time, expected, size)
        batches = deque(closed)
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

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("writer")
        if self._queue.fatal is not None:
            # Not marked as seen: `close` raises it again, since events accepted before may have been refused with it.
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
