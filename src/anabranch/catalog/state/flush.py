"""The batches staged by each flush of an open transaction. The events are in blobs, since state is not encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import KeyText, StateKind, numbered_key, state_kind
from anabranch.model.append import BlobEntry, BlobLocation, TimeBounds
from anabranch.model.ids import Micros, StreamId
from anabranch.model.keyspace import KeyRange


@dataclass(frozen=True, slots=True)
class FlushKey:
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


_KEY: Final[KeyText[FlushKey]] = numbered_key(FlushKey, lambda key: (key.transaction, key.number))

FLUSH: Final[StateKind[FlushKey, Flush]] = state_kind(
    "flush",
    by="the transaction's id, `/` and the number of the flush, 8 digits",
    key=_KEY,
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
