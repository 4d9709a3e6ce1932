"""Locates the bytes of a byte stream: maps byte positions to event offsets, and reads the chunks from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.streams import BYTE_HEAD
from anabranch.core.byte_stream import BYTES, is_byte_stream, may_hold_bytes, no_byte_stream
from anabranch.errors import CorruptStore
from anabranch.log.read import LogReader, Selection
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.time_index import first_at
from anabranch.log.view import load, refresh
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import StreamView

_CHUNKS = Selection(BYTES.columns, rows_max=16)
_EXTENTS = 16  # in one page of a plan: chunks are large


class ByteChunk(NamedTuple):
    """The bytes at the positions `start <= position < stop`."""

    start: int
    stop: int
    data: pa.Buffer


class ByteIndex:
    """The positions of one byte stream, as of the last `refresh`. For one thread at a time. A raw stream that never held
    an event counts as an empty one, which it becomes when bytes are first written."""

    def __init__(self, catalog: Catalog, logs: LogReader, stream: StreamId) -> None:
        """Raises StreamNotFound, and InvalidArgument if the stream is not a byte stream."""
        self._catalog = catalog
        self._logs = logs
        with catalog.reading() as reading:
            self._view = _checked(load(reading, stream))
            self._exact = _exact_head(reading, stream)
        self._segment: SegmentId = self._view.current[0].id

    def refresh(self) -> None:
        """Loads what was appended and truncated since. Raises StreamNotFound."""
        with self._catalog.reading() as reading:
            self._refresh(reading)

    @property
    def events(self) -> int:
        """The length of the segment in events, including truncated ones."""
        return self._view.length(self._segment)

    @property
    def sealed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._view.info.sealed

    @property
    def name(self) -> str:
        """The stream's full name."""
        return str(self._view.info.name)

    def head(self) -> int:
        """The position of the first byte that can be read."""
        first = self._first
        if first == self.events:
            return self.tail()
        return max(next(self.chunks(first, first + 1)).start, self.truncated_before)

    @property
    def truncated_before(self) -> int:
        """The position before which all bytes are truncated, even if a chunk still holds some of them."""
        return min(self._exact, self.tail()) if self._exact else 0

    @property
    def stream(self) -> StreamId:
        """The stream's id."""
        return self._view.info.id

    def tail(self) -> int:
        """The position after the last byte. Reads no blob, except for a sealed stream, and for a copy of a range to
        which nothing was appended. For these two, if all bytes were truncated: the position of the last
        `truncate_before`, or 0."""
        spans = self._view.spans.get(self._segment)
        if spans and spans[-1].stop is None and (high := self._view.logs[spans[-1].log].event_high) is not None:
            return high
        last = self.events - 1
        return self._exact if last < self._first else next(self.chunks(last, last + 1)).stop

    def offset_at(self, position: int) -> int | None:
        """The offset of the event that holds the byte, or of the first readable event if that event was truncated; None
        at the tail. Takes time logarithmic in the number of events."""
        behind = Micros(position + 1)
        return first_at(self._logs, self._view, self._segment, behind, by_event_time=True)

    def chunks_at(self, position: int) -> Iterator[ByteChunk]:
        """The chunks from the one that holds the byte up to the tail. If that chunk was truncated, they begin with the
        first readable one. Raises what `chunks` raises."""
        offset = self.offset_at(position)
        return iter(()) if offset is None else self.chunks(offset, self.events)

    def cut(self, offset: int) -> StreamCut | None:
        """The cut before an event, or None if everything before it is gone already."""
        return None if offset <= self._first else StreamCut.of(self._view.info.id, {self._segment: offset})

    def chunks(self, start: int, stop: int) -> Iterator[ByteChunk]:
        """The chunks of the events `start <= offset < stop`, in order. Raises Truncated, and CorruptStore if bytes are
        missing or duplicated, because another program wrote to the stream."""
        end: int | None = None
        segment = SegmentReader(
            self._logs,
            self._view,
            self._segment,
            extents_max=_EXTENTS,
            current=lambda reading, _: self._refresh(reading),
        )
        for rows in segment.rows(start, stop, _CHUNKS):
            ends = rows.batch.column(0).cast(pa.int64()).to_pylist()
            for until, data in zip(ends, rows.batch.column(1), strict=True):
                if until is None or not data.is_valid:
                    raise self._spoiled()
                buffer = data.as_buffer()
                begin = until - buffer.size
                if begin < 0 or (end is not None and begin != end):
                    raise self._spoiled()
                end = until
                yield ByteChunk(begin, until, buffer)

    @property
    def _first(self) -> int:
        return self._view.segments[self._segment].head

    def _refresh(self, reading: Reading) -> StreamView:
        known = self._view
        # A raw stream may have become a byte stream, which other readers refuse.
        self._view = _checked(load(reading, known.info.id) if known.info.schema.raw else refresh(reading, known))
        self._exact = _exact_head(reading, self._view.info.id)
        return self._view

    def _spoiled(self) -> CorruptStore:
        return CorruptStore(
            f"the bytes of '{self.name}' do not follow each other: was it written to as another stream?"
        )


def _exact_head(reading: Reading, stream: StreamId) -> int:
    found = reading.state(BYTE_HEAD, stream)
    return 0 if found is None else found.position


def _checked(view: StreamView) -> StreamView:
    if not is_byte_stream(view.info) and not may_hold_bytes(view):
        raise no_byte_stream(view.info)
    return view
