"""Decides where a micro-batch ends.

A batch never holds a segment together with its successor, nor more than the query's limits. Within those bounds it
holds the events appended first: no event of the batch was appended after one that is left for later. So commits and
atomic units stay whole. Also, neither a limit nor a scale lets one segment get ahead of the others in time, which would
move the watermark past events that are not read yet.

A commit larger than the limit is divided by event time: each part holds the earliest events that are left. Without
event times, each part holds a proportional share of every segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core import cuts
from anabranch.core.divide import Times, evenly_spread, look_ahead, take_earliest
from anabranch.core.shed_rule import ShedRule
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.stream import StreamView
from anabranch.spark.source.reads import StreamReads
from anabranch.spark.source.scan import ScanRange

__all__ = ["BatchLimits", "StoreTimes", "batch_load", "end_of_batch"]


_ROUNDS_MAX: Final = 4
_EARLIEST: Final = -(1 << 62)

_SPAN_US_MIN = 1_000_000


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The maximum size of a batch; None for no limit. Bytes are logical and estimated."""

    events: int | None = None
    bytes: int | None = None

    def scaled(self, factor: float) -> BatchLimits:
        """These limits times a factor."""
        events, size = (None if each is None else int(each * factor) for each in (self.events, self.bytes))
        return BatchLimits(events, size)


class StoreTimes:
    """The append times and event times of the events of a view."""

    def __init__(self, reads: StreamReads, view: StreamView) -> None:
        self._reads = reads
        self._view = view

    def of(self, segment: SegmentId, offset: int) -> Micros:
        """The append time of one event."""
        return self._reads.append_time(self._view, segment, offset)

    def cut_at(self, time: Micros) -> StreamCut:
        """The cut before the first event appended at or after `time`."""
        return self._reads.cut_at(self._view, time)

    def event_times(self, segment: SegmentId, start: int, stop: int) -> npt.NDArray[np.int64] | None:
        """The event times (µs) of these offsets, which must all be readable. An event without one gets the earliest
        possible time. None for a stream without event times. Raises as `RangeReads.rows`."""
        schema = self._view.info.schema
        if schema.time is None:
            return None
        wanted = pa.schema([schema.columns.field(schema.time)])
        batches = self._reads.rows(self._view, [ScanRange(segment, start, stop)], wanted)
        found = [pc.fill_null(batch.column(0).cast(pa.int64()), _EARLIEST).to_numpy() for batch in batches]
        return np.concatenate([np.empty(0, np.int64), *found])


def end_of_batch(
    view: StreamView, start: StreamCut, limits: BatchLimits, times: StoreTimes, *, stop: StreamCut | None = None
) -> StreamCut:
    """The end of the batch that begins at `start`, at most `stop` (None: the tail of the view). The batch holds at
    least one event while events remain; if none do, the end is `start` itself."""
    whole = cuts.next_cut(view, start, stop=stop)
    if whole == start:
        return start
    standing = StreamCut.of(start.stream, cuts.skip_exhausted(view, start.as_dict()))
    return _Admission(view, times, stop, whole, limits.bytes).end(standing, limits.events)


