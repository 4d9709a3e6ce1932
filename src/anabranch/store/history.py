"""Reading what lies between two cuts in parts: here and now, or by other processes later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.errors import InvalidArgument
from anabranch.log.read import LogReader
from anabranch.log.view import load
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.readers.history.cache import RangeCache
from anabranch.readers.history.prefetch import Prefetch
from anabranch.readers.history.ranges import StreamPart, columns_version, ranges_between, read_range
from anabranch.readers.place import Place, TimeKind, to_cut
from anabranch.runtime.ports import Runtime
from anabranch.store.places import MEMORY, Places
from anabranch.streams.manager import Streams

if TYPE_CHECKING:
    from anabranch.store.facade import Store


class Origin(Protocol):
    """What of a store history is read through."""

    catalog: Catalog
    runtime: Runtime
    places: Places | None
    ranges: RangeCache
    _logs: LogReader

    @property
    def streams(self) -> Streams: ...

    def _alive(self) -> None: ...
    def _keep(self, each: Any) -> None: ...
    def _forget(self, each: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class HistoryRange(StreamPart):
    """A range of a segment that knows where its store is. A small value: it can be pickled, sent to another machine and
    opened there, if the store's places mean the same there."""

    places: Places | None = field(default=None, repr=False)  # which may hold a password
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def batches(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> Iterator[pa.RecordBatch]:
        """Its events in offset order, as batches of the columns, then `_segment`, `_offset` and `_appended`.

        Read through `store`, else through the store that the range came from, or where that is in another process,
        through one that is opened for the iteration. Raises InvalidArgument for a store in memory of another process,
        StreamNotFound, Truncated, SchemaMismatch.
        """
        with self._source(store) as source:
            source._alive()
            yield from read_range(source.catalog, source._logs, self, columns)

    def pointer(self, offset: int) -> EventPointer:
        """Of the event at an offset."""
        return EventPointer(self.stream, self.segment, offset)

    @contextmanager
    def _source(self, store: Store | None) -> Iterator[Origin]:
        here: Any = self.origin if store is None else store
        if here is not None:
            yield here
            return
        places = self.places
        if places is None or MEMORY in (places.url, places.blobs, places.history):
            raise InvalidArgument(
                "this range lies in the memory of another process; say in which store: batches(store=…)"
            )
        from anabranch.store.opening import connect

        with connect(places.url, blobs=places.blobs, history=places.history, keys=places.keys, create=False) as opened:
            yield opened

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.stream, self.segment.packed, self.start, self.stop, self.size, self.places)
        return _range, values


def _range(stream: int, segment: int, start: int, stop: int, size: int, places: Places | None) -> HistoryRange:
    return HistoryRange(StreamId(stream), SegmentId.unpack(segment), start, stop, size, places)


class History:
    """What a stream holds, to be read in parts and in parallel. Names the stream by its id, so a rename changes nothing."""

    def __init__(self, origin: Origin, stream: str | StreamName) -> None:
        self._origin = origin
        self._stream = origin.streams.get(stream).id

    def ranges(
        self,
        start: Place = HEAD,
        end: Place = TAIL,
        *,
        by: TimeKind = "append",
        bytes_max: int = limits.HISTORY_RANGE_BYTES,
    ) -> list[HistoryRange]:
        """All events between two places, once each, as ranges of about `bytes_max` logical bytes, in reading order: a
        key's events come in the order of the ranges. No commit, and no compacted file, is parted. Costs nothing per event.
        Raises InvalidArgument and its kinds, Truncated, StreamNotFound."""
        origin = self._origin
        origin._alive()
        if not isinstance(bytes_max, int) or bytes_max < 1:
            raise InvalidArgument(f"a range has at least one byte, not {bytes_max!r}")
        view = origin.streams.view(self._stream)
        first, last = (to_cut(origin.catalog, origin._logs, view, place, by=by) for place in (start, end))
        with origin.catalog.reading() as reading:
            view = load(reading, self._stream)
            found = ranges_between(reading, view, first, last, bytes_max=bytes_max, count_max=limits.HISTORY_RANGES_MAX)
        return [
            HistoryRange(each.stream, each.segment, each.start, each.stop, each.size, origin.places, origin)
            for each in found
        ]

    def read(
        self,
        parts: Sequence[HistoryRange] | None = None,
        *,
        start: Place = HEAD,
        end: Place = TAIL,
        by: TimeKind = "append",
        columns: Sequence[str] | None = None,
        window: int = limits.HISTORY_WINDOW,
        fetchers: int = limits.HISTORY_FETCHES_MAX,
        bytes_max: int = limits.HISTORY_WINDOW_BYTES,
    ) -> Prefetch[HistoryRange]:
        """The batches of these ranges, or where none are given of all between two places, read ahead; see `Prefetch`. What
        was fetched is kept for a while for all who read it through this store. Close it, or use it as a context manager."""
        chosen = self.ranges(start, end, by=by) if parts is None else parts
        names = None if columns is None else tuple(columns)
        origin = self._origin

        def fetch(part: HistoryRange) -> Sequence[pa.RecordBatch]:
            version = columns_version(origin.catalog, part)  # what is kept may have been truncated, or lack a column
            key = (StreamPart(part.stream, part.segment, part.start, part.stop, part.size), names, version)
            return origin.ranges.get(key, lambda: list(read_range(origin.catalog, origin._logs, part, columns)))

        on_close: Callable[[Prefetch[HistoryRange]], None] = origin._forget
        reading = Prefetch(
            origin.runtime.tasks,
            chosen,
            fetch,
            window=window,
            fetchers=fetchers,
            bytes_max=bytes_max,
            on_close=on_close,
        )
        origin._keep(reading)
        return reading
