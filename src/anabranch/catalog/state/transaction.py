"""Transactions, open and ended. The row alone decides a transaction's outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, time_text
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState

OPEN: Final = "open"  # the lookup of open transactions
_ENDED: Final = "ended "  # the lookup of others: this prefix, and the time of their end


class TransactionLease(NamedTuple):
    """The lease that holds the collector's horizon while the transaction is open; it is `length_us` long."""

    id: str
    begun_at: Micros
    length_us: int


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """`flushes` counts the flushes; `committer` is the holder that committed."""

    info: TransactionInfo
    lease: TransactionLease
    flushes: int
    committer: str | None


def ended_lookup(time: Micros) -> str:
    """The lookup of a transaction that ended at this time. They sort by time."""
    return _ENDED + time_text(time)


def _lookup(_ident: str, row: StoredTransaction) -> str:
    return OPEN if row.info.ended_at is None else ended_lookup(row.info.ended_at)


_BEGUN: Final = Micros(1_767_225_600_000_000)

TRANSACTION: Final[StateKind[str, StoredTransaction]] = state_kind(
    "transaction",
    by="the transaction's id",
    found_by="`open`; or `ended` and when it ended (µs), 16 hex digits",
    key=TEXT_KEY,
    value=StoredTransaction,
    identity=lambda row: row.info.id,
    lookup=_lookup,
    example=(
        "b1946ac92492d234",
        StoredTransaction(
            TransactionInfo(
                "b1946ac92492d234",
                TransactionState.OPEN,
                _BEGUN,
                Micros(_BEGUN + 30_000_000),
                None,
                {StreamId(0x2BCD55E1E5C62EE7): 120},
            ),
            TransactionLease("7c6a180b36896a0a", _BEGUN, 30_000_000),
            1,
            None,
        ),
    ),
)
