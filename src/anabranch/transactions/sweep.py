"""Aborting transactions whose lease has expired, and removing those that ended long ago."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.transactions.record import KIND, delete_rows, ended_by, open_rows
from anabranch.transactions.transaction import abort_transaction

EXPIRED: Final = "its lease expired"
_PAGE: Final = 1_000  # how many are removed in one transaction


def sweep_transactions(catalog: Catalog, runtime: Runtime) -> int:
    """Abort the open transactions whose lease has expired; returns how many. Ended ones are removed after
    `limits.TRANSACTIONS_KEPT_US`.

    A commit and an expiry change the same row, so one of them is first: a late commit either has succeeded or raises
    TransactionAborted.
    """
    now = runtime.clock.now()
    with catalog.reading() as txn:
        expired = [row.info.id for row in open_rows(txn) if row.info.expires_at <= now]
    aborted = sum(abort_transaction(catalog, runtime, ident, EXPIRED, expired_by=now) for ident in expired)
    _delete_ended(catalog, Micros(now - limits.TRANSACTIONS_KEPT_US))
    return aborted


def _delete_ended(catalog: Catalog, horizon: Micros) -> None:
    while True:
        with catalog.reading() as txn:
            old = ended_by(txn, horizon, _PAGE)
        if not old:
            return
        with catalog.writing(f"{KIND} forgotten") as writing:
            delete_rows(writing, old)
