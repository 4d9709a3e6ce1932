"""Ending the transactions whose owner went away, and forgetting those that ended long ago."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.model.ids import Micros
from anabranch.model.transaction import TransactionState
from anabranch.runtime.ports import Runtime
from anabranch.streams.transaction.row import KIND, all_rows, drop_row
from anabranch.streams.transaction.transaction import end

EXPIRED: Final = "its lease ran out"


def sweep_transactions(catalog: Catalog, runtime: Runtime) -> int:
    """Abort the open transactions whose lease has run out; returns how many. Ended ones are forgotten after
    `limits.TRANSACTIONS_KEPT_US`.

    A commit and an expiry change the same row, so one of them is first: who commits late either has committed or is told
    that it was aborted.
    """
    now = runtime.clock.now()
    with catalog.reading() as txn:
        rows = all_rows(txn)
    aborted = 0
    for row in rows:
        info = row.info
        if info.state is TransactionState.OPEN:
            if info.expires_at <= now:
                aborted += end(catalog, runtime, info.id, EXPIRED, expired_by=now)
        elif info.ended_at is not None and info.ended_at <= Micros(now - limits.TRANSACTIONS_KEPT_US):
            with catalog.writing(f"{KIND} {info.id}") as writing:
                drop_row(writing, info.id)
    return aborted
