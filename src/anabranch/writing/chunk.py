"""Chunks: the rows of single events, gathered until they are closed into a pending batch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.core.binary_column import binary_column
from anabranch.core.python_rows import rows_to_batch, wrong_rows
from anabranch.core.raw_event import RawEvent
from anabranch.errors import SchemaMismatch
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.model.schema import RAW, StreamSchema
from anabranch.writing.acknowledgement import Acknowledgement
from anabranch.writing.pending_batch import PendingBatch, Rows

FIRST: Final[Rows] = np.zeros(1, np.intp)  # the row numbers of a single row
FIRST.flags.writeable = False

_VIEWED_BYTES_MIN = 1 << 20  # referring to a payload in place costs a microsecond more than copying a small one


class RawChunk:
    """Single events of a raw stream, in columns."""

    __slots__ = ("acknowledgement", "batches", "keys", "offered", "payloads", "times")

    def __init__(self, acknowledgement: Acknowledgement) -> None:
        self.acknowledgement = acknowledgement
        self.offered = False  # True once the appender knows that there is something to take
        self.batches: list[PendingBatch] | None = None  # set once it is closed
        self.payloads: list[bytes | memoryview] = []
        self.keys: list[str | None] = []
        self.times: list[int | None] | None = None  # None while no event brought a time of its own

    def __len__(self) -> int:
        return len(self.payloads)

    def add(self, payload: bytes | memoryview, key: str | None, time: int | None) -> None:
        """Add an event. If interrupted, it is either added or not: the payload, added last, decides."""
        row = len(self.payloads)
        if len(self.keys) != row or (self.times is not None and len(self.times) != row):
            self._align(row)
        if time is not None and self.times is None:
            self.times = [None] * row
        if self.times is not None:
            self.times.append(time)
        self.keys.append(key)
        self.payloads.append(payload)

    def _align(self, count: int) -> None:
        """Align the columns after adding an event was interrupted between them."""
        del self.keys[count:]
        if self.times is not None:
            del self.times[count:]
            self.times += [None] * (count - len(self.times))

    def close(self, now: Micros) -> list[PendingBatch]:
        """The events as a batch; those without a time get `now`."""
        count = len(self.payloads)
        self._align(count)
        if count == 1 and len(self.payloads[0]) < _VIEWED_BYTES_MIN:
            self.acknowledgement.total = 1
            time = now if self.times is None or self.times[0] is None else Micros(self.times[0])
            return [PendingBatch(RawEvent(self.keys[0], time, self.payloads[0]), [(self.acknowledgement, FIRST)])]
        if self.times is None:
            times = pa.repeat(pa.scalar(now, TIME_TYPE), count)
        else:
            times = pa.array([now if time is None else time for time in self.times], TIME_TYPE)
        keys, payloads = pa.array(self.keys, pa.string()), _binary(self.payloads)
        batch = pa.record_batch([keys, times, payloads], schema=RAW.columns)
        self.acknowledgement.total = count
        return [PendingBatch(batch, [(self.acknowledgement, np.arange(count))])]


class TypedChunk:
    """Single events of a typed stream, as mappings."""

    __slots__ = ("acknowledgement", "batches", "offered", "rows", "schema")

    def __init__(self, acknowledgement: Acknowledgement, schema: StreamSchema) -> None:
        self.acknowledgement = acknowledgement
        self.schema = schema
        self.offered = False
        self.batches: list[PendingBatch] | None = None
        self.rows: list[Any] = []

    def __len__(self) -> int:
        return len(self.rows)

    def close(self, now: Micros) -> list[PendingBatch]:
        """The events as a batch. A row that its column types do not accept fails alone."""
        self.acknowledgement.total = len(self.rows)
        numbers = np.arange(len(self.rows))
        try:
            return [PendingBatch(rows_to_batch(self.rows, self.schema), [(self.acknowledgement, numbers)])]
        except SchemaMismatch:
            wrong = dict(wrong_rows(self.rows, self.schema))
        right = np.array([number for number in numbers if number not in wrong], dtype=np.intp)
        for number, error in wrong.items():
            self.acknowledgement.record_refusal(error, numbers[number : number + 1], key=number)
        if not len(right):
            return []
        return [
            PendingBatch(rows_to_batch([self.rows[i] for i in right], self.schema), [(self.acknowledgement, right)])
        ]


def _binary(payloads: list[bytes | memoryview]) -> pa.Array:
    """The payloads as a column; a single one that is not small is not copied."""
    if len(payloads) != 1 or len(payloads[0]) < _VIEWED_BYTES_MIN:
        return pa.array(payloads, pa.binary())
    return binary_column(payloads[0], [0, len(payloads[0])])


Chunk = RawChunk | TypedChunk


def new_chunk(schema: StreamSchema, acknowledgement: Acknowledgement) -> Chunk:
    """An empty chunk for streams of this schema."""
    return RawChunk(acknowledgement) if schema.raw else TypedChunk(acknowledgement, schema)
