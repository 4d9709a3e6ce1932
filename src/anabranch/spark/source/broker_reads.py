"""Reads streams of a store that a broker serves: requests views and cuts from the broker, and reads ranges by Arrow
Flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from anabranch.core import cuts
from anabranch.errors import Truncated
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.spark.source.scan import ScanRange
from anabranch.store import Store
from anabranch.store.engine_api import Place, SegmentPartRange, TimeKind, parse_place

if TYPE_CHECKING:
    from anabranch.remote.store import RemoteStore

__all__ = ["BrokerReads", "PollingTail"]

_LOOK_S: Final = 0.1  # between two looks for new events


class BrokerReads:
    """Reads of a store that brokers serve; the methods are those of `anabranch.spark.source.reads.OwnReads`."""

    def __init__(self, store: Store) -> None:
        """`store` is a `RemoteStore`."""
        self._remote = cast("RemoteStore", store)

    def freshen(self, stream: StreamName) -> None:
        """No-op: the broker freshens the stream itself when it is read."""

    def view(self, stream: StreamName | StreamId) -> StreamView:
        return cast(StreamView, self._remote.streams.view(stream))

    def place(self, view: StreamView, place: str, by: TimeKind) -> StreamCut:
        found = parse_place(place, self._remote.runtime.settings.times)
        return cuts.resolve(view, found) if isinstance(found, Edge | StreamCut) else self._cut(view, found, by)

    def append_time(self, view: StreamView, segment: SegmentId, offset: int) -> Micros:
        (batch,) = self._batches(view, ScanRange(segment, offset, offset + 1), [])
        return Micros(batch.column("_appended")[0].value)

    def cut_at(self, view: StreamView, time: Micros) -> StreamCut:
        return self._cut(view, time, "append")

    def rows(
        self, view: StreamView, ranges: Iterable[ScanRange], columns: pa.Schema, *, lossy: bool = False
    ) -> Iterator[pa.RecordBatch]:
        for segment, start, stop in ranges:
            while start < stop:
                try:
                    for batch in self._batches(view, ScanRange(segment, start, stop), columns.names):
                        start = batch.column("_offset")[-1].as_py() + 1
                        yield batch
                    break
                except Truncated:
                    if not lossy:
                        raise
                    present = self.view(view.info.id).segments.get(segment)
                    start = stop if present is None else max(start, present.head)

    def tail(self) -> PollingTail:
        return PollingTail(self._remote)

    def _batches(self, view: StreamView, part: ScanRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        found = SegmentPartRange(view.info.id, part.segment, part.start, part.stop, 0)
        return self._remote._history.batches(found, columns)

    def _cut(self, view: StreamView, place: Place, by: TimeKind) -> StreamCut:
        """The cut in terms of the view's segments: the broker's view may be newer, and its cut after a scale."""
        cut = self._remote._history.cut(view.info.id, place, by)
        offsets = cut.as_dict()
        if offsets.keys() <= view.segments.keys():
            return cut
        # A segment that is not in the view begins where a segment of the view ends, so the cut is at that segment's end.
        known = {segment: offset for segment, offset in offsets.items() if segment in view.segments}
        for each in view.current:
            if not any(each.range.overlaps(view.segments[segment].range) for segment in known):
                known[each.id] = view.length(each.id)
        return StreamCut.of(view.info.id, known)


class PollingTail:
    """A tail that is polled: every wait ends after `_LOOK_S` at most."""

    def __init__(self, remote: RemoteStore) -> None:
        self._tasks = remote.runtime.tasks

    def generation(self) -> int:
        return 0

    def wait(self, since: int, timeout_s: float) -> None:
        del since
        self._tasks.sleep(min(timeout_s, _LOOK_S))
