"""What every writer does, whether the store is opened here or served by a broker: it checks events and fits them to the
stream's columns, and it is flushed and closed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa

from anabranch.core.closeable import Closeable
from anabranch.core.display import Displayed
from anabranch.core.python_rows import RowChecker, to_stored_table
from anabranch.core.routing import check_key
from anabranch.errors import AnabranchError, InvalidArgument, SchemaMismatch, StreamNotFound, TooLarge
from anabranch.model.amounts import check_number
from anabranch.model.ids import Micros, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.seconds import check_seconds
from anabranch.model.times import to_micros
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.writing.acknowledgement import Acknowledgement, Waiter
from anabranch.writing.chunk import Chunk, RawChunk, new_chunk
from anabranch.writing.chunk_buffer import ChunkBuffer
from anabranch.writing.pending_batch import PendingBatch

ROW_BYTES = 64  # assumed size of a row, besides its payload, before its batch is built


class EventWriter(Displayed, Closeable):
    """Accepts events for one stream. A writer whose appends are `numbered` is a producer's. `name` is the stream's."""

    def __init__(
        self,
        runtime: Runtime,
        stream: StreamId,
        schema: StreamSchema,
        *,
        ident: str,
        name: str,
        numbered: bool,
        waiter: Waiter | None,
        on_close: Callable[[Any], object],
    ) -> None:
        """`waiter` waits for acknowledgements; None: this writer waits for them itself."""
        self._runtime = runtime
        self._settings = runtime.settings
        self._times = runtime.settings.times
        self._stream = stream
        self._id = ident
        self._stream_name = name
        self._numbered = numbered
        self._waiter: Waiter = self if waiter is None else waiter  # type: ignore[assignment]
        self._on_close = on_close
        self._closed = False
        self._ending = False  # a `close` is under way, or has finished
        self._schema: StreamSchema
        self._checker: RowChecker | None
        self._text_key: str | None
        self._adopt(schema)
        self._buffer = ChunkBuffer(self._waiter, runtime, stream, schema)
        self._refusals = self._buffer.refusals
        self._noted = False
        self._noting: Periodic | None = None

    def _facts(self) -> Mapping[str, object]:
        return {"id": self.id, "stream": self._stream_name, "state": "closed" if self._closed else "open"}

    @property
    def id(self) -> str:
        """The writer's name, under which logs store its progress."""
        return self._id

    @property
    def stream_id(self) -> StreamId:
        """The id of the stream that it writes to, which does not change with renames."""
        return self._stream

    def flush(self) -> None:
        """Return once every event accepted so far is durable. Raises the first refusal since the last flush."""
        self._wait_drained()
        self._raise(self._refusals.first)

    def note_time(self, time: datetime | int | str) -> None:
        """Declare that what this writer writes from now on is not older than `time`. This advances the stream's
        watermark once all writers have declared so; see `Store.watermarks`. Waits until what was accepted before is
        durable; a refusal is raised by `flush`, not here. Durable when it returns. Raises InvalidArgument for a time
        before the last one."""
        moment = to_micros(time, self._times)
        self._require_open()
        self._wait_drained()
        self._send_time(moment)
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
            try:
                if self._noting is not None:
                    self._noting.close()
                self._wait_drained()
                self._raise(self._refusals.unseen)
                if self._noted:
                    with suppress(StreamNotFound):  # deleted, together with the watermark that waits for this writer
                        self._send_time(None)
            except AnabranchError:
                self._release()
                raise
            self._release()
        except AnabranchError:
            raise
        except BaseException:
            self._ending = False
            raise

    def _release(self) -> None:
        self._on_close(self)

    def _raise(self, error: AnabranchError | None) -> None:
        if error is None:
            return
        try:
            raise error
        finally:  # an exception thrown in here has `error` as its context
            self._refusals.clear()

    def _start_noting(self, note_time_s: float | None) -> None:
        """Note the clock's time at this interval in seconds from now on."""
        if note_time_s is not None:
            self._noting = Periodic(
                self._runtime, "noting", note_time_s, lambda: self.note_time(self._runtime.clock.now())
            )
            self._noting.start()

    # where the events go

    @abstractmethod
    def _wait_drained(self) -> None:
        """Wait until every event accepted so far is durable or refused."""

    @abstractmethod
    def _send_time(self, time_us: Micros | None) -> None:
        """Note a time for the watermark; None: the watermark no longer waits for this writer. Raises StreamNotFound."""

    @abstractmethod
    def _require_open(self) -> None:
        """Raise Closed, or the error with which every further event is refused."""

    @abstractmethod
    def _refresh_schema(self, known: StreamSchema) -> bool:
        """Switch to the stream's current columns, after something did not fit the `known` schema. Returns False where
        they are the known ones."""

    def _freshen(self) -> None:
        """Apply a check that the stream gained, if nothing else applies it."""

    def _trace(self, acknowledgement: Acknowledgement) -> None:
        """Begin the span of an append, if appends are traced here."""

    # the stream's columns

    def _adopt(self, schema: StreamSchema) -> None:
        self._checker = None if schema.raw else RowChecker(schema, self._times)
        self._text_key = _text_key(schema)
        # Set last: a thread that reads this schema has the new checker too, so what does not fit it is not retried.
        self._schema = schema

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

    # events that are appended alone

    def _acknowledgement(self) -> Acknowledgement:
        return Acknowledgement(self._stream, self._waiter, self._refusals)

    def _close_alone(
        self, event: Any, key: Any, time: Any, expected: int | None, size: int
    ) -> tuple[Chunk, list[PendingBatch]]:
        """A conditional or a large event as a chunk of its own, which is closed."""
        if size > self._settings.large_event_bytes_max:
            raise TooLarge("an event", size, self._settings.large_event_bytes_max)
        self._require_open()
        chunk = new_chunk(self._schema, self._acknowledgement())
        if isinstance(chunk, RawChunk):
            chunk.payloads, chunk.keys, chunk.times = [event], [key], [time]
        else:
            chunk.rows = [event]
        self._trace(chunk.acknowledgement)
        batches = chunk.close(self._runtime.clock.now())
        self._check_append(expected, len(batches), chunk.acknowledgement.error)
        self._refusals.add_all(chunk.acknowledgement.errors)
        return chunk, batches

    def _check_append(self, expected: int | None, count: int, error: AnabranchError | None = None) -> None:
        """Raise for an append of `count` events that can't be numbered: only one that is accepted as a whole gets a
        number."""
        if not self._numbered:
            return
        if error is not None:
            raise error
        if expected is not None:
            raise InvalidArgument(
                "a producer's appends don't accept `expected`: their sequence numbers are the condition"
            )
        if count == 0:
            raise InvalidArgument("expected at least one event in a producer's append")


def checked_expected(expected: int | None) -> int | None:
    """The number of events that a segment must hold, if an append has that condition. Raises InvalidArgument."""
    return None if expected is None else check_number("expected", expected)


def check_note_time(note_time_s: float | None) -> None:
    """Raises InvalidArgument for an interval at which no times can be noted."""
    if note_time_s is not None:
        check_seconds("note_time_s", note_time_s)
        if note_time_s <= 0:
            raise InvalidArgument(f"expected note_time_s as a number of seconds above 0, got {note_time_s}")


def _text_key(schema: StreamSchema) -> str | None:
    """The column whose text is the routing key, if it is text."""
    return schema.key if schema.key is not None and pa.types.is_string(schema.columns.field(schema.key).type) else None
