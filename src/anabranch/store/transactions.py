"""Transactions of a store: begin, resume and list them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Sequence

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.transaction import TransactionInfo
from anabranch.store.parts import StoreContext
from anabranch.streams.arguments import stream_key
from anabranch.streams.directory.find import need_info
from anabranch.streams.publish import NumberedUnit
from anabranch.transactions.joint_commit import commit_together
from anabranch.transactions.record import all_rows, need_open, open_rows
from anabranch.transactions.transaction import Transaction, begin_transaction


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
        parts = self._parts
        parts.check_open()
        if ident is None:
            row = begin_transaction(parts.catalog, parts.runtime, lease_s)
        else:
            with parts.catalog.reading() as txn:
                row = need_open(txn, ident)
        ports = (parts.catalog, parts.blobs, parts.runtime)
        return Transaction(*ports, row, changed=parts.tail.notify, check_open=parts.check_open, note=self._note)

    def commit_together(
        self,
        idents: Sequence[str],
        stream: str | StreamName | StreamId,
        *,
        request: str,
        number: int | None = None,
        replace: bool = False,
    ) -> bool:
        """Commit several open transactions of one stream as one: what they have flushed becomes visible together, in the
        order of `idents`; what they have not flushed is left out. With `replace` the stream then holds exactly these
        events. Such are the transactions that the tasks of a distributed job have written, each through any broker.

        `request` identifies the commit: a repeated call returns False, aborts these transactions, and changes nothing
        else. With `number`, `request` names a series of commits with increasing numbers. The last number is kept
        forever, a `request` without a number for `limits.REQUESTS_KEPT_US`. No outcome of the transactions is kept.

        Raises StreamNotFound, StreamSealed, TransactionNotFound, TransactionAborted, AppendUncertain, and InvalidArgument
        for a transaction that is committed, or has events of another stream; Conflict if one is flushed meanwhile.
        """
        self._parts.check_open()
        parts = self._parts
        if isinstance(idents, str) or not isinstance(idents, Collection):
            raise InvalidArgument(f"expected the ids of the transactions as a list, got {idents!r:.100}")
        with parts.catalog.reading() as txn:
            target = need_info(txn, stream_key(stream)).id
        unit = request if number is None else NumberedUnit(request, number)
        ports = (parts.catalog, parts.blobs, parts.runtime)
        first = commit_together(*ports, target, idents, request=unit, replace=replace)
        parts.tail.notify()
        return first

    def list(self, *, ended: bool = True) -> builtins.list[TransactionInfo]:
        """The open transactions and, if `ended`, those that ended less than a week ago; oldest first."""
        self._parts.check_open()
        with self._parts.catalog.reading() as txn:
            return [row.info for row in (all_rows(txn) if ended else open_rows(txn))]
