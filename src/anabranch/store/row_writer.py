"""Writes tables of rows to a stream that may be created for them, and that may get the columns which only they have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from anabranch import limits
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import AnabranchError, InvalidArgument, TooLarge
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.runtime.settings import Settings
from anabranch.streams.change import Changes
from anabranch.streams.lifecycle.first_write import FirstWrite
from anabranch.streams.manager import Streams
from anabranch.transactions.transaction import Transaction
from anabranch.writing.acknowledgement import BatchAck
from anabranch.writing.invalid_rows import InvalidRow, ValidRows, separate
from anabranch.writing.writer import Writer

Reject = Callable[[InvalidRow], None]


class WritableStore(Protocol):
    """A store, as far as writing to one stream needs it."""

    @property
    def changes(self) -> Changes:
        """The changes of its catalog."""
        ...

    @property
    def streams(self) -> Streams:
        """Its streams."""
        ...

    def writer(self, stream: StreamName) -> Writer:
        """Open a writer to a stream."""
        ...

    def transaction(self) -> Transaction:
        """Begin a transaction."""
        ...


class RowWriter:
    """Writes to one stream. A context manager.

    Nothing is created, and no column added, before there are rows that are valid. If the block fails before an event is
    durable, the stream that was created is deleted again, with the scope that was created for it; columns that were
    added stay.

    Where a check of the stream has a stream of violations, all events between two flushes are one transaction, in which
    the events that break the check go to that stream.

    `durable` counts the events that are durable, `diverted` the durable events that went to another stream. `present`
    is the schema of the stream; None if it is to be created."""

    def __init__(
        self,
        store: WritableStore | None,
        name: StreamName,
        *,
        settings: Settings,
        scaling: Fixed | None = None,
        make_store: Callable[[], WritableStore] | None = None,
    ) -> None:
        """`make_store` creates the store if there is none. Raises StreamRenamed, ScopeRenamed."""
        found = None if store is None else store.streams.find(name)
        self._store = store
        self.present: StreamSchema | None = None if found is None else found.schema
        self.durable = self.diverted = 0
        self.added: list[str] = []
        self._name = name
        self._settings = settings
        self._scaling = scaling or Fixed(1)
        self._make_store = make_store
        self._schema = self.present
        self._first: FirstWrite | None = None
        self._writer: Writer | None = None
        self._acks: deque[tuple[BatchAck, int]] = deque()
        self._transaction: Transaction | None = None
        self._held: list[pa.Table] = []
        self._held_bytes = 0

    @property
    def created(self) -> bool:
        """True once the stream was created."""
        return self._first is not None

    def write(self, rows: pa.Table, schema: StreamSchema, reject: Reject) -> None:
        """Accepts the valid rows for a stream of this schema; passes the others to `reject`, in their order. Raises
        SchemaMismatch for an unknown column."""
        if self._fits(schema):
            try:
                self._accept(rows, schema)
            except InvalidArgument:  # refused as a whole
                pass
            else:
                return
        for part in separate(rows, schema.refusing, self._settings):
            if isinstance(part, ValidRows):
                self._accept(part.rows, schema)
            else:
                reject(part)

    def hold(self, rows: pa.Table, schema: StreamSchema, reject: Reject) -> None:
        """Like `write`, but holds the rows until `write_held`. Raises TooLarge if all held rows exceed an atomic
        batch."""
        for part in separate(rows, schema.refusing, self._settings):
            if isinstance(part, InvalidRow):
                reject(part)
                continue
            self._held.append(to_stored_table(part.rows, schema.refusing, self._settings.times))
            self._held_bytes += self._held[-1].nbytes
            if self._held_bytes > limits.BATCH_BYTES_MAX:
                raise TooLarge("an atomic batch", self._held_bytes, limits.BATCH_BYTES_MAX)

    def write_held(self, schema: StreamSchema) -> None:
        """Writes the rows that were held, as one atomic unit."""
        if self._held:
            rows = pa.concat_tables(self._held, promote_options="default")  # earlier ones may lack columns
            if schema.diverts:
                self._accept(rows, schema)
                self._commit()
                return
            self.open(schema).write_batch(rows, atomic=True).result()
            self.durable = rows.num_rows

    def flush(self) -> None:
        """Returns once all rows are durable. Raises the first refusal."""
        try:
            self._commit()
            if self._writer is not None:
                self._writer.flush()
        finally:
            self.settle()

    def settle(self) -> None:
        """Counts the rows that are durable by now."""
        while self._acks and self._acks[0][0].done():
            ack, count = self._acks.popleft()
            try:
                ack.result()
            except AnabranchError:
                continue  # flush raises it
            self.durable += count

    def open(self, schema: StreamSchema) -> Writer:
        """The writer, of a stream that exists and has the columns of `schema`."""
        store = self._store
        if store is None:
            assert self._make_store is not None, "without a store it is to be created"
            store = self._store = self._make_store()
        if self._schema is None:
            self._first = FirstWrite(store.changes, self._name, schema, self._scaling)
        elif schema != self._schema:
            added = [field for field in schema.columns if field.name not in self._schema.columns.names]
            store.streams.add_columns(self._name, pa.schema(added))
            self.added += [field.name for field in added]
        self._schema = schema
        if self._writer is None:
            self._writer = store.writer(self._name)
        return self._writer

    def _fits(self, schema: StreamSchema) -> bool:
        return schema is self._schema

    def _accept(self, rows: pa.Table, schema: StreamSchema) -> None:
        if schema.diverts:
            if not self._fits(schema):
                self.open(schema)
            if self._transaction is None:
                assert self._store is not None, "a stream with checks is in a store"
                self._transaction = self._store.transaction()
            self._transaction.writer(self._name).write_batch(rows)
            return
        writer = self._writer if self._writer is not None and self._fits(schema) else self.open(schema)
        self._acks.append((writer.write_batch(rows), rows.num_rows))

    def _commit(self) -> None:
        """Commit what was written since the last time."""
        if self._transaction is not None:
            self._transaction.commit()
            counts = self._transaction.info.events
            assert self._store is not None
            own = counts.get(self._store.streams.get(self._name).id, 0)
            self.durable += sum(counts.values())
            self.diverted += sum(counts.values()) - own
            self._transaction = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transaction is not None:
                with suppress(AnabranchError):  # then it expires by itself
                    self._transaction.abort("the write failed")
            if self._writer is not None:
                self._writer.close()
        except AnabranchError:
            self._undo()
            if error is None:
                raise
        else:
            if error is not None:
                self._undo()

    def _undo(self) -> None:
        if self._first is not None:
            self._first.undo()


def check_roles(stream: StreamName, schema: StreamSchema, key: str | None, time: str | None) -> None:
    """Raises InvalidArgument if the stream has another key or time than those given."""
    for role, given, existing in (("key", key, schema.key), ("time", time, schema.time)):
        if given is not None and given != existing:
            has = f"'{existing}'" if existing is not None else "none"
            raise InvalidArgument(f"the {role} of stream '{stream}' is {has}, not '{given}'; it can't be changed")
