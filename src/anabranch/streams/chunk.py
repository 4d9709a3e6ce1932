"""Events on their way: rows gathered from single writes, and pieces of batches waiting to be taken by a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.core.raw_event import RawEvent
from anabranch.core.routing import KeyPoints
from anabranch.core.rows import rows_to_batch, wrong_rows
from anabranch.errors import SchemaMismatch
from anabranch.log.ahead import Ahead
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.model.schema import RAW, StreamSchema
from anabranch.streams.ack import ChunkState

Rows = npt.NDArray[np.intp]

FIRST: Final[Rows] = np.zeros(1, np.intp)  # what there is of a single row
FIRST.flags.writeable = False

_VIEWED_BYTES_MIN = 1 << 20  # looking at a payload where it lies costs a microsecond more than copying a small one


class RawChunk:
    """Single events of a raw stream, in columns."""

    __slots__ = ("keys", "offered", "payloads", "state", "times")

    def __init__(self, state: ChunkState) -> None:
        self.state = state
        self.offered = False  # the appender knows that there is something to take
        self.payloads: list[bytes | memoryview] = []
        self.keys: list[str | None] = []
        self.times: list[int | None] | None = None  # None while no event brought a time of its own

    def __len__(self) -> int:
        return len(self.payloads)

    def cut(self, count: int) -> None:
        """Keep the first `count` events: adding another one was interrupted."""
        for column in (self.payloads, self.keys, self.times or []):
            del column[count:]

    def close(self, now: Micros) -> list[Piece]:
        """The events as a batch; those without a time get `now`."""
        count = len(self.payloads)
        if count == 1 and len(self.payloads[0]) < _VIEWED_BYTES_MIN:
            self.state.total = 1
            time = now if self.times is None or self.times[0] is None else Micros(self.times[0])
            return [Piece(RawEvent(self.keys[0], time, self.payloads[0]), [(self.state, FIRST)])]
        if self.times is None:
            times = pa.repeat(pa.scalar(now, TIME_TYPE), count)
        else:
            times = pa.array([now if time is None else time for time in self.times], TIME_TYPE)
        keys, payloads = pa.array(self.keys, pa.string()), _binary(self.payloads)
        batch = pa.record_batch([keys, times, payloads], schema=RAW.columns)
        self.state.total = count
        return [Piece(batch, [(self.state, np.arange(count))])]


class TypedChunk:
    """Single events of a typed stream, as mappings."""

    __slots__ = ("offered", "rows", "schema", "state")

    def __init__(self, state: ChunkState, schema: StreamSchema) -> None:
        self.state = state
        self.schema = schema
        self.offered = False
        self.rows: list[Any] = []

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, count: int) -> None:
        """Keep the first `count` events: adding another one was interrupted."""
        del self.rows[count:]

    def close(self, now: Micros) -> list[Piece]:
        """The events as a batch. A row that no column type takes fails alone."""
        self.state.total = len(self.rows)
        numbers = np.arange(len(self.rows))
        try:
            return [Piece(rows_to_batch(self.rows, self.schema), [(self.state, numbers)])]
        except SchemaMismatch:
            wrong = dict(wrong_rows(self.rows, self.schema))
        right = np.array([number for number in numbers if number not in wrong], dtype=np.intp)
        for number, error in wrong.items():
            self.state.fail(error, numbers[number : number + 1])
        if not len(right):
            return []
        return [Piece(rows_to_batch([self.rows[i] for i in right], self.schema), [(self.state, right)])]


def _binary(payloads: list[bytes | memoryview]) -> pa.Array:
    """The payloads as a column; a single one that is not small is not copied."""
    if len(payloads) != 1 or len(payloads[0]) < _VIEWED_BYTES_MIN:
        return pa.array(payloads, pa.binary())
    edges = pa.py_buffer(np.array([0, len(payloads[0])], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, edges, pa.py_buffer(payloads[0])])


Chunk = RawChunk | TypedChunk


def new_chunk(schema: StreamSchema, state: ChunkState) -> Chunk:
    """An empty chunk for streams of this schema."""
    return RawChunk(state) if schema.raw else TypedChunk(state, schema)


@dataclass(slots=True)
class Piece:
    """A batch waiting to be routed. `origins` tell whose rows it holds, in order: the rows of the first state, then
    those of the next. `points`, where known, are the key points of its rows. An `atomic` piece stands or falls whole;
    an `expected` one is appended only where its segment holds that many events. A `large` one is a single event, which
    lies `ahead` in a blob of its own once it is durable."""

    batch: pa.RecordBatch | RawEvent
    origins: list[tuple[ChunkState, Rows]]
    points: KeyPoints | None = None
    atomic: bool = False
    expected: int | None = None
    large: bool = False
    ahead: Ahead | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.batch.nbytes

    @property
    def alone(self) -> bool:
        """True if it must not be joined with its neighbours."""
        return self.atomic or self.large or self.expected is not None

    @property
    def load(self) -> int:
        """The bytes that a commit has to encode and write for it."""
        return self.size if self.ahead is None else 0


def join(pieces: Sequence[Piece]) -> Piece:
    """Several pieces as one, in order."""
    if len(pieces) == 1:
        return pieces[0]
    points = [piece.points for piece in pieces]
    known = [each for each in points if each is not None]
    return Piece(
        pa.concat_batches([_plain(piece.batch) for piece in pieces]),
        [origin for piece in pieces for origin in piece.origins],
        KeyPoints.joined(known) if len(known) == len(points) else None,
    )


def _plain(batch: pa.RecordBatch | RawEvent) -> pa.RecordBatch:
    return batch.batch() if isinstance(batch, RawEvent) else batch


def origins_of(piece: Piece, rows: Rows) -> list[tuple[ChunkState, Rows, int]]:
    """Whose events stand at the rising `rows` of the piece: (state, their numbers in the state, place of the first
    within `rows`)."""
    if len(piece.origins) == 1:
        state, numbers = piece.origins[0]
        if len(numbers) == 1:
            return [(state, numbers, 0)]
        return [(state, numbers[rows], 0)]
    found, begin = [], 0
    for state, numbers in piece.origins:
        low, high = np.searchsorted(rows, [begin, begin + len(numbers)])
        if high > low:
            found.append((state, numbers[rows[low:high] - begin], int(low)))
        begin += len(numbers)
    return found
