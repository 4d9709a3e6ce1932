"""An event as a reader hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_datetime


class EventRun:
    """The shared part of the events of one record batch: columns become Python values once, when first asked for.

    `batch` holds the stream's columns; event `i` has offset `offsets[i]`, or `first + i` where offsets is None.
    """

    __slots__ = ("_columns", "appended", "batch", "first", "offsets", "schema", "segment", "stream")

    def __init__(
        self,
        stream: StreamId,
        schema: StreamSchema,
        segment: SegmentId,
        batch: pa.RecordBatch,
        first: int,
        offsets: list[int] | None = None,
        appended: pa.Array | None = None,
    ) -> None:
        self.stream = stream
        self.schema = schema
        self.segment = segment
        self.batch = batch
        self.first = first
        self.offsets = offsets
        self.appended = appended
        self._columns: dict[str, list[Any]] = {}

    def column(self, name: str) -> list[Any]:
        """A column as Python values; times as integers of µs."""
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = _values(self.batch.column(name))
        return values

    def events(self) -> list[Event]:
        """All events of the run, in offset order."""
        return [Event(self, i) for i in range(self.batch.num_rows)]


class Event:
    """One event. Values are taken from its batch when asked for, so an unused field costs nothing."""

    __slots__ = ("_index", "_run")

    def __init__(self, run: EventRun, index: int) -> None:
        self._run = run
        self._index = index

    @property
    def key(self) -> Any:
        """The routing key as it is stored, or None."""
        name = self._run.schema.key
        return None if name is None else self._run.column(name)[self._index]

    @property
    def time_us(self) -> int | None:
        """The event time in µs UTC, or None."""
        name = self._run.schema.time
        return None if name is None else self._run.column(name)[self._index]

    @property
    def time(self) -> datetime | None:
        """The event time as an aware datetime, or None."""
        micros = self.time_us
        return None if micros is None else to_datetime(micros)

    @property
    def body(self) -> Any:
        """Bytes for a raw stream, else a dict of the columns read (times as datetimes)."""
        run = self._run
        if run.schema.raw:
            return run.column("payload")[self._index]
        return {name: self._field(name) for name in run.batch.schema.names}

    def _field(self, name: str) -> Any:
        value = self._run.column(name)[self._index]
        if value is not None and pa.types.is_timestamp(self._run.batch.schema.field(name).type):
            moment = to_datetime(value)
            return moment if self._run.batch.schema.field(name).type.tz else moment.replace(tzinfo=None)
        return value

    @property
    def segment(self) -> SegmentId:
        """The segment that holds the event."""
        return self._run.segment

    @property
    def offset(self) -> int:
        """Its ordinal in the segment, from 0."""
        run = self._run
        return run.first + self._index if run.offsets is None else run.offsets[self._index]

    @property
    def pointer(self) -> EventPointer:
        """Where it is, for `store.fetch`."""
        return EventPointer(self._run.stream, self._run.segment, self.offset)

    def __repr__(self) -> str:
        body: Any = self.body
        if isinstance(body, Mapping):
            body = dict(body)
        return f"Event(key={self.key!r}, time={self.time_us!r}, body={body!r}, segment={self.segment}, offset={self.offset})"


def _values(column: pa.Array) -> list[Any]:
    # Arrow turns each timestamp into a datetime with a zone, which is 100 × slower than integers.
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count == 0 and pa.types.is_integer(column.type):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return list(column.to_pylist())
