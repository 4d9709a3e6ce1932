"""Finds exactly which events of a stream are in a time range, as runs of offsets, in whatever order their times are.

For most extents the catalog's bounds suffice. For the others, only the column of times is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.catalog.port import Reading
from anabranch.core.ranges import union
from anabranch.core.replacement import Run
from anabranch.errors import BlobMissing, Truncated
from anabranch.log.plan import PlannedExtent, ReadPlan
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.time_index import times_of
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView


@dataclass(slots=True)
class Scanned:
    """The result for a segment up to the offset `stop`: the `runs` in the range, and the first offset `later` whose
    event is at or after the range's start."""

    stop: int
    runs: list[Run] = field(default_factory=list)
    later: int | None = None


class ReadNeeded(Exception):
    """The catalog alone does not suffice; times must be read."""


class TimeScan:
    """Finds the events of `low <= time < high` (µs). The scan can be continued as the stream grows. Each offset is
    scanned once, since its event never changes. Events without a time are in no range."""

    def __init__(self, logs: LogReader, low: int, high: int, *, by_event_time: bool) -> None:
        self._logs = logs
        self._low = low
        self._high = high
        self._by_event_time = by_event_time
        self.segments: dict[SegmentId, Scanned] = {}

    def advance(self, view: StreamView, watch: Callable[[], object] = lambda: None) -> None:
        """Scans the offsets that were not scanned yet, a page of extents at a time, and calls `watch` after each page.
        Events that are truncated meanwhile are skipped. Raises StreamNotFound, CorruptBlob."""
        for segment in view.ordered:
            source = SegmentReader(self._logs, view, segment.id)
            while (at := self._at(view, segment.id)) < (stop := view.length(segment.id)):
                try:
                    page = source.plan(at, stop)
                except Truncated:
                    self.segments[segment.id].stop = source.first_readable(at, stop)
                    continue
                try:
                    self._scan_page(view, segment.id, page, read=True)
                except BlobMissing as exc:
                    source.plan_again(exc)
                    continue
                watch()

    def complete(self, reading: Reading, view: StreamView, *, read: bool) -> None:
        """Like `advance`, within one snapshot or transaction. Without `read`, raises ReadNeeded if times must be
        read."""
        for segment in view.ordered:
            source = SegmentReader(self._logs, view, segment.id)
            while (at := self._at(view, segment.id)) < (stop := view.length(segment.id)):
                self._scan_page(view, segment.id, source.plan_in(reading, at, stop), read=read)

    def runs(self, view: StreamView, segment: SegmentId) -> list[Run]:
        """The runs of a segment in the time range, without truncated offsets."""
        head = view.segments[segment].head
        runs = self.segments[segment].runs
        first = bisect_right(runs, head, key=lambda run: run[1])
        if first < len(runs) and runs[first][0] < head:
            return [(head, runs[first][1]), *runs[first + 1 :]]
        return runs[first:]

    def first(self, view: StreamView, segment: SegmentId) -> int | None:
        """The first offset of the segment in the range. If there is none, the first at or after the range's start;
        None if there is none either."""
        if runs := self.runs(view, segment):
            return runs[0][0]
        later = self.segments[segment].later
        return None if later is None else max(later, view.segments[segment].head)

    def _at(self, view: StreamView, segment: SegmentId) -> int:
        known = self.segments.setdefault(segment, Scanned(0))
        known.stop = max(known.stop, view.segments[segment].head)
        return known.stop

    def _scan_page(self, view: StreamView, segment: SegmentId, page: ReadPlan, *, read: bool) -> None:
        known = self.segments[segment]
        for piece in page.extents:
            if piece.stop + piece.shift > known.stop:  # else it was scanned before its page failed
                self._scan_extent(view, known, piece, read=read)
                known.stop = piece.stop + piece.shift
        known.stop = page.stop

    def _scan_extent(self, view: StreamView, known: Scanned, piece: PlannedExtent, *, read: bool) -> None:
        bounds = piece.extent.events if self._by_event_time else piece.extent.appended
        start, stop = piece.start + piece.shift, piece.stop + piece.shift
        low, high = bounds.low, bounds.high
        if low is not None and high is not None:
            if high < self._low or (low >= self._high and known.later is not None):
                return
            if not self._by_event_time and low >= self._low and (high < self._high or low >= self._high):
                known.later = start if known.later is None else known.later  # every event has an append time
                if high < self._high:
                    _extend(known.runs, [(start, stop)])
                return
        if not read:
            raise ReadNeeded
        found: list[Run] = []
        later = known.later
        for first, times in times_of(self._logs, view, piece, self._by_event_time):
            first += piece.shift
            micros = times.cast(pa.int64())
            behind = pc.fill_null(pc.greater_equal(micros, self._low), False)
            if later is None and pc.any(behind).as_py():
                later = first + int(pc.index(behind, True).as_py())
            inside = pc.fill_null(pc.and_(behind, pc.less(micros, self._high)), False)
            found += [(first + low, first + high) for low, high in _runs(inside)]
        _extend(known.runs, found)
        known.later = later


def _extend(runs: list[Run], more: list[Run]) -> None:
    """Append runs that come after the others; adjacent ones are merged."""
    runs += union([*([runs.pop()] if runs else []), *more])


def _runs(mask: pa.Array) -> list[Run]:
    """The ranges in which a mask is true."""
    bits = np.asarray(mask.to_numpy(zero_copy_only=False), dtype=np.int8)
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
