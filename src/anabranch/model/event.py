"""An event as a reader yields it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_datetime

_DATETIME_SAFE_US = 60_000_000_000_000_000  # about 1,900 years either side of 1970, all within a datetime's range


class EventRun:
    """What the events of one record batch share. Columns become Python values once, on first access.

    `batch` holds the columns of the stream that were read; `body` names those of a typed event's body (None: all).
    Event `i` has offset `offsets[i]`, or `first + i` if `offsets` is None. `appended` is the append time of all events
    in µs, or an array of timestamps.
    """

    __slots__ = ("_bodies", "_columns", "appended", "batch", "body", "first", "offsets", "schema", "segment", "stream")

    def __init__(
        self,
        stream: StreamId,
        schema: StreamSchema,
        segment: SegmentId,
        batch: pa.RecordBatch,
        first: int,
        offsets: list[int] | None = None,
        appended: int | pa.Array | None = None,
        body: Sequence[str] | None = None,
    ) -> None:
        self.stream = stream
        self.schema = schema
        self.segment = segment
        self.batch = batch
        self.first = first
        self.offsets = offsets
        self.appended = appended
        self.body = body
        self._bodies: list[Any] | None = None
        self._columns: dict[str, list[Any]] = {}

    def column(self, name: str) -> list[Any]:
        """A column as Python values; times as integers of µs."""
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = _values(self.batch.column(name))
        return values

    def bodies(self) -> list[Any]:
        """The body of each event; see `Event.body`."""
        if self._bodies is None:
            if self.schema.raw:
                self._bodies = self.column("payload")
            else:
                names = list(self.batch.schema.names if self.body is None else self.body)
                columns = [self._moments(name) for name in names]
                self._bodies = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return self._bodies

    def _moments(self, name: str) -> list[Any]:
        """A column as Python values; times as datetimes, aware if the column has a time zone."""
        kind = self.batch.schema.field(name).type
        if not pa.types.is_timestamp(kind):
            return self.column(name)
        zone = UTC if kind.tz else None
        column = self.batch.column(name)
        values = column.cast(pa.int64())
        if column.null_count or not pc.all(pc.less(pc.abs(values), _DATETIME_SAFE_US)).as_py():
            return [value if value is None else to_datetime(value).replace(tzinfo=zone) for value in self.column(name)]
        # Using numpy's durations is eight times as fast as converting one by one.
        origin = datetime(1970, 1, 1, tzinfo=zone)
        return list(map(origin.__add__, values.cast(pa.duration("us")).to_numpy().tolist()))

    def events(self) -> list[Event]:
        """All events of the run, in offset order."""
        return [Event(self, i) for i in range(self.batch.num_rows)]


class Event:
    """One event. Values are taken from its batch on access, so an unused field costs nothing."""

    __slots__ = ("_index", "_run")

    def __init__(self, run: EventRun, index: int) -> None:
        self._run = run
        self._index = index

    @property
    def key(self) -> Any:
        """The routing key as stored, or None."""
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
        return self._run.bodies()[self._index]

    @property
    def row(self) -> pa.RecordBatch:
        """The columns that were read, as a batch of one row."""
        return self._run.batch.slice(self._index, 1)

    @property
    def appended_us(self) -> int | None:
        """When the event was appended, in µs UTC, by the store's clock."""
        appended = self._run.appended
        return appended if appended is None or isinstance(appended, int) else appended[self._index].value

    @property
    def segment(self) -> SegmentId:
        """The segment that holds the event."""
        return self._run.segment

    @property
    def offset(self) -> int:
        """The event's ordinal in the segment, from 0."""
        run = self._run
        return run.first + self._index if run.offsets is None else run.offsets[self._index]

    @property
    def pointer(self) -> EventPointer:
        """The event's pointer, for `store.fetch`."""
        return EventPointer(self._run.stream, self._run.segment, self.offset)

    def alone(self) -> EventRun:
        """The run that holds this event only."""
        run = self._run
        batch = run.batch.slice(self._index, 1)
        return EventRun(run.stream, run.schema, run.segment, batch, self.offset, None, self.appended_us, run.body)

    def __repr__(self) -> str:
        return (
            f"Event(key={self.key!r}, time={self.time_us!r}, body={self.body!r}, "
            f"segment={self.segment}, offset={self.offset})"
        )


def _values(column: pa.Array) -> list[Any]:
    # Arrow converts each timestamp to a datetime with a zone, which is 100 × slower than integers.
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count == 0 and pa.types.is_integer(column.type):
        # Not by `to_numpy`, whose first call in a process imports pandas.
        values: list[Any] = np.from_dlpack(column).tolist()
        return values
    return list(column.to_pylist())
