"""A transaction's row in the catalog, which alone decides the transaction's outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from anabranch.catalog.port import Lease, Reading, Writing
from anabranch.catalog.state.kind import State
from anabranch.catalog.state.transaction import (
    OPEN,
    TRANSACTION,
    StoredTransaction,
    TransactionLease,
    ended_lookup,
)
from anabranch.errors import InvalidArgument, TransactionAborted, TransactionNotFound
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState

KIND: Final = "transaction"  # of leases, and of the subjects of transactions of the catalog


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The stored state of a transaction. `flushes` counts the flushes, so that a commit notices if another process
    flushed in between; `committer` is the holder that committed. The lease, `lease_us` long, holds the collector's
    horizon while the transaction is open."""

    info: TransactionInfo
    lease: Lease
    lease_us: int
    flushes: int
    committer: str | None = None

    def renewed(self, now: Micros) -> TransactionRow:
        """The row with its lease renewed in full."""
        until = Micros(now + self.lease_us)
        return replace(self, info=replace(self.info, expires_at=until), lease=replace(self.lease, expires_at=until))

    def flushed(self, events: Mapping[StreamId, int]) -> TransactionRow:
        """The row after one more flush, of this many events."""
        return replace(
            self, info=replace(self.info, events=sum_counts(self.info.events, events)), flushes=self.flushes + 1
        )

    def committed(self, events: Mapping[StreamId, int], committer: str) -> TransactionRow:
        """The row with its final event counts and its committer."""
        return replace(self, info=replace(self.info, events=events), committer=committer)

    def ended(self, state: TransactionState, now: Micros, reason: str | None = None) -> TransactionRow:
        """The row of an ended transaction."""
        return replace(self, info=replace(self.info, state=state, ended_at=now, reason=reason))


def sum_counts(one: Mapping[StreamId, int], other: Mapping[StreamId, int]) -> dict[StreamId, int]:
    """Counts by stream, summed."""
    return {stream: one.get(stream, 0) + other.get(stream, 0) for stream in (*one, *other)}


def find_row(txn: Reading, ident: str) -> TransactionRow | None:
    """The row of a transaction, or None."""
    found = txn.state(TRANSACTION, ident)
    return None if found is None else _row(found)


def need_row(txn: Reading, ident: str) -> TransactionRow:
    """The row of a transaction. Raises TransactionNotFound."""
    row = find_row(txn, ident)
    if row is None:
        raise TransactionNotFound(ident)
    return row


def need_open(txn: Reading, ident: str) -> TransactionRow:
    """The row of a transaction that can be written to. Raises TransactionNotFound, TransactionAborted, InvalidArgument
    for a committed one."""
    row = need_row(txn, ident)
    if row.info.state is TransactionState.ABORTED:
        raise TransactionAborted(ident, row.info.reason)
    if row.info.state is TransactionState.COMMITTED:
        raise InvalidArgument(f"transaction '{ident}' is already committed and can't be changed")
    return row


def need_uncollected(txn: Reading, ident: str) -> TransactionRow:
    """The row of a transaction that can be written to, and whose flushed events are not collected. Raises what
    `need_open` raises."""
    row = need_open(txn, ident)
    if txn.horizon() > row.lease.begun_at:
        raise TransactionAborted(ident, "its lease expired, and its staged events may have been collected")
    return row


def open_rows(txn: Reading) -> list[TransactionRow]:
    """The open transactions, the oldest first."""
    return _sorted_rows(txn.states_found(TRANSACTION, OPEN))


def all_rows(txn: Reading) -> list[TransactionRow]:
    """All transactions, the oldest first."""
    return _sorted_rows(txn.states(TRANSACTION))


def ended_by(txn: Reading, time: Micros, limit: int) -> list[str]:
    """The ids of the first `limit` transactions that ended by `time`, in the order of their ends."""
    first, below = ended_lookup(Micros(0)), ended_lookup(Micros(time + 1))
    return [ident for ident, _ in txn.states_found(TRANSACTION, first, below=below, limit=limit)]


def put_row(txn: Writing, row: TransactionRow) -> None:
    """Store the row, and its lease while it is open."""
    info, lease = row.info, TransactionLease(row.lease.id, row.lease.begun_at, row.lease_us)
    txn.put_state(TRANSACTION, info.id, StoredTransaction(info, lease, row.flushes, row.committer))
    if info.ended_at is None:
        txn.put_lease(row.lease)
    else:
        txn.drop_lease(row.lease.id)


def delete_open(txn: Writing, row: TransactionRow) -> None:
    """Remove an open transaction and its lease, without an outcome to ask for."""
    delete_rows(txn, [row.info.id])
    txn.drop_lease(row.lease.id)


def delete_rows(txn: Writing, idents: Iterable[str]) -> None:
    """Remove transactions that have ended."""
    for ident in idents:
        txn.drop_state(TRANSACTION, ident)


def _sorted_rows(found: Iterable[State[str, StoredTransaction]]) -> list[TransactionRow]:
    return sorted((_row(stored) for _, stored in found), key=lambda row: (row.info.begun_at, row.info.id))


def _row(stored: StoredTransaction) -> TransactionRow:
    info, held = stored.info, stored.lease
    lease = Lease(held.id, KIND, info.id, held.begun_at, info.expires_at)
    return TransactionRow(info, lease, held.length_us, stored.flushes, stored.committer)
