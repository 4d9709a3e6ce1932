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
from anabranch.log.seek import cut_at
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
        with self._catalog.reading() as reading:
            piece = self._logs.plan(reading, self._view, segment, offset, offset + 1).pieces[0]
        low = piece.extent.appended.low
        assert low is not None, "an extent always has an append time"
        if piece.extent.encoding == "arrow":
            return low
        _, times = next(self._logs.append_times(piece))
        return Micros(times[0].value)

    def cut_at(self, time: Micros) -> StreamCut:
        """See `AppendTimes.cut_at`."""
        return cut_at(self._catalog, self._logs, self._view, time)


def end_of_batch(
    view: StreamView, start: StreamCut, limits: Limits, times: AppendTimes, *, stop: StreamCut | None = None
) -> StreamCut:
    """The end of the batch that begins at `start`, at most at `stop` (None: the tail of the view). While events remain
    it holds at least one; where none do, it is `start` itself."""
    whole = cuts.next_cut(view, start, stop=stop)
    end, left = start, limits.events
    for _ in range(_ROUNDS_MAX):
        # The limit is shared out evenly, and then only what is in step is taken: what is left over goes round again.
        wanted = cuts.next_cut(view, end, events_max=left, bytes_max=limits.bytes, stop=whole)
        before, end = end, _in_step(view, end, wanted, times, stop)
        if end == wanted or left is None or limits.events is None or limits.bytes is not None:
            break
        left -= cuts.distance(view, before, end)
        if left <= limits.events // 4:
            break
    return end


def _in_step(
    view: StreamView, start: StreamCut, wanted: StreamCut, times: AppendTimes, stop: StreamCut | None
) -> StreamCut:
    """`wanted`, without what was appended after the first event that it leaves for later."""
    left = _left(view, wanted, stop)
    if wanted == start or not left:
        return wanted
    time, first = min((times.of(segment, offset), segment) for segment, offset in left.items())
    positions = cuts.settle(view, start.as_dict())
    # Where nothing was appended before that time, a unit is larger than the limit: then a part of it is the batch.
    for edge in (time, Micros(time + 1)):
        passed = cuts.reached(view, times.cut_at(edge))
        end = {s: min(stop, max(passed.get(s, 0), positions[s])) for s, stop in wanted}
        if end != positions:
            return StreamCut.of(start.stream, end)
    # The limit is smaller than the number of segments, and the first event's segment got nothing of it.
    return StreamCut.of(start.stream, positions | {first: positions[first] + 1})


def _left(view: StreamView, wanted: StreamCut, stop: StreamCut | None) -> dict[SegmentId, int]:
    """The first event that each segment leaves for later, where there is one."""
    limit = None if stop is None else cuts.reached(view, stop)
    left = {}
    for segment, offset in cuts.settle(view, wanted.as_dict()).items():
        end = view.length(segment) if limit is None else limit.get(segment, 0)
        if offset < end:
            left[segment] = offset
    return left
