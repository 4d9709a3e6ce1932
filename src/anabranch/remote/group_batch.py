"""A batch of a group reader at the client: handed to the application event by event, or as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint

import pyarrow as pa

from anabranch.core.constant_columns import consecutive, constant
from anabranch.model.columns import ADDED, TIME_TYPE
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import StreamId
from anabranch.model.position import Position, StreamSegment
from anabranch.model.schema import StreamSchema
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, unpack_batch

_APPENDED = "_appended"


class GroupBatch:
    """One batch that a broker sent. Only the application's thread takes events; another may `stop` it."""

    def __init__(self, frame: Frame) -> None:
        """Raises InvalidArgument."""
        fields = Fields(frame.fields)
        self.number = fields.count("batch")
        self.segment = StreamSegment.parse(fields.text("segment"))
        self.position = Position.parse(fields.text("position")).as_dict()  # before this batch
        self.first = fields.count("first")
        batch = unpack_batch(frame.data)
        appended: int | pa.Array | None = fields.optional_count("appended")
        if appended is None:
            appended = batch.column(_APPENDED)
            batch = batch.drop_columns([_APPENDED])
        schema = StreamSchema(
            batch.schema, fields.optional_text("key"), fields.optional_text("time"), fields.flag("raw")
        )
        self._name = fields.text("name")
        self._batch = batch
        self._appended = appended
        run = EventRun(StreamId(self.segment.stream), schema, self.segment.segment, batch, self.first, None, appended)
        self._remaining = iter(range(batch.num_rows))
        self.events: Iterator[Event] = map(Event, repeat(run), self._remaining)
        self.whole = False  # it was handed out as a whole

    @property
    def handed_out(self) -> int:
        """How many of its events were handed out."""
        rows: int = self._batch.num_rows
        return rows if self.whole else rows - length_hint(self._remaining)

    @property
    def next_offset(self) -> int:
        """The offset after the last event that was handed out."""
        return self.first + self.handed_out

    def stop(self) -> int:
        """Hand out no further event; returns `next_offset`."""
        # One call of C code, so no event is handed out in between by another thread.
        left = 0 if self.whole else len(list(self._remaining))
        offset: int = self.first + self._batch.num_rows - left
        return offset

    def as_batch(self) -> pa.RecordBatch:
        """The batch with the columns that a group reader adds; it counts as handed out as a whole."""
        self.whole, self.events = True, iter(())
        count = self._batch.num_rows
        appended = self._appended
        times = constant(appended, count, TIME_TYPE) if isinstance(appended, int) else appended
        added = [constant(self.segment.segment.packed, count), consecutive(self.first, count), times]
        schema = pa.schema([*self._batch.schema, *ADDED], metadata={"stream": self._name})
        return pa.RecordBatch.from_arrays([*self._batch.columns, *added], schema=schema)
