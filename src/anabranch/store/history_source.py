"""History of a store that is open here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch import limits
from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamView
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place, to_cut
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.history.files import HistoryFiles, files_between
from anabranch.reading.history.ranges import SegmentPartRange, ranges_between, read_range
from anabranch.store.addresses import StoreAddresses
from anabranch.store.history_range import HistoryRange
from anabranch.store.parts import StoreContext
from anabranch.streams.manager import Streams


class StoreHistory:
    """See `HistorySource`."""

    def __init__(
        self, parts: StoreContext, streams: Streams, cache: RangeCache, addresses: StoreAddresses | None
    ) -> None:
        self._parts = parts
        self._streams = streams
        self._addresses = addresses
        self.runtime = parts.runtime
        self.cache = cache
        self.check_open, self.keep, self.forget = parts.check_open, parts.keep, parts.forget

    def columns(self, stream: StreamId) -> pa.Schema:
        """See `HistorySource.columns`."""
        return self._view(stream).info.schema.columns

    def version(self, part: SegmentPartRange) -> int:
        """See `HistorySource.version`."""
        view = self._view(part.stream)
        cuts.check_readable(view, {part.segment: part.start})
        return view.info.schema_version

    def ranges(self, stream: StreamId, start: Place, end: Place, by: TimeKind, bytes_max: int) -> list[HistoryRange]:
        """See `History.ranges`."""
        if not isinstance(bytes_max, int) or bytes_max < 1:
            raise InvalidArgument(f"expected bytes_max of at least 1, got {bytes_max!r}")
        first, last = self._cuts(stream, start, end, by)
        with self._parts.catalog.reading() as reading:
            view = load(reading, stream)
            found = ranges_between(reading, view, first, last, bytes_max=bytes_max, count_max=limits.HISTORY_RANGES_MAX)
        return [
            HistoryRange(each.stream, each.segment, each.start, each.stop, each.size, self._addresses, self)
            for each in found
        ]

    def batches(self, part: SegmentPartRange, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """See `HistoryRange.batches`."""
        return read_range(self._parts.logs, part, columns)

    def files(self, stream: StreamId, start: Place, end: Place, by: TimeKind) -> HistoryFiles:
        """See `History.files`."""
        if self.runtime.sealer is not None:
            raise InvalidArgument(
                "the files of an encrypted store can't be read directly; read the history through the store, or with Spark"
            )
        first, last = self._cuts(stream, start, end, by)
        return files_between(self._parts.logs, self._parts.blobs, self._streams.view(stream), first, last)

    def _view(self, stream: StreamId) -> StreamView:
        with self._parts.catalog.reading() as reading:
            return load(reading, stream)

    def _cuts(self, stream: StreamId, start: Place, end: Place, by: TimeKind) -> tuple[StreamCut, StreamCut]:
        view, logs = self._streams.view(stream), self._parts.logs
        return to_cut(logs, view, start, by=by), to_cut(logs, view, end, by=by)
