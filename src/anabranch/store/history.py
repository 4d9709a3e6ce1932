"""Reading the events between two cuts in parts: in this process, or later in others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.columns import ADDED
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.time_kind import TimeKind
from anabranch.reading.arrow_export import to_pandas, to_polars
from anabranch.reading.bounds import Place
from anabranch.reading.history.files import HistoryFiles
from anabranch.reading.history.prefetch import Prefetch
from anabranch.reading.history.ranges import SegmentPartRange, range_schema
from anabranch.store.history_range import HistoryRange, HistorySource

if TYPE_CHECKING:
    import pandas
    import polars


class History(Displayed):
    """A stream's history, to be read in parts and in parallel. It refers to the stream by id, so a rename changes
    nothing."""

    def __init__(self, source: HistorySource, stream: StreamId, name: StreamName) -> None:
        self._source = source
        self._stream, self._name = stream, str(name)  # the name as of now

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
        self._source.check_open()
        return self._source.ranges(self._stream, start, end, by, bytes_max)

    def files(self, start: Place = HEAD, end: Place = TAIL, *, by: TimeKind = "append") -> HistoryFiles:
        """The Parquet files that hold the events between two places, and which of their rows: for DuckDB, Polars,
        pyarrow and other engines that read Parquet by themselves. Events that were not compacted yet are in no file;
        `missing` counts them.

        A later compaction or truncation may replace a file, and the next collection removes it, at the earliest an hour
        after it became unused. Raises InvalidArgument for an encrypted store, InvalidCut, Truncated, StreamNotFound."""
        self._source.check_open()
        return self._source.files(self._stream, start, end, by)

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
        self._source.check_open()
        schema = range_schema(self._source.columns(self._stream), columns)
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
        if columns is not None and not isinstance(columns, Collection):
            raise InvalidArgument(f"expected columns as a list of names, got {columns!r:.100}")
        names = None if columns is None else tuple(columns)
        source = self._source

        def fetch(part: HistoryRange) -> Sequence[pa.RecordBatch]:
            version = source.version(part)  # cached events may be truncated by now, or lack a column
            key = (SegmentPartRange(part.stream, part.segment, part.start, part.stop, part.size), names, version)
            return source.cache.get(key, lambda: list(source.batches(part, columns)))

        on_close: Callable[[Prefetch[HistoryRange]], None] = source.forget
        reading = Prefetch(
            source.runtime.tasks,
            chosen,
            fetch,
            window=window,
            fetchers=fetchers,
            bytes_max=bytes_max,
            on_close=on_close,
        )
        source.keep(reading)
        return reading
