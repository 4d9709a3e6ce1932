"""Committing several transactions of one stream as one atomic unit, such as those that the tasks of a distributed job
have each flushed."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionState
from anabranch.runtime.ports import Runtime
from anabranch.streams.publish import NumberedUnit, Publication, publish
from anabranch.transactions.flushed import drop_flushes, flushed_batches
from anabranch.transactions.record import TransactionRow, delete_open, find_row, need_uncollected
from anabranch.transactions.transaction import abort_transaction
from anabranch.writing.staging import StagedBatch


def commit_together(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    stream: StreamId,
    idents: Sequence[str],
    *,
    request: str | NumberedUnit,
    replace: bool = False,
) -> bool:
    """Make the flushed events of these transactions visible together, in their order; with `replace`, nothing else is in
    the stream afterwards. Events that were not flushed are left out.

    Returns False where `request` was committed before. Then the transactions that are still open are aborted, and
    nothing else changes. Committed ones leave no outcome behind, because `request` identifies a repeat. Raises
    TransactionNotFound, TransactionAborted, InvalidArgument for a committed transaction and for one with events of
    another stream, Conflict where another process flushes into one meanwhile; and what `publish` raises. After any
    error nothing was committed, except after AppendUncertain.
    """
    known: dict[str, TransactionRow | None] = {}
    staged: list[StagedBatch] = []
    with catalog.reading() as reading:
        for ident in dict.fromkeys(idents):
            known[ident] = find_row(reading, ident)
            for each, batches in flushed_batches(reading, ident).items():
                if each != stream:
                    raise InvalidArgument(f"transaction '{ident}' holds events of another stream")
                staged += batches

    def before_append(txn: Writing, now: Micros) -> None:
        del now
        for ident, before in known.items():
            row = need_uncollected(txn, ident)
            if before is None or row.flushes != before.flushes:
                raise Conflict(f"another process flushed into transaction '{ident}' while it was committed")
            drop_flushes(txn, ident, row.flushes)
            delete_open(txn, row)

    publications = [Publication(stream, tuple(staged), replace=replace)]
    if publish(catalog, blobs, runtime, publications, request=request, before_append=before_append):
        return True
    for ident, row in known.items():
        if row is not None and row.info.state is TransactionState.OPEN:
            abort_transaction(catalog, runtime, ident, "its request was committed before")
    return False
