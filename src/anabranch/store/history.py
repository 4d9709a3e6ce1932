"""Reading the events between two cuts in parts: in this process, or later in others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.log.read import LogReader
from anabranch.log.view import load
from anabranch.model.columns import ADDED
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.reading.arrow_export import to_pandas, to_polars
from anabranch.reading.bounds import Place, TimeKind, to_cut
from anabranch.reading.c_stream import CStream
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.history.files import HistoryFiles, files_between
from anabranch.reading.history.prefetch import Prefetch
from anabranch.reading.history.ranges import (
    SegmentPartRange,
    columns_version,
    range_schema,
    ranges_between,
    read_range,
)
from anabranch.runtime.ports import Runtime
from anabranch.store.addresses import MEMORY, StoreAddresses
from anabranch.streams.manager import Streams

if TYPE_CHECKING:
    import pandas
    import polars

    from anabranch.store import Store


class HistoryOrigin(Protocol):
    """The parts of a store that history is read through."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    addresses: StoreAddresses | None
    ranges: RangeCache
    _logs: LogReader

    @property
    def streams(self) -> Streams: ...

    def _alive(self) -> None: ...
    def _keep(self, each: Any) -> None: ...
    def _forget(self, each: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class HistoryRange(SegmentPartRange):
    """A range of a segment that knows the addresses of its store. A small value: it can be pickled, sent to another
    machine and opened there, if the addresses mean the same there."""

    addresses: StoreAddresses | None = field(default=None, repr=False)  # may hold a password
    origin: HistoryOrigin | None = field(default=None, compare=False, repr=False)

    def batches(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> Iterator[pa.RecordBatch]:
        """Its events in offset order, as batches of the columns, followed by `_segment`, `_offset` and `_appended`.

        Reads through `store` if given, else through the store that the range came from; in another process it opens a
        store for the iteration. Raises InvalidArgument for an in-memory store of another process, StreamNotFound,
        Truncated, SchemaMismatch.
        """
        with self._source(store) as source:
            source._alive()
            yield from read_range(source._logs, self, columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """`batches` in Arrow's C interface, so that pyarrow, DuckDB, polars and pandas take the range itself. They get
        Closed if the store is closed meanwhile."""
        opened = ExitStack()
        try:
            source = opened.enter_context(self._source(None))
            source._alive()
            schema = range_schema(source.catalog, self.stream, None)
            exported = _Export(source, self, schema.names[: -len(ADDED)], opened)
        except BaseException:
            opened.close()
            raise
        return pa.RecordBatchReader.from_batches(schema, exported.stream).__arrow_c_stream__(requested_schema)

    def to_arrow(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> pa.Table:
        """All its events as one table, in memory: the batches of `batches`. A writer takes it as it is, and leaves out
        the three added columns."""
        with self._source(store) as source:
            source._alive()
            schema = range_schema(source.catalog, self.stream, columns)
            names = schema.names[: -len(ADDED)]  # of one schema, also if the stream gains a column now
            return pa.Table.from_batches(read_range(source._logs, self, names), schema=schema)

    def to_pandas(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> pandas.DataFrame:
        """`to_arrow` as a DataFrame of pandas. Also raises MissingExtra."""
        return to_pandas(self.to_arrow(columns, store=store))

    def to_polars(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> polars.DataFrame:
        """`to_arrow` as a DataFrame of polars. Also raises MissingExtra."""
        return to_polars(self.to_arrow(columns, store=store))

    def pointer(self, offset: int) -> EventPointer:
        """The pointer of the event at an offset."""
        return EventPointer(self.stream, self.segment, offset)

    @contextmanager
    def _source(self, store: Store | None) -> Iterator[HistoryOrigin]:
        here: Any = self.origin if store is None else store
        if here is not None:
            yield here
            return
        addresses = self.addresses
        if addresses is None or MEMORY in (addresses.url, addresses.blobs, addresses.history):
            raise InvalidArgument(
                "this range belongs to a store in the memory of another process; pass a store: batches(store=…)"
            )
        from anabranch.store import connect

        with connect(
            addresses.url, blobs=addresses.blobs, history=addresses.history, keys=addresses.keys, create=False
        ) as opened:
            yield opened

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.stream, self.segment.packed, self.start, self.stop, self.size, self.addresses)
        return _range, values


class _Export:
    """The batches of a range for a consumer that pulls them on any thread. The store closes it, unless the range is
    read to its end before."""

    def __init__(self, source: HistoryOrigin, part: HistoryRange, columns: Sequence[str], opened: ExitStack) -> None:
        self._source = source
        self._opened = opened  # holds the store that was opened for the range, if one was
        self._closed = False
        self.stream = CStream(source.runtime.tasks, self._batches(part, columns), lambda: self._closed, endless=False)
        source._keep(self)

    def _batches(self, part: HistoryRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from read_range(self._source._logs, part, columns)
        self._source._forget(self)
        self._opened.close()

    def close(self) -> None:
        """Fail later pulls, and wait for the one under way."""
        self._closed = True
        self.stream.close()


def _range(
    stream: int, segment: int, start: int, stop: int, size: int, addresses: StoreAddresses | None
) -> HistoryRange:
    return HistoryRange(StreamId(stream), SegmentId.unpack(segment), start, stop, size, addresses)


class History(Displayed):
    """A stream's history, to be read in parts and in parallel. It refers to the stream by id, so a rename changes
    nothing."""

    def __init__(self, origin: HistoryOrigin, stream: str | StreamName) -> None:
        self._origin = origin
        info = origin.streams.get(stream)
        self._stream, self._name = info.id, str(info.name)  # the name as of now

    def _facts(self) -> Mapping[str, object]:
        return {"stream": self._name}

    def ranges(
        self,
        start: Place = HEAD,
        end: Place = TAIL,
        *,
        by: TimeKind = "append",
        bytes_max: int = limits.HISTORY_RANGE_BYTES,
    ) -> list[HistoryRange]:
        """Split all events between two places into ranges of about `bytes_max` logical bytes, each event in one range.
        Ranges are in reading order: a key's events come in the order of the ranges. No commit and no compacted file is
        split. The cost does not depend on the number of events. Raises InvalidArgument and its subclasses, Truncated,
        StreamNotFound."""
        origin = self._origin
        origin._alive()
        if not isinstance(bytes_max, int) or bytes_max < 1:
            raise InvalidArgument(f"a range has at least one byte, not {bytes_max!r}")
        view = origin.streams.view(self._stream)
        first, last = (to_cut(origin._logs, view, place, by=by) for place in (start, end))
        with origin.catalog.reading() as reading:
            view = load(reading, self._stream)
            found = ranges_between(reading, view, first, last, bytes_max=bytes_max, count_max=limits.HISTORY_RANGES_MAX)
        return [
            HistoryRange(each.stream, each.segment, each.start, each.stop, each.size, origin.addresses, origin)
            for each in found
        ]

    def files(self, start: Place = HEAD, end: Place = TAIL, *, by: TimeKind = "append") -> HistoryFiles:
        """The Parquet files that hold the events between two places, and which of their rows: for DuckDB, Polars,
        pyarrow and other engines that read Parquet by themselves. Events that were not compacted yet are in no file;
        `missing` counts them.

        A later compaction or truncation may replace a file, and the next collection removes it, at the earliest an hour
        after it came out of use. Raises InvalidArgument for an encrypted store, InvalidCut, Truncated, StreamNotFound."""
        origin = self._origin
        origin._alive()
        if origin.runtime.sealer is not None:
            raise InvalidArgument(
                "the files of an encrypted store can't be read directly; read the history through the store, or with Spark"
            )
        view = origin.streams.view(self._stream)
        first, last = (to_cut(origin._logs, view, place, by=by) for place in (start, end))
        return files_between(origin._logs, origin.blobs, view, first, last)

    def to_arrow(
        self,
        start: Place = HEAD,
        end: Place = TAIL,
        *,
        by: TimeKind = "append",
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """All events between two places as one table, in memory, in reading order: the columns, then `_segment`,
        `_offset` and `_appended`. Ranges are fetched in parallel. A writer takes it as it is, and leaves out the three
        added columns."""
        self._origin._alive()
        schema = range_schema(self._origin.catalog, self._stream, columns)
        with self.read(start=start, end=end, by=by, columns=schema.names[: -len(ADDED)]) as batches:
            return pa.Table.from_batches(batches, schema=schema)

    def to_pandas(
        self,
        start: Place = HEAD,
        end: Place = TAIL,
        *,
        by: TimeKind = "append",
        columns: Sequence[str] | None = None,
    ) -> pandas.DataFrame:
        """`to_arrow` as a DataFrame of pandas. Also raises MissingExtra."""
        return to_pandas(self.to_arrow(start, end, by=by, columns=columns))

    def to_polars(
        self,
        start: Place = HEAD,
        end: Place = TAIL,
        *,
        by: TimeKind = "append",
        columns: Sequence[str] | None = None,
    ) -> polars.DataFrame:
        """`to_arrow` as a DataFrame of polars. Also raises MissingExtra."""
        return to_polars(self.to_arrow(start, end, by=by, columns=columns))

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
        """Read ahead the batches of the given ranges, or without them of everything between two places; see `Prefetch`.
        Fetched batches are cached for all readers of this store. Close it, or use it as a context manager."""
        chosen = self.ranges(start, end, by=by) if parts is None else parts
        names = None if columns is None else tuple(columns)
        origin = self._origin

        def fetch(part: HistoryRange) -> Sequence[pa.RecordBatch]:
            version = columns_version(origin.catalog, part)  # cached events may be truncated by now, or lack a column
            key = (SegmentPartRange(part.stream, part.segment, part.start, part.stop, part.size), names, version)
            return origin.ranges.get(key, lambda: list(read_range(origin._logs, part, columns)))

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
