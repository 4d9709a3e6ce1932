"""Ending the transactions whose owner went away, and forgetting those that ended long ago."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.streams.transaction.row import KIND, ended_by, forget, open_rows
from anabranch.streams.transaction.transaction import end

EXPIRED: Final = "its lease ran out"
_PAGE: Final = 1_000  # how many are forgotten in one transaction


def sweep_transactions(catalog: Catalog, runtime: Runtime) -> int:
    """Abort the open transactions whose lease has run out; returns how many. Ended ones are forgotten after
    `limits.TRANSACTIONS_KEPT_US`.

    A commit and an expiry change the same row, so one of them is first: who commits late either has committed or is told
    that it was aborted.
    """
    now = runtime.clock.now()
    with catalog.reading() as txn:
        late = [row.info.id for row in open_rows(txn) if row.info.expires_at <= now]
    aborted = sum(end(catalog, runtime, ident, EXPIRED, expired_by=now) for ident in late)
    _forget(catalog, Micros(now - limits.TRANSACTIONS_KEPT_US))
    return aborted


def _forget(catalog: Catalog, horizon: Micros) -> None:
    while True:
        with catalog.reading() as txn:
            old = ended_by(txn, horizon, _PAGE)
        if not old:
            return
        with catalog.writing(f"{KIND} forgotten") as writing:
            forget(writing, old)
