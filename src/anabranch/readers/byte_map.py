"""Where the bytes of a byte stream lie: positions of bytes to offsets of events, and the chunks from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from anabranch.catalog.port import Catalog, Reading
from anabranch.core.byte_stream import BYTES, holds_bytes
from anabranch.core.cuts import below_head, truncated
from anabranch.errors import CorruptStore, InvalidArgument
from anabranch.log.plan import Plan
from anabranch.log.read import LogReader, Selection
from anabranch.log.seek import first_at
from anabranch.log.view import load, refresh
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import StreamView

_CHUNKS = Selection(BYTES.columns, rows_max=16)
_EXTENTS = 16  # of one page of a plan: chunks are large


class Chunk(NamedTuple):
    """The bytes at the positions `start <= position < stop`."""

    start: int
    stop: int
    data: pa.Buffer


class ByteMap:
    """The positions of one byte stream, as of the last `refresh`. For one thread at a time."""

    def __init__(self, catalog: Catalog, logs: LogReader, stream: StreamId) -> None:
        """Raises StreamNotFound, and InvalidArgument where the stream was not made for bytes."""
        self._catalog = catalog
        self._logs = logs
        with catalog.reading() as reading:
            self._view = _checked(load(reading, stream))
        self._segment: SegmentId = self._view.current[0].id

    def refresh(self) -> None:
        """Learn what was appended and truncated since. Raises StreamNotFound."""
        with self._catalog.reading() as reading:
            self._refresh(reading)

    @property
    def events(self) -> int:
        """How many events the segment ever had."""
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
        return self.tail() if first == self.events else next(self.chunks(first, first + 1)).start

    def tail(self) -> int:
        """The position behind the last byte. Costs no look at a blob, but for a copy to which nothing was appended."""
        span = self._view.spans[self._segment][-1]
        if span.stop is None and (high := self._view.logs[span.log].event_high) is not None:
            return high
        last = self.events - 1
        return 0 if last < self._first else next(self.chunks(last, last + 1)).stop

    def offset_at(self, position: int) -> int | None:
        """The offset of the event that holds the byte, or of the first that is still there; None at the tail. It costs
        the logarithm of the number of events."""
        behind = Micros(position + 1)
        return first_at(self._catalog, self._logs, self._view, self._segment, behind, by_event_time=True)

    def cut(self, offset: int) -> StreamCut | None:
        """The cut before an event, or None where all before it is gone already."""
        return None if offset <= self._first else StreamCut.of(self._view.info.id, {self._segment: offset})

    def chunks(self, start: int, stop: int) -> Iterator[Chunk]:
        """The chunks of the events `start <= offset < stop`, in order. Raises Truncated, CorruptStore where bytes are
        missing or are there twice, because somebody else wrote to the stream."""
        end: int | None = None
        for rows in self._logs.read(lambda offset: self._page(offset, stop), start, stop, _CHUNKS):
            ends = rows.batch.column(0).cast(pa.int64()).to_pylist()
            for until, data in zip(ends, rows.batch.column(1), strict=True):
                if until is None or not data.is_valid:
                    raise self._spoiled()
                buffer = data.as_buffer()
                begin = until - buffer.size
                if begin < 0 or (end is not None and begin != end):
                    raise self._spoiled()
                end = until
                yield Chunk(begin, until, buffer)

    @property
    def _first(self) -> int:
        return self._view.segments[self._segment].head

    def _page(self, offset: int, stop: int) -> Plan:
        with self._catalog.reading() as reading:
            view = self._refresh(reading)
            if below_head(view, {self._segment: offset}):
                raise truncated(view)
            return self._logs.plan(reading, view, self._segment, offset, stop, extents_max=_EXTENTS)

    def _refresh(self, reading: Reading) -> StreamView:
        self._view = _checked(refresh(reading, self._view))
        return self._view

    def _spoiled(self) -> CorruptStore:
        return CorruptStore(
            f"the bytes of '{self.name}' do not follow each other: was it written to as another stream?"
        )


def _checked(view: StreamView) -> StreamView:
    if not holds_bytes(view.info):
        raise InvalidArgument(
            f"'{view.info.name}' is no byte stream: one is made by store.bytes(name, 'xb'), and is never scaled or appended to"
        )
    return view