@dataclass(frozen=True, slots=True)
class _Admission:
    """Chooses a batch's end. `whole` is the end without limits and append times; all cuts have its segments."""

    view: StreamView
    times: StoreTimes
    stop: StreamCut | None
    whole: StreamCut
    bytes_max: int | None

    def end(self, start: StreamCut, events_max: int | None) -> StreamCut:
        """The end of the batch."""
        end, left = start, events_max
        for round_ in range(_ROUNDS_MAX):
            # The limit is divided evenly over segments, then cut back to the same append time. The remainder of the
            # limit is divided in another round.
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
        """From `start` as far as the limits allow, at most to `stop`."""
        end = cuts.next_cut(self.view, start, events_max=events_max, bytes_max=self.bytes_max, stop=stop).as_dict()
        # For a segment that is already exhausted, `next_cut` names its successors instead.
        return StreamCut.of(start.stream, {segment: end.get(segment, offset) for segment, offset in start})

    def _in_step(self, start: StreamCut, wanted: StreamCut, events_max: int | None, *, divide: bool) -> StreamCut:
        """`wanted`, without the events appended after the first one that it leaves for later. With `divide` at least
        one event, if necessary a part of a commit."""
        left = self._left(wanted)
        if not left:
            return wanted
        time = min(self.times.of(segment, offset) for segment, offset in left.items())
        end = self._until(start, wanted, time)
        if end != start:
            return end
        # `wanted` lacks some of the first commit. The batch is that commit if the limit allows, else a part of it.
        commit = self._until(start, self.whole, Micros(time + 1))
        if commit != start and self._within(start, commit, events_max) == commit:
            return commit
        if not divide:
            return start
        if commit == start:  # a successor was written with an earlier clock than the segment before it
            return wanted
        return self._part(start, commit, self.times.cut_at(time), events_max)

    def _part(self, start: StreamCut, commit: StreamCut, begin: StreamCut, events_max: int | None) -> StreamCut:
        """The end of the next part of a commit that extends from `begin` to `commit` and is read up to `start`: the
        earliest events that are left, as many as the limits allow, but at least one."""
        begun, ends = cuts.read_offsets(self.view, begin), commit.as_dict()
        left = {segment: ends[segment] - offset for segment, offset in start if ends[segment] > offset}
        amount = self._events(left, events_max)
        windows = look_ahead(left, amount)
        times: dict[SegmentId, Times] = {}
        for segment, offset in start:
            if segment in windows:
                first = min(begun.get(segment, self.view.segments[segment].head), offset)
                known = self.times.event_times(segment, offset, offset + windows[segment])
                times[segment] = (
                    evenly_spread(offset - first, offset - first + windows[segment], ends[segment] - first)
                    if known is None
                    else known
                )
        more = [segment for segment in windows if windows[segment] < left[segment]]
        taken = take_earliest(times, more, amount)
        return StreamCut.of(start.stream, {segment: offset + taken.get(segment, 0) for segment, offset in start})

    def _events(self, left: Mapping[SegmentId, int], events_max: int | None) -> int:
        """How many of these events the limits allow, at least one."""
        count = sum(left.values())
        amount = count if events_max is None else min(events_max, count)
        if self.bytes_max is not None:
            size = sum(number * cuts.event_bytes(self.view, segment) for segment, number in left.items())
            amount = min(amount, int(count * self.bytes_max / size))
        return max(amount, 1)

    def _until(self, start: StreamCut, wanted: StreamCut, time: Micros) -> StreamCut:
        """`wanted`, limited to what was appended before `time`."""
        passed, stops = cuts.read_offsets(self.view, self.times.cut_at(time)), wanted.as_dict()
        ends = {segment: min(stops[segment], max(passed.get(segment, 0), offset)) for segment, offset in start}
        return StreamCut.of(start.stream, ends)

    def _left(self, wanted: StreamCut) -> dict[SegmentId, int]:
        """The offset of the first event of each segment that has events from `wanted` on, up to `stop`."""
        limit = None if self.stop is None else cuts.read_offsets(self.view, self.stop)
        left = {}
        for segment, offset in cuts.skip_exhausted(self.view, wanted.as_dict()).items():
            end = self.view.length(segment) if limit is None else limit.get(segment, 0)
            if offset < end:
                left[segment] = offset
        return left


def batch_load(
    rule: ShedRule, view: StreamView, start: StreamCut, end: StreamCut, times: StoreTimes, *, now: int
) -> float:
    """The load that the rule limits, of the batch from `start` to `end`, which is not empty. For `lag`: the seconds
    since its first event was appended. Else: the events per second that were appended from its first to its last event,
    counted over at least a second."""
    ranges = list(cuts.ranges(view, start, end))
    first = min(times.of(segment, low) for segment, low, _ in ranges)
    if rule.by == "lag":
        return max(0, now - first) / 1e6
    # A batch may be a part of what was appended at once.
    second = times.cut_at(Micros(first + _SPAN_US_MIN))
    ranges = list(cuts.ranges(view, start, cuts.union(view, end, second)))
    last = max(times.of(segment, high - 1) for segment, _, high in ranges)
    return sum(high - low for _, low, high in ranges) / (max(last - first, _SPAN_US_MIN) / 1e6)
