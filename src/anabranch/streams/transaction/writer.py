"""What a transaction writes to one stream, until it is staged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from anabranch import limits
from anabranch.core.routing import check_key, key_text
from anabranch.core.rows import RowChecker, payload_bytes, rows_to_batch, table_of
from anabranch.errors import InvalidArgument, SchemaMismatch, TooLarge
from anabranch.model.times import to_micros
from anabranch.runtime.interrupts import Undisturbed
from anabranch.runtime.ports import Runtime
from anabranch.streams.stage import Staged, Stager

_ROWS_BYTES_MAX: Final = 4 * limits.MIB  # single events are made a batch at the latest when they weigh so much
_ROW_BYTES: Final = 64  # what a row is taken to weigh beside its values


class TransactionWriter:
    """Writes events to one stream, as a part of a transaction. Thread-safe, as the transaction is.

    Events keep the order in which they were written; nobody sees them before the commit, and nothing of them is durable
    before the transaction is flushed or committed.
    """

    def __init__(
        self,
        stager: Stager,
        runtime: Runtime,
        before: Callable[[], None],
        writable: Callable[[], None],
        anew: Callable[[], Stager],
    ) -> None:
        """`before` is called ahead of each write: it refuses where the transaction is over, and prolongs its lease. `writable`
        only refuses, and is called where nothing can be taken in between. `anew` makes a stager of the columns that the
        stream has by then."""
        self._stager = stager
        self._runtime = runtime
        self._before = before
        self._writable = writable
        self._anew = anew
        self._former: tuple[Staged, ...] = ()  # by stagers of former columns
        self._checker = None if stager.schema.raw else RowChecker(stager.schema)
        self._lock = runtime.tasks.lock()
        self._rows: list[dict[str, Any]] = []
        self._rows_bytes = 0
        self._taken = 0

    def write(self, event: Any, *, key: Any = None, time: datetime | int | str | None = None) -> None:
        """Take one event; see `Writer.write` for what it is. Raises SchemaMismatch, InvalidKey, TooLarge,
        TransactionAborted, Closed, StoreUnavailable: then this event is not taken, and those before it still are."""
        row = self._raw(event, key, time) if self._checker is None else self._typed(event, key, time)
        size = len(row["payload"]) if self._checker is None else self._checker.bytes_of(row)
        if size > self._runtime.settings.large_event_bytes_max:
            raise TooLarge("an event", size, self._runtime.settings.large_event_bytes_max)
        self._before()
        with self._lock:
            self._writable()
            if self._rows_bytes > _ROWS_BYTES_MAX:
                self._hand_over()
            self._rows.append(row)
            self._rows_bytes += size + _ROW_BYTES

    def write_batch(self, data: Any) -> None:
        """Take a batch: anything with `__arrow_c_stream__` whose columns are the stream's. Raises as `write`."""
        self._before()
        table = table_of(data)
        with self._lock:
            self._writable()
            self._hand_over()
            try:
                self._stager.write(table)
            except SchemaMismatch:
                self._learn()
                self._stager.write(table)

    def take(self) -> tuple[Staged, ...]:
        """Stage what is gathered, and return all that was staged since the last call. Batches that are not small are
        durable."""
        with self._lock:
            self._hand_over()
            done = self._former + self._stager.finish()
            fresh, self._taken = done[self._taken :], len(done)
            return fresh

    def _hand_over(self) -> None:
        if self._rows:
            with Undisturbed():  # between the two, the rows would be there twice
                self._stager.write(rows_to_batch(self._rows, self._stager.schema))
                self._rows, self._rows_bytes = [], 0

    def _learn(self) -> None:
        """Something does not fit: go on with the columns that the stream has by now. Needs the lock."""
        fresh = self._anew()
        if fresh.schema != self._stager.schema:
            self._hand_over()
            self._former += self._stager.finish()
            self._stager, self._checker = fresh, RowChecker(fresh.schema)

    def _raw(self, event: Any, key: Any, time: datetime | int | str | None) -> dict[str, Any]:
        text = None if key is None else key_text(key)
        if text is not None:
            check_key(text)
        at = self._runtime.clock.now() if time is None else to_micros(time)
        return {"key": text, "time": at, "payload": payload_bytes(event)}

    def _typed(self, event: Any, key: Any, time: Any) -> dict[str, Any]:
        if key is not None or time is not None:
            raise InvalidArgument("a typed stream takes key and time from the event's columns")
        assert self._checker is not None, "a typed stream has one"
        try:
            self._checker.check(event)
        except SchemaMismatch:
            with self._lock:
                self._learn()
            self._checker.check(event)
        own = None if (key_column := self._stager.schema.key) is None else event.get(key_column)
        if isinstance(own, str):
            check_key(own)
        return dict(event)
