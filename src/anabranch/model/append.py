"""The request and the result of a commit: the parts to append, and the outcome of each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, overload

from anabranch.model.ids import LogId, Micros, StreamId, WriterId
from anabranch.model.producer import ProducerSequence


@dataclass(frozen=True, slots=True)
class BlobLocation:
    """Where a run of events is in a blob.

    `arrow`: `offset` and `length` in bytes of one encapsulated record batch message, `row` the run's first row in it.
    `parquet`: `row` is the run's first row in the file; offset and length are 0.
    """

    offset: int
    length: int
    row: int = 0


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Smallest and greatest event time in a run, in µs UTC; both are None if the run has no event times."""

    low: Micros | None
    high: Micros | None


@dataclass(frozen=True, slots=True)
class Sequence:
    """Identifies a batch of a writer. `first` is the sequence number of its first event in this log, counted from 0."""

    writer: WriterId
    first: int
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A run of `count` events for one log, already encoded.

    `sequence` None means at-least-once: duplicates can't be detected. `expected` makes the append conditional on the
    log's length, `fence` on its fence. The encoded message is either in the blob with key `blob`, or in `data`. `size`
    is the run's logical bytes, `checksum` the xxh3-64 of the encoded message.
    """

    log: LogId
    count: int
    schema: int
    location: BlobLocation
    checksum: int
    size: int
    bounds: TimeBounds
    sequence: Sequence | None = None
    expected: int | None = None
    fence: int | None = None
    blob: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Parts that are appended together or not at all. `request`, if given, makes the unit take effect once: a
    repeated request is a duplicate and returns the first result. So does `producer`, which numbers the unit. A unit
    with a producer has at least one part, no request, and no sequences in its parts."""

    parts: tuple[Part, ...]
    request: str | None = None
    producer: ProducerSequence | None = None


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """A durable blob as the catalog lists it. `begun_at` is when writing it began, by the writer's clock."""

    key: str
    size: int
    begun_at: Micros
    encoding: str = "arrow"


@dataclass(frozen=True, slots=True)
class Commit:
    """One call of the commit function: independent units, and the durable blobs that hold their parts."""

    units: tuple[Unit, ...]
    now: Micros
    blobs: tuple[BlobEntry, ...] = ()


class Refusal(Enum):
    """Why a part was not appended, in the order the checks are made."""

    REPEATED = "repeated"  # the producer has appended the unit before: the producer's row may have the answer
    FENCED = "fenced"
    SEALED = "sealed"
    GAP = "gap"
    UNKNOWN_WRITER = "unknown_writer"
    CONDITION = "condition"
    UNIT = "unit"  # another part of its atomic unit was refused
    GONE = "gone"  # the log no longer exists
    EXPIRED = "expired"  # the blob is older than the collector's horizon


@dataclass(frozen=True, slots=True)
class Appended:
    """The part's events have offsets `start` … `start + count - 1` in its log. `appended_at` is the log's append time
    for them. `duplicate` is True if they had already been appended before."""

    start: int
    appended_at: Micros
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The part was not appended. `actual` is the value that caused the refusal: fence, next sequence number, length, or
    horizon."""

    reason: Refusal
    actual: int = 0


Verdict = Appended | Refused


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as a commit reads it under its lock. `size` is the running logical bytes, `low_water` the first position
    whose extents are guaranteed to exist, `event_high` the greatest event time so far."""

    id: LogId
    stream: StreamId
    length: int = 0
    sealed: bool = False
    fence: int = 0
    low_water: int = 0
    size: int = 0
    appended_at: Micros = Micros(0)
    event_high: Micros | None = None


class Batch(NamedTuple):
    """A committed batch: its first sequence number, its number of events, the offset of the first, its append time, and
    the fence it carried.

    Two owners of a writer's name may use the same sequence numbers; the fence identifies the owner that wrote the
    batch."""

    first: int
    events: int
    start: int
    appended_at: int
    fence: int


_BATCH: Final = struct.Struct("<5q")


class Batches(Seq[Batch]):
    """Batches, oldest first, in packed form as they are stored: five little-endian int64 each. They stay packed
    because every commit copies them, for perhaps a thousand logs, but only a retry reads them."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self.packed = packed

    @classmethod
    def of(cls, batches: Seq[Batch]) -> Batches:
        """The same batches, packed."""
        return batches if isinstance(batches, cls) else cls(b"".join(_BATCH.pack(*batch) for batch in batches))

    def followed_by(self, batch: Batch, *, kept: int) -> Batches:
        """These batches followed by `batch`; only the last `kept` of them."""
        return Batches((self.packed + _BATCH.pack(*batch))[-kept * _BATCH.size :])

    def __iter__(self) -> Iterator[Batch]:
        return map(Batch._make, _BATCH.iter_unpack(self.packed))

    def __len__(self) -> int:
        return len(self.packed) // _BATCH.size

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Batch, ...]: ...

    def __getitem__(self, index: int | slice) -> Batch | tuple[Batch, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (Batches, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class Progress:
    """What a log stores about a writer: the next sequence number, its fence, and the last batches, oldest first."""

    next: int = 0
    fence: int = 0
    recent: Seq[Batch] = Batches()
