"""Where a micro-batch ends.

A batch never holds a segment together with its successor, nor more than the query's limits. Within those, it holds
what was appended first: no event of the batch was appended after one that is left for later. So commits and units stay
whole, and neither a limit nor a scale lets one segment run ahead of the others in time, which would move the watermark
past events that are still to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from anabranch.core import cuts
from anabranch.log.read import LogReader
from anabranch.log.seek import append_time, cut_at
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.stream import StreamView
from anabranch.spark.stores import Opened

__all__ = ["AppendTimes", "Limits", "StoreTimes", "end_of_batch"]

_ROUNDS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch holds at most; None for no limit. Bytes are logical ones, and estimated."""

    events: int | None = None
    bytes: int | None = None


class AppendTimes(Protocol):
    """When events of a view were appended."""

    def of(self, segment: SegmentId, offset: int) -> Micros:
        """The append time of one event."""
        ...

    def cut_at(self, time: Micros) -> StreamCut:
        """The cut before the first event that was appended at or after `time`."""
        ...


class StoreTimes:
    """Append times as the store has them."""

    def __init__(self, opened: Opened, view: StreamView) -> None:
        self._catalog = opened.store.catalog
        self._logs: LogReader = opened.logs
        self._view = view

    def of(self, segment: SegmentId, offset: int) -> Micros:
        """See `AppendTimes.of`."""
        return append_time(self._catalog, self._logs, self._view, segment, offset)

    def cut_at(self, time: Micros) -> StreamCut:
        """See `AppendTimes.cut_at`."""
        return cut_at(self._catalog, self._logs, self._view, time)


def end_of_batch(
    view: StreamView, start: StreamCut, limits: Limits, times: AppendTimes, *, stop: StreamCut | None = None
) -> StreamCut:
    """The end of the batch that begins at `start`, at most at `stop` (None: the tail of the view). While events remain
    it holds at least one; where none do, it is `start` itself."""
    whole = cuts.next_cut(view, start, stop=stop)
    if whole == start:
        return start
    standing = StreamCut.of(start.stream, cuts.settle(view, start.as_dict()))
    return _Admission(view, times, stop, whole, limits.bytes).end(standing, limits.events)


@dataclass(frozen=True, slots=True)
class _Admission:
    """`whole` is the end of the batch but for limits and times. All cuts are of the segments that it names."""

    view: StreamView
    times: AppendTimes
    stop: StreamCut | None
    whole: StreamCut
    bytes_max: int | None

    def end(self, start: StreamCut, events_max: int | None) -> StreamCut:
        """The end of the batch."""
        end, left = start, events_max
        for round_ in range(_ROUNDS_MAX):
            # The limit is shared out evenly, and then only what is in step is taken: what is left over goes round again.
            wanted = self._within(end, self.whole, left)
            if wanted == end:
                break
            before, end = end, self._in_step(end, wanted, left, divide=round_ == 0)
            if end in (before, wanted) or left is None or events_max is None or self.bytes_max is not None:
                break
            left -= cuts.distance(self.view, before, end)
            if left <= events_max // 4:
                break
        return end

    def _within(self, start: StreamCut, stop: StreamCut, events_max: int | None) -> StreamCut:
        """As much as the limits allow."""
        end = cuts.next_cut(self.view, start, events_max=events_max, bytes_max=self.bytes_max, stop=stop).as_dict()
        # Where a segment is exhausted already, its successors stand in for it.
        return StreamCut.of(start.stream, {segment: end.get(segment, offset) for segment, offset in start})

    def _in_step(self, start: StreamCut, wanted: StreamCut, events_max: int | None, *, divide: bool) -> StreamCut:
        """`wanted`, without what was appended after the first event that it leaves for later. With `divide` at least
        one event, if need be a part of a commit."""
        left = self._left(wanted)
        if not left:
            return wanted
        time, first = min((self.times.of(segment, offset), segment) for segment, offset in left.items())
        end = self._until(start, wanted, time)
        if end != start:
            return end
        # The first commit was not shared out as it lies. It is the batch if the limit allows, else a part of it is.
        commit = self._until(start, self.whole, Micros(time + 1))
        if commit != start and self._within(start, commit, events_max) == commit:
            return commit
        end = self._until(start, wanted, Micros(time + 1)) if divide else start
        if end != start or not divide:
            return end
        # The limit is smaller than the number of segments, and the first event's segment got nothing of it.
        return StreamCut.of(start.stream, {**start.as_dict(), first: start.as_dict()[first] + 1})

    def _until(self, start: StreamCut, wanted: StreamCut, time: Micros) -> StreamCut:
        """Of `wanted`, what was appended before `time`."""
        passed, stops = cuts.reached(self.view, self.times.cut_at(time)), wanted.as_dict()
        ends = {segment: min(stops[segment], max(passed.get(segment, 0), offset)) for segment, offset in start}
        return StreamCut.of(start.stream, ends)

    def _left(self, wanted: StreamCut) -> dict[SegmentId, int]:
        """The first event that each segment leaves for later, where there is one."""
        limit = None if self.stop is None else cuts.reached(self.view, self.stop)
        left = {}
        for segment, offset in cuts.settle(self.view, wanted.as_dict()).items():
            end = self.view.length(segment) if limit is None else limit.get(segment, 0)
            if offset < end:
                left[segment] = offset
        return left
