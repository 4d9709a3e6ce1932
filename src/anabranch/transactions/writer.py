"""Writing events to one stream in a transaction, until they are staged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.core.python_rows import RowChecker, payload_bytes, rows_to_batch, to_table
from anabranch.core.routing import check_key, key_text
from anabranch.errors import InvalidArgument, SchemaMismatch, TooLarge
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_micros
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Lock
from anabranch.writing.diverting import divided_batch, violating_rows
from anabranch.writing.staging import StagedBatch

_ROWS_BYTES_MAX: Final = 4 * limits.MIB  # single events are staged as a batch at this size
_ROW_BYTES: Final = 64  # assumed size of a row, besides its values


class Staging(Protocol):
    """Where a writer puts its batches: a `Stager`, or a connection to a broker that has one."""

    @property
    def schema(self) -> StreamSchema:
        """The columns it takes."""
        ...

    def write(self, data: Any, *, number: int | None = None) -> None:
        """See `Stager.write`."""
        ...

    def make_room(self, size: int) -> None:
        """See `Stager.make_room`."""
        ...

    def finish(self) -> tuple[StagedBatch, ...]:
        """See `Stager.finish`."""
        ...


class _RowBuffer:
    """Rows that become the next batch. Once `closed` it takes no more rows: they are being staged, or an asynchronous
    exception interrupted that."""

    __slots__ = ("bytes", "closed", "number", "rows")

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: list[dict[str, Any]] = []
        self.bytes = 0
        self.closed = False


class TransactionWriter:
    """Writes events to one stream, as a part of a transaction. Thread-safe, as the transaction is.

    Events keep the order in which they were written. They are invisible before the commit, and none is durable before
    the transaction is flushed or committed.
    """

    def __init__(
        self,
        stager: Staging,
        runtime: Runtime,
        before_write: Callable[[], None],
        require_writable: Callable[[], None],
        make_stager: Callable[[], Staging],
        writer_of: Callable[[str], TransactionWriter] | None = None,
    ) -> None:
        """`before_write` is called before each write: it raises if the transaction has ended, and renews its lease.
        `require_writable` only raises; it is called under the writer's lock, so no commit can begin in between.
        `make_stager` makes a stager for the stream's current columns. `writer_of` gives the transaction's writer to a stream
        of violations; None if the owner of the stager divides batches."""
        self._writer_of = writer_of
        self._stager = stager
        self._runtime = runtime
        self._times = runtime.settings.times
        self._before_write = before_write
        self._require_writable = require_writable
        self._make_stager = make_stager
        self._earlier_batches: tuple[StagedBatch, ...] = ()  # by stagers of earlier schemas
        self._checker = None if stager.schema.raw else RowChecker(stager.schema, runtime.settings.times)
        self._lock = runtime.tasks.lock()
        self._buffer = _RowBuffer(0)

    def write(self, event: Any, *, key: Any = None, time: datetime | int | str | None = None) -> None:
        """Accept one event, as `Writer.write` does. Raises SchemaMismatch, InvalidKey, TooLarge, TransactionAborted,
        Closed, StoreUnavailable: then this event is not accepted, and those before it still are.

        An event that breaks a check of the stream is refused when it is staged: by a later write, a flush or the commit.
        The transaction can then only be aborted."""
        row = self._raw_row(event, key, time) if self._checker is None else self._typed_row(event, key, time)
        size = len(row["payload"]) if self._checker is None else self._checker.bytes_of(row)
        if size > self._runtime.settings.large_event_bytes_max:
            raise TooLarge("an event", size, self._runtime.settings.large_event_bytes_max)
        if self._diverts:
            self.write_batch(rows_to_batch([row], self._stager.schema.with_checks(())))
            return
        self._before_write()
        with self._lock:
            self._require_writable()
            if self._buffer.closed or self._buffer.bytes > _ROWS_BYTES_MAX:
                self._stage_buffer()
            self._buffer.rows.append(row)
            self._buffer.bytes += size + _ROW_BYTES

    def write_batch(self, data: Any) -> None:
        """Accept a batch: anything with `__arrow_c_stream__` whose columns are the stream's. Raises what `write`
        raises. Rows that break a check with a stream of violations go there, in the same transaction."""
        self._before_write()
        table = to_table(data)
        if self._diverts:
            self._write_divided(table)
            return
        with self._lock:
            self._require_writable()
            self._stage_buffer()
            try:
                self._stager.write(table)
            except SchemaMismatch:
                self._refresh_schema()
                self._stager.write(table)

    @property
    def _diverts(self) -> bool:
        return self._writer_of is not None and self._stager.schema.diverts

    def _write_divided(self, table: pa.Table) -> None:
        """Accept all rows, here and by the writers to streams of violations, or none."""
        assert self._writer_of is not None
        settings = self._runtime.settings
        try:
            own, others = divided_batch(table, self._stager.schema, settings)
        except SchemaMismatch:
            with self._lock:
                self._refresh_schema()
            own, others = divided_batch(table, self._stager.schema, settings)
        parts = [(self, own)]
        for name, rows in others.items():
            side = self._writer_of(name)
            parts.append((side, violating_rows(rows, side._stager.schema, name, settings)))
        # All locks, so that a commit takes all parts or refuses them; in one order, so that no two wait for each other.
        writers = sorted({each for each, _ in parts}, key=id)
        _with_locks([each._lock for each in writers], partial(self._accept_parts, parts))

    def _accept_parts(self, parts: Sequence[tuple[TransactionWriter, pa.Table]]) -> None:
        """Needs the locks of their writers."""
        self._require_writable()
        for writer, rows in parts:
            writer._stage_buffer()
            writer._stager.make_room(rows.nbytes)
        for writer, rows in parts:  # nothing refuses them any more
            if rows.num_rows:
                writer._stager.write(rows)

    def staged(self) -> tuple[StagedBatch, ...]:
        """Stage the buffered rows, and return all batches staged so far. Batches that are not small are durable."""
        with self._lock:
            self._stage_buffer()
            return self._earlier_batches + self._stager.finish()

    def _stage_buffer(self) -> None:
        buffer = self._buffer
        if buffer.rows:
            buffer.closed = True
            self._stager.write(rows_to_batch(buffer.rows, self._stager.schema.refusing), number=buffer.number)
            self._buffer = _RowBuffer(buffer.number + 1)

    def _refresh_schema(self) -> None:
        """Switch to the stream's current columns, after a schema mismatch. Needs the lock."""
        stager = self._make_stager()
        if stager.schema != self._stager.schema:
            self._stage_buffer()
            earlier, checker = self._earlier_batches + self._stager.finish(), RowChecker(stager.schema, self._times)
            # No call in between, so no asynchronous exception can make the staged batches appear twice.
            self._earlier_batches, self._stager, self._checker = earlier, stager, checker

    def _raw_row(self, event: Any, key: Any, time: datetime | int | str | None) -> dict[str, Any]:
        text = None if key is None else key_text(key)
        if text is not None:
            check_key(text)
        at = self._runtime.clock.now() if time is None else to_micros(time, self._times)
        return {"key": text, "time": at, "payload": payload_bytes(event)}

    def _typed_row(self, event: Any, key: Any, time: Any) -> dict[str, Any]:
        if key is not None or time is not None:
            raise InvalidArgument(
                "key= and time= are for raw streams; a typed stream takes both from the event's columns"
            )
        assert self._checker is not None, "a typed stream has one"
        try:
            row = self._checker.checked(event)
        except SchemaMismatch:
            with self._lock:
                self._refresh_schema()
            row = self._checker.checked(event)
        self._checker.check_values(row)
        key_value = None if (key_column := self._stager.schema.key) is None else row.get(key_column)
        if isinstance(key_value, str):
            check_key(key_value)
        return row


def _with_locks(locks: Sequence[Lock], act: Callable[[], None]) -> None:
    if not locks:
        act()
        return
    with locks[0]:
        _with_locks(locks[1:], act)
