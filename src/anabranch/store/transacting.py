"""What a store offers for transactions."""

from __future__ import annotations

from typing import Protocol

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.log.tail import Tail
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo
from anabranch.runtime.ports import Runtime
from anabranch.streams.transaction.row import all_rows, open_rows
from anabranch.streams.transaction.transaction import Transaction


class _Parts(Protocol):
    """What of a store the calls below are made of."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    _tail: Tail

    def _alive(self) -> None: ...
    def _note_commit(self, stream: StreamId, writer: str | None, time_us: Micros) -> None: ...


class Transacting:
    """The part of `Store` that deals with transactions."""

    def transaction(
        self: _Parts, ident: str | None = None, *, lease_s: float = limits.TRANSACTION_LEASE_S
    ) -> Transaction:
        """A new transaction, or with `ident` an open one, begun elsewhere, to go on with; see `Transaction`.

        A new one lives `lease_s` seconds behind its last write, ping or flush. Raises TransactionNotFound and
        TransactionAborted for an `ident` that is over, InvalidArgument for one that is committed.
        """
        self._alive()
        parts, changed, note = (self.catalog, self.blobs, self.runtime), self._tail.notify, self._note_commit
        if ident is not None:
            return Transaction.resume(*parts, ident, changed=changed, note=note)
        return Transaction.begin(*parts, lease_s=lease_s, changed=changed, note=note)

    def transactions(self: _Parts, *, ended: bool = True) -> list[TransactionInfo]:
        """The open transactions and, where `ended`, those that ended less than a week ago; the oldest first."""
        self._alive()
        with self.catalog.reading() as txn:
            return [row.info for row in (all_rows(txn) if ended else open_rows(txn))]
