"""Transactions of a store: begin, resume and list them."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo
from anabranch.store.parts import StoreContext
from anabranch.transactions.record import all_rows, open_rows
from anabranch.transactions.transaction import Transaction


class Transactions(Displayed):
    """Transactions of a store: begin or resume one, list them."""

    def __init__(self, parts: StoreContext, *, note: Callable[[StreamId, str | None, Micros], None]) -> None:
        self._parts = parts
        self._note = note

    def begin(self, ident: str | None = None, *, lease_s: float = limits.TRANSACTION_LEASE_S) -> Transaction:
        """Begin a transaction, or with `ident` resume an open one that was begun elsewhere; see `Transaction`.

        A new one expires `lease_s` seconds after its last write, ping or flush. Raises TransactionNotFound and
        TransactionAborted for an `ident` that has ended, InvalidArgument for one that is committed.
        """
        self._parts.check_open()
        parts, changed, note = (
            (self._parts.catalog, self._parts.blobs, self._parts.runtime),
            self._parts.tail.notify,
            self._note,
        )
        if ident is not None:
            return Transaction.resume(*parts, ident, changed=changed, note=note)
        return Transaction.begin(*parts, lease_s=lease_s, changed=changed, note=note)

    def list(self, *, ended: bool = True) -> builtins.list[TransactionInfo]:
        """The open transactions and, if `ended`, those that ended less than a week ago; oldest first."""
        self._parts.check_open()
        with self._parts.catalog.reading() as txn:
            return [row.info for row in (all_rows(txn) if ended else open_rows(txn))]
