"""A range of history: a small value that is read in this process, or later in others."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from anabranch.core.closeable import closed_on_error
from anabranch.errors import InvalidArgument
from anabranch.model.columns import ADDED
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.time_kind import TimeKind
from anabranch.reading.arrow_export import to_pandas, to_polars
from anabranch.reading.bounds import Place
from anabranch.reading.c_stream import CStream
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.history.files import HistoryFiles
from anabranch.reading.history.ranges import SegmentPartRange, range_schema
from anabranch.runtime.ports import Runtime
from anabranch.store.addresses import MEMORY, StoreAddresses

if TYPE_CHECKING:
    import pandas
    import polars

    from anabranch.store import Store


class HistorySource(Protocol):
    """What history is read through: a store that is open here, or one that a broker serves."""

    runtime: Runtime
    cache: RangeCache

    def check_open(self) -> None:
        """Raises Closed once the store is closed."""
        ...

    def keep(self, each: Any) -> object:
        """Register an object to be closed with the store."""
        ...

    def forget(self, each: Any) -> None:
        """Unregister an object that was closed."""
        ...

    def columns(self, stream: StreamId) -> pa.Schema:
        """The stream's present columns. Raises StreamNotFound."""
        ...

    def version(self, part: SegmentPartRange) -> int:
        """The present schema version of the range's stream. Raises StreamNotFound, and Truncated if events are gone."""
        ...

    def ranges(self, stream: StreamId, start: Place, end: Place, by: TimeKind, bytes_max: int) -> list[HistoryRange]:
        """See `History.ranges`."""
        ...

    def batches(self, part: SegmentPartRange, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """See `HistoryRange.batches`."""
        ...

    def files(self, stream: StreamId, start: Place, end: Place, by: TimeKind) -> HistoryFiles:
        """See `History.files`."""
        ...


@dataclass(frozen=True, slots=True)
class HistoryRange(SegmentPartRange):
    """A range of a segment that knows the addresses of its store. A small value: it can be pickled, sent to another
    machine and opened there, if the addresses mean the same there."""

    addresses: StoreAddresses | None = field(default=None, repr=False)  # may hold a password
    origin: HistorySource | None = field(default=None, compare=False, repr=False)

    def batches(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> Iterator[pa.RecordBatch]:
        """Its events in offset order, as batches of the columns, followed by `_segment`, `_offset` and `_appended`.

        Reads through `store` if given, else through the store that the range came from; in another process it opens a
        store for the iteration. Raises InvalidArgument for an in-memory store of another process, StreamNotFound,
        Truncated, SchemaMismatch.
        """
        with self._source(store) as source:
            source.check_open()
            yield from source.batches(self, columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """`batches` in Arrow's C interface, so that pyarrow, DuckDB, polars and pandas take the range itself. They get
        Closed if the store is closed meanwhile."""
        opened = ExitStack()
        with closed_on_error(opened):
            source = opened.enter_context(self._source(None))
            source.check_open()
            schema = range_schema(source.columns(self.stream), None)
            stream = _exported(source, self, schema.names[: -len(ADDED)], opened)
        return pa.RecordBatchReader.from_batches(schema, stream).__arrow_c_stream__(requested_schema)

    def to_arrow(self, columns: Sequence[str] | None = None, *, store: Store | None = None) -> pa.Table:
        """All its events as one table, in memory: the batches of `batches`. A writer takes it as it is, and leaves out
        the three added columns."""
        with self._source(store) as source:
            source.check_open()
            schema = range_schema(source.columns(self.stream), columns)
            names = schema.names[: -len(ADDED)]  # of one schema, also if the stream gains a column now
            return pa.Table.from_batches(source.batches(self, names), schema=schema)

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
    def _source(self, store: Store | None) -> Iterator[HistorySource]:
        here = self.origin if store is None else store._history
        if here is not None:
            yield here
            return
        addresses = self.addresses
        if addresses is None or MEMORY in (addresses.url, addresses.blobs, addresses.history):
            raise InvalidArgument(
                "this range belongs to a store in the memory of another process; pass a store: batches(store=…)"
            )
        with self._connect(addresses) as opened:
            yield opened._history

    @staticmethod
    def _connect(addresses: StoreAddresses) -> AbstractContextManager[Store]:
        from anabranch.store import connect

        return connect(
            addresses.url, blobs=addresses.blobs, history=addresses.history, keys=addresses.keys, create=False
        )

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.stream, self.segment.packed, self.start, self.stop, self.size, self.addresses)
        return _range, (type(self), *values)


def _exported(source: HistorySource, part: HistoryRange, columns: Sequence[str], opened: ExitStack) -> CStream:
    """The batches of a range for a consumer that pulls them on any thread."""
    export = _Export(source, opened)
    stream = CStream(source.runtime.tasks, export.batches(part, columns), lambda: export.closed, endless=False)
    export.watch(stream)
    source.keep(export)
    return stream


class _Export:
    """A store's handle to an exported stream of batches: the store closes the stream, unless the consumer read the
    range to its end or dropped the stream before. `opened` holds the store that was opened for the range, if one
    was."""

    def __init__(self, source: HistorySource, opened: ExitStack) -> None:
        self._source = source
        self._opened = opened
        self._stream: Callable[[], CStream | None] = lambda: None
        self.closed = False

    def watch(self, stream: CStream) -> None:
        """Note the stream of batches to close. Does not keep the stream alive."""
        self._stream = weakref.ref(stream)
        weakref.finalize(stream, self._release).atexit = False

    def batches(self, part: HistoryRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The batches of the range."""
        yield from self._source.batches(part, columns)
        self._release()

    def close(self) -> None:
        """Fail later pulls, and wait for the one under way."""
        self.closed = True
        if (stream := self._stream()) is not None:
            stream.close()

    def _release(self) -> None:
        self._source.forget(self)
        self._opened.close()


def _range(
    kind: Callable[..., HistoryRange],
    stream: int,
    segment: int,
    start: int,
    stop: int,
    size: int,
    addresses: StoreAddresses | None,
) -> HistoryRange:
    return kind(StreamId(stream), SegmentId.unpack(segment), start, stop, size, addresses)
