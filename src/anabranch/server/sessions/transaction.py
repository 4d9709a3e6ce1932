"""A transaction that a broker holds for a caller of any front end."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Conflict, InvalidArgument, StreamNotFound, TooLarge
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamInfo
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.transactions.record import TransactionRow, need_row
from anabranch.transactions.transaction import Transaction
from anabranch.transactions.writer import TransactionWriter


class HeldTransaction:
    """One transaction. For one thread at a time. It checks the caller's rights and limits.

    The same `consumer`, a unique id of the caller, may continue it elsewhere: a flush with the number of an earlier
    flush does nothing, and a repeated commit succeeds without effect."""

    def __init__(
        self,
        broker: Broker,
        principal: Principal,
        consumer: str,
        ident: str | None,
        *,
        lease_s: float | None = None,
        again: bool = False,
    ) -> None:
        """Begin a transaction, or resume the one with the id `ident`; with `again` it may be committed already. Raises
        what `Transactions.begin` raises, and PermissionDenied."""
        self._broker = broker
        self._store = broker.store
        self._principal = principal
        self._consumer = consumer
        self._writers: dict[StreamId, TransactionWriter] = {}
        self._unflushed_bytes = 0
        self._transaction: Transaction | None = None  # None if it was committed before it was resumed
        self._written: set[StreamId] = set()
        self.ident = ident or ""
        if self.ident:
            self._written.update(self._row().info.events)
            self.authorize()
        if self.ident and again and self.info.state is TransactionState.COMMITTED:
            return
        self._transaction = self._store.transactions.begin(
            self.ident or None, lease_s=limits.TRANSACTION_LEASE_S if lease_s is None else lease_s
        )
        self._transaction.act_for(consumer)
        self.ident = self._transaction.id

    @property
    def info(self) -> TransactionInfo:
        """The state of the transaction in the catalog."""
        return self._row().info

    @property
    def open(self) -> bool:
        """False if the transaction was committed before it was resumed."""
        return self._transaction is not None

    def authorize(self) -> None:
        """Check the right to write to each stream of the transaction. Raises PermissionDenied, Unauthenticated."""
        for stream in sorted(self._written | self._writers.keys()):
            with suppress(StreamNotFound):  # deleted meanwhile
                name = str(self._store.streams.view(stream).info.name)
                self._broker.guard.authorize(self._principal, "write", name, verb="transactions.write")

    def stream(self, stream: str | StreamId) -> StreamInfo:
        """A stream of this name or id to write to. Raises StreamNotFound, PermissionDenied."""
        info = allowed_stream(self._broker, self._principal, stream, "write", "transactions.write")
        # A new writer each time, because the stream may have new columns.
        self._writers[info.id] = self._open.writer(info.name)
        return info

    def write(self, stream: StreamId, table: pa.Table | pa.RecordBatch) -> None:
        """Write rows, which the next flush or commit stages. Raises TooLarge if too much is not flushed yet."""
        if stream not in self._writers:
            self.stream(stream)
        self._broker.guard.admit(self._principal, calls=0, bytes_=table.nbytes)
        if self._unflushed_bytes + table.nbytes > limits.TRANSACTION_UNFLUSHED_BYTES_MAX:
            limit = limits.TRANSACTION_UNFLUSHED_BYTES_MAX
            raise TooLarge("what a transaction holds before a flush", self._unflushed_bytes + table.nbytes, limit)
        self._open._require_writable()
        self._writers[stream].write_batch(table)
        self._unflushed_bytes += table.nbytes

    def flush(self, number: int) -> None:
        """Make the written rows durable. A second flush of the same consumer and number does nothing."""
        self._open.flush(request=f"flush {self._consumer} {number}")
        self._unflushed_bytes = 0

    def ping(self) -> None:
        """Prolong the lease."""
        self._open.ping()

    def commit(self, *, note_time: int | None = None, writer: str | None = None, left: int = 0) -> None:
        """Publish all events. `left` is the number of events that the caller wrote through another broker and that were
        not flushed. Raises Conflict if another consumer has committed the transaction without them."""
        if self._transaction is not None:
            self._transaction.commit(note_time=note_time, writer=writer)
        elif self._row().committer != self._consumer and left:
            raise Conflict(
                f"another process committed transaction '{self.ident}' without {left:,} events written by this one"
            )

    def abort(self, reason: str) -> None:
        """Drop all events of the transaction."""
        self._open.abort(reason)

    @property
    def _open(self) -> Transaction:
        if self._transaction is None:
            raise InvalidArgument(f"transaction '{self.ident}' is already committed and can't be changed")
        return self._transaction

    def _row(self) -> TransactionRow:
        with self._store.catalog.reading() as reading:
            return need_row(reading, self.ident)
