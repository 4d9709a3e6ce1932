"""Transactions and publications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, parts_key, state_kind, time_text
from anabranch.model.append import BlobEntry, BlobLocation, TimeBounds
from anabranch.model.ids import Micros, StreamId
from anabranch.model.keyspace import KeyRange
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
    about="Transactions, open and ended. The row alone decides a transaction's outcome.",
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


class FlushKey(NamedTuple):
    """The `number`th flush of a transaction, from 0."""

    transaction: str
    number: int


@dataclass(frozen=True, slots=True)
class FlushedRun:
    """Consecutive rows of a flushed batch whose key points are in `range`; `size` in logical bytes."""

    range: KeyRange
    row: int
    count: int
    bounds: TimeBounds
    size: int


@dataclass(frozen=True, slots=True)
class FlushedBatch:
    """A staged batch that is in a blob; see `writing.staging.StagedBatch`."""

    blob: BlobEntry
    place: BlobLocation
    checksum: int
    count: int
    runs: tuple[FlushedRun, ...]
    spread: int
    schema_version: int


@dataclass(frozen=True, slots=True)
class Flush:
    """The batches that one flush staged, by stream."""

    batches: Mapping[StreamId, tuple[FlushedBatch, ...]]


def flushes_of(transaction: str) -> str:
    """The prefix of the keys of a transaction's flushes."""
    return f"{transaction}/"


FLUSH: Final[StateKind[FlushKey, Flush]] = state_kind(
    "flush",
    about=(
        "The batches staged by each flush of an open transaction. The events are in blobs, since state is not "
        "encrypted."
    ),
    by="the transaction's id, `/` and the number of the flush, 8 digits",
    key=parts_key(FlushKey, "{}/{:08}", str, int),
    value=Flush,
    example=(
        FlushKey("b1946ac92492d234", 0),
        Flush(
            {
                StreamId(0x2BCD55E1E5C62EE7): (
                    FlushedBatch(
                        BlobEntry("commits/00064a1b2c3d4e5f-0123456789abcdef01234567.arrow", 4_480, Micros(5)),
                        BlobLocation(256, 4_096),
                        -12,
                        120,
                        (FlushedRun(KeyRange(0, 1 << 64), 0, 120, TimeBounds(Micros(3), Micros(9)), 3_840),),
                        12345,
                        1,
                    ),
                )
            }
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class PublishedSeries:
    """A publication with this `number` or a lower one is a repetition."""

    number: int


PUBLISHED: Final[StateKind[str, PublishedSeries]] = state_kind(
    "published",
    about="The last number of each series of numbered publications, such as the batches of a streaming query.",
    by="the name of the series: `spark:` and the id of a query",
    key=TEXT_KEY,
    value=PublishedSeries,
    example=("spark:6f2c9f0a-2f0a-4c58-9d3e-5a1d3f6b8c21", PublishedSeries(41)),
)
