"""The latest event of each key of a stream, in memory: a stream read as a table."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.core.routing import key_text, key_texts
from anabranch.errors import InvalidArgument, TooLarge, Truncated
from anabranch.log.read import LogReader, SegmentRows, Selection
from anabranch.log.view import load
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
from anabranch.reading.cursor import StreamCursor
from anabranch.reading.row_source import StreamDelivery
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Lock

_EARLIEST: Final = -(1 << 62)
_ENCODED_ROWS_MIN: Final = 512  # fewer rows take less time one by one than Arrow's calls do


class LatestEvents:
    """Looks up latest events. Keeps the tables of the most recently used streams, up to `limits.LATEST_BYTES_MAX` and
    `limits.LATEST_STREAMS_MAX`. Thread-safe."""

    def __init__(self, catalog: Catalog, logs: LogReader, runtime: Runtime) -> None:
        self._catalog = catalog
        self._logs = logs
        self._tasks = runtime.tasks
        self._lock = runtime.tasks.lock()
        self._tables: OrderedDict[tuple[StreamId, bool], _KeyTable] = OrderedDict()

    def get(self, stream: StreamId, key: Any, *, by_time: bool = False) -> Event | None:
        """The last event of `key` (a plain value or its canonical text) that was durable at the call; None if the key
        has no event, or its last event was truncated. Of several events with the same append time, the last is the one
        with the greatest offset; with `by_time`, the one with the newest event time. The first call reads the whole
        stream, a later call what was appended since. Raises StreamNotFound, InvalidArgument for a stream without a key,
        InvalidKey, TooLarge, and what reading raises."""
        text = key_text(key)
        with self._lock:
            name = (stream, by_time)
            table = self._tables.get(name) or _KeyTable(self._catalog, self._logs, stream, by_time, self._tasks.lock())
            self._tables[name] = table
            self._tables.move_to_end(name)
        try:
            found = table.get(text)
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


_Numbers: TypeAlias = npt.NDArray[np.int64]


class _HeldRows(NamedTuple):
    """Rows of a stream with the segment, offset and append time of each: as arrays, or each as one number for all
    rows."""

    batch: pa.RecordBatch
    segments: int | _Numbers  # packed
    offsets: int | _Numbers  # a number is the offset of the first row, which the others follow
    appended: int | _Numbers  # µs

    @classmethod
    def read(cls, segment: SegmentId, rows: SegmentRows) -> _HeldRows:
        """The rows of one segment."""
        offsets = rows.first if rows.offsets is None else rows.offsets.to_numpy()
        appended = rows.appended if isinstance(rows.appended, int) else rows.appended.cast(pa.int64()).to_numpy()
        return cls(rows.batch, segment.packed, offsets, appended)

    @classmethod
    def together(cls, parts: Sequence[_HeldRows]) -> _HeldRows:
        """The rows of all parts, with arrays."""
        arrays = (np.concatenate(column) for column in zip(*(each[1:] for each in parts), strict=True))
        return cls(pa.concat_batches([each.batch for each in parts]), *arrays)

    def take(self, rows: _Numbers) -> _HeldRows:
        """These rows, with arrays."""
        segments, appended = (
            np.full(len(rows), each) if isinstance(each, int) else each[rows] for each in (self.segments, self.appended)
        )
        offsets = self.offsets + rows if isinstance(self.offsets, int) else self.offsets[rows]
        return _HeldRows(self.batch.take(pa.array(rows)), segments, offsets, appended)

    def place(self, row: int) -> tuple[SegmentId, int]:
        """The segment and offset of a row."""
        segment = self.segments if isinstance(self.segments, int) else int(self.segments[row])
        return SegmentId.unpack(segment), self.offsets + row if isinstance(self.offsets, int) else int(
            self.offsets[row]
        )

    def append_time(self, row: int) -> int:
        """In µs."""
        return self.appended if isinstance(self.appended, int) else int(self.appended[row])

    def times(self, time: str | None) -> npt.NDArray[np.void]:
        """The append and event time of each row, in their order; those without an event time come first."""
        found = np.zeros(self.batch.num_rows, [("appended", np.int64), ("time", np.int64)])
        found["appended"] = self.appended
        if time is not None:
            found["time"] = _event_times(self.batch.column(time))
        return found


class _KeyTable:
    """One stream's latest events: rows, and where in them the last one of each key is."""

    def __init__(self, catalog: Catalog, logs: LogReader, stream: StreamId, by_time: bool, lock: Lock) -> None:
        self._catalog = catalog
        self._logs = logs
        self._stream = stream
        self._by_time = by_time
        self._lock = lock
        self._cursor: StreamCursor | None = None
        self._opened: StreamView | None = None
        self._batches: list[_HeldRows] = []
        self._places: dict[str, tuple[int, int]] = {}  # batch and row, by the key's canonical text
        self._bytes = self._bytes_live = 0  # of all batches; of what was left when they were last compacted

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return self._bytes + len(self._places) * limits.LATEST_KEY_BYTES

    def get(self, key: str | None) -> Event | None:
        with self._lock:
            view = self._read_on()
            place = None if key is None else self._places.get(key)
            if place is None:
                return None
            rows, row = self._batches[place[0]], place[1]
            segment, offset = rows.place(row)
            if not _still_holds(view, segment, offset):
                return None
            found, appended = rows.batch.slice(row, 1), rows.append_time(row)
            return Event(EventRun(self._stream, view.info.schema, segment, found, offset, appended=appended), 0)

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
        """True if columns were added since the last call. (A replacement makes all segments new: it raises
        `Truncated`.)"""
        return self._opened is not None and view.info.schema_version != self._opened.info.schema_version

    def _take(self, found: StreamDelivery, view: StreamView) -> None:
        self._add(_HeldRows.read(found.segment, found.rows))
        if self._bytes > 2 * self._bytes_live + limits.LATEST_COMPACT_BYTES:
            self._compact(view)

    def _add(self, rows: _HeldRows) -> None:
        number = len(self._batches)
        self._batches.append(rows)
        self._bytes += rows.batch.nbytes
        places = ((key, (number, row)) for key, row in self._last_rows(rows))
        if self._by_time:
            places = ((key, self._later(self._places.get(key, place), place)) for key, place in places)
        self._places.update(places)

    def _last_rows(self, rows: _HeldRows) -> Iterable[tuple[str, int]]:
        """Each key of the rows, with the number of its last row."""
        order = np.arange(rows.batch.num_rows)
        if self._by_time:
            order = np.argsort(rows.times(self._schema.time), kind="stable", axis=None)
        assert self._schema.key is not None
        keys = key_texts(rows.batch.column(self._schema.key))
        if len(order) < _ENCODED_ROWS_MIN:
            plain = keys.to_pylist()
            return {key: row for row in order.tolist() if (key := plain[row]) is not None}.items()
        encoded = keys.dictionary_encode()
        named = order[encoded.indices.is_valid().to_numpy(zero_copy_only=False)[order]]
        last = np.zeros(len(encoded.dictionary), np.int64)
        # Where an index occurs twice, the last assignment counts.
        last[encoded.indices.take(pa.array(named)).to_numpy()] = named
        return zip(encoded.dictionary.to_pylist(), last.tolist(), strict=True)

    @property
    def _schema(self) -> StreamSchema:
        assert self._opened is not None
        return self._opened.info.schema

    def _later(self, before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
        """The later one of two places, the second of which was read after the first."""
        first, second = (self._time(*place) for place in (before, after))
        return before if first > second else after

    def _time(self, number: int, row: int) -> tuple[int, int]:
        rows, time = self._batches[number], self._schema.time
        event_time = _EARLIEST if time is None else int(_event_times(rows.batch.column(time).slice(row, 1))[0])
        return rows.append_time(row), event_time

    def _compact(self, view: StreamView) -> None:
        """Drop the rows that are no longer the latest of a key, and those that were truncated."""
        chosen: dict[int, list[int]] = {}
        for number, row in self._places.values():
            if _still_holds(view, *self._batches[number].place(row)):
                chosen.setdefault(number, []).append(row)
        kept = [
            self._batches[number].take(np.sort(np.array(rows, np.int64))) for number, rows in sorted(chosen.items())
        ]
        self._batches, self._places, self._bytes = [], {}, 0
        if kept:
            self._add(_HeldRows.together(kept))
        self._bytes_live = self._bytes
        if self.size > limits.LATEST_BYTES_MAX:
            raise TooLarge(f"the table of the latest events of '{view.info.name}'", self.size, limits.LATEST_BYTES_MAX)


def _event_times(column: pa.Array) -> _Numbers:
    found: _Numbers = pc.fill_null(column.cast(pa.int64()), _EARLIEST).to_numpy(zero_copy_only=False)
    return found


def _still_holds(view: StreamView, segment: SegmentId, offset: int) -> bool:
    found = view.segments.get(segment)
    return found is not None and offset >= found.head
