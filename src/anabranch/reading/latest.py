"""The latest event of each key of a stream, in memory: a stream read as a table."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.core.constant_columns import constant
from anabranch.errors import InvalidArgument, TooLarge, Truncated
from anabranch.log.read import LogReader, Selection, appended_of, offsets_of
from anabranch.log.view import load
from anabranch.model.columns import ADDED, APPENDED
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.reading.cursor import StreamCursor
from anabranch.reading.row_source import StreamDelivery
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Lock

_EARLIEST: Final = -(1 << 62)


class LatestEvents:
    """Looks up latest events. Keeps the tables of the streams that were asked for last, up to `limits.LATEST_BYTES_MAX` and
    `limits.LATEST_STREAMS_MAX`. Thread-safe."""

    def __init__(self, catalog: Catalog, logs: LogReader, runtime: Runtime) -> None:
        self._catalog = catalog
        self._logs = logs
        self._tasks = runtime.tasks
        self._lock = runtime.tasks.lock()
        self._tables: OrderedDict[tuple[StreamId, bool], _KeyTable] = OrderedDict()

    def get(self, stream: StreamId, key: str, *, by_time: bool = False) -> Event | None:
        """The last event of `key` among those that were durable when it was called; None if there is none, or it was
        truncated. With `by_time`, of those that have the same append time the one with the newest event time is the last,
        else the one with the greatest offset. The first call reads the whole stream, a later one what was appended since. Raises StreamNotFound,
        InvalidArgument for a stream without a key, TooLarge, and what reading raises."""
        with self._lock:
            name = (stream, by_time)
            table = self._tables.get(name) or _KeyTable(self._catalog, self._logs, stream, by_time, self._tasks.lock())
            self._tables[name] = table
            self._tables.move_to_end(name)
        try:
            found = table.get(key)
        except BaseException:
            self._drop(name, table)  # what it holds may be half of what was read
            raise
        with self._lock:
            while len(self._tables) > 1 and (
                len(self._tables) > limits.LATEST_STREAMS_MAX
                or sum(each.size for each in self._tables.values()) > limits.LATEST_BYTES_MAX
            ):
                self._tables.popitem(last=False)
        return found

    def _drop(self, name: tuple[StreamId, bool], table: _KeyTable) -> None:
        with self._lock:
            if self._tables.get(name) is table:
                del self._tables[name]


class _KeyTable:
    """One stream's latest events: batches with the three added columns, and where in them the row of each key is."""

    def __init__(self, catalog: Catalog, logs: LogReader, stream: StreamId, by_time: bool, lock: Lock) -> None:
        self._catalog = catalog
        self._logs = logs
        self._stream = stream
        self._by_time = by_time
        self._lock = lock
        self._cursor: StreamCursor | None = None
        self._opened: StreamView | None = None
        self._batches: list[pa.RecordBatch] = []
        self._places: dict[str, tuple[int, int]] = {}  # batch and row
        self._bytes = self._bytes_live = 0  # of all batches; of what was left when they were last compacted

    @property
    def size(self) -> int:
        """How many bytes it takes, about."""
        return self._bytes + len(self._places) * limits.LATEST_KEY_BYTES

    def get(self, key: str) -> Event | None:
        with self._lock:
            view = self._read_on()
            place = self._places.get(key)
            if place is None:
                return None
            batch, row = self._batches[place[0]], place[1]
            segment, offset = batch.column("_segment")[row].as_py(), batch.column("_offset")[row].as_py()
            if not _still_holds(view, segment, offset):
                return None
            rows = pa.RecordBatch.from_arrays(batch.slice(row, 1).columns[: -len(ADDED)], schema=self._columns)
            appended = batch.column("_appended")[row].value
            run = EventRun(self._stream, view.info.schema, SegmentId.unpack(segment), rows, offset, appended=appended)
            return Event(run, 0)

    @property
    def _columns(self) -> pa.Schema:
        assert self._opened is not None
        return self._opened.info.schema.columns

    def _read_on(self) -> StreamView:
        """Read the events that were appended since the last call. Returns the stream as it is now."""
        cursor = self._cursor or self._begin()
        while True:
            try:
                cursor.refresh()
                if self._changed(cursor.view):
                    cursor = self._begin()
                while (found := cursor.pull()) is not None:
                    self._take(found, cursor.view)
            except Truncated:  # the stream was truncated beyond this position meanwhile
                cursor = self._begin()
                continue
            return cursor.view

    def _begin(self) -> StreamCursor:
        with self._catalog.reading() as reading:
            view = load(reading, self._stream)
        if view.info.schema.key is None:
            raise InvalidArgument(f"'{view.info.name}' has no key column, so its events have no keys")
        self._opened, self._batches, self._places, self._bytes, self._bytes_live = view, [], {}, 0, 0
        if self._cursor is not None:
            self._cursor.close()
        selection = Selection(view.info.schema.columns)
        self._cursor = StreamCursor(
            self._catalog, self._logs, view, start=cuts.head_cut(view), end=None, selection=selection
        )
        return self._cursor

    def _changed(self, view: StreamView) -> bool:
        """Whether the events have more columns by now. (A replacement makes all segments new, which is `Truncated`.)"""
        return self._opened is not None and view.info.schema_version != self._opened.info.schema_version

    def _take(self, found: StreamDelivery, view: StreamView) -> None:
        rows = found.rows
        count = rows.batch.num_rows
        added = [constant(found.segment.packed, count), offsets_of(rows), appended_of(rows)]
        schema = pa.schema([*self._columns, *ADDED])
        self._add(pa.RecordBatch.from_arrays([*rows.batch.columns, *added], schema=schema))
        if self._bytes > 2 * self._bytes_live + limits.LATEST_COMPACT_BYTES:
            self._compact(view)

    def _add(self, batch: pa.RecordBatch) -> None:
        assert self._opened is not None and self._opened.info.schema.key is not None
        keys = batch.column(self._opened.info.schema.key).dictionary_encode()
        number = len(self._batches)
        named = np.flatnonzero(keys.indices.is_valid().to_numpy(zero_copy_only=False))
        last = np.zeros(len(keys.dictionary), np.int64)
        if self._by_time:
            named = named[np.argsort(_times(batch, self._opened.info.schema.time)[named], kind="stable", axis=None)]
        last[keys.indices.take(pa.array(named)).to_numpy()] = named  # of equal indices the last one counts
        self._batches.append(batch)
        self._bytes += batch.nbytes
        places = ((key, (number, row)) for key, row in zip(keys.dictionary.to_pylist(), last.tolist(), strict=True))
        if self._by_time:
            places = ((key, self._later(self._places.get(key, place), place)) for key, place in places)
        self._places.update(places)

    def _later(self, before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
        """The later one of two places, the second of which was read after the first."""
        assert self._opened is not None
        first, second = (
            _times(self._batches[batch].slice(row, 1), self._opened.info.schema.time)[0]
            for batch, row in (before, after)
        )
        return before if first.tolist() > second.tolist() else after

    def _compact(self, view: StreamView) -> None:
        """Give up the rows that are no longer the latest of a key, and those that were truncated."""
        begins = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        rows = np.sort(np.fromiter((begins[batch] + row for batch, row in self._places.values()), np.int64))
        kept = pa.Table.from_batches(self._batches).take(rows)
        segments, offsets = (kept.column(name).to_numpy() for name in ADDED.names[:2])
        there = [_still_holds(view, segment, offset) for segment, offset in zip(segments, offsets, strict=True)]
        kept = kept.filter(pa.array(there, pa.bool_())).combine_chunks()
        self._batches, self._places, self._bytes = [], {}, 0
        for batch in kept.to_batches():
            self._add(batch)
        self._bytes_live = self._bytes
        if self.size > limits.LATEST_BYTES_MAX:
            raise TooLarge(f"the table of the latest events of '{view.info.name}'", self.size, limits.LATEST_BYTES_MAX)


def _times(batch: pa.RecordBatch, time: str | None) -> npt.NDArray[np.void]:
    """The append and event time of each row, in their order; those without an event time come first."""
    found = np.zeros(batch.num_rows, [("appended", np.int64), ("time", np.int64)])
    found["appended"] = batch.column(APPENDED).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if time is not None:
        found["time"] = pc.fill_null(batch.column(time).cast(pa.int64()), _EARLIEST).to_numpy(zero_copy_only=False)
    return found


def _still_holds(view: StreamView, segment: int, offset: int) -> bool:
    found = view.segments.get(SegmentId.unpack(int(segment)))
    return found is not None and offset >= found.head
