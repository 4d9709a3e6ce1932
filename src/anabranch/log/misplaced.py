"""Counts the events on the wrong side of a cut at a time.

Extents whose time bounds lie on the right side are not read. Of other extents only the column of times is read.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core import cuts
from anabranch.errors import BlobMissing, Truncated
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.time_index import cut_at, times_of
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.misplaced import Misplaced
from anabranch.model.stream import StreamView


def count_misplaced(
    logs: LogReader, view: StreamView, time: Micros, cut: StreamCut | None, *, by_event_time: bool
) -> Misplaced:
    """How many events of the view lie on the wrong side of `cut`, by default the cut at `time` (µs), which has none
    before it. Events without a time lie on either side. Events truncated meanwhile are not counted. Raises InvalidCut,
    StreamNotFound, CorruptBlob."""
    given = cut is not None
    if cut is None:
        cut = cut_at(logs, view, time, by_event_time=by_event_time)
    passed = cuts.read_offsets(view, cut)
    before = after = 0
    for segment in view.ordered:
        place = passed.get(segment.id, segment.head)
        late = _EventsOnOneSide(logs, view, segment.id, time, by_event_time=by_event_time, late=True)
        early = _EventsOnOneSide(logs, view, segment.id, time, by_event_time=by_event_time, late=False)
        before += late.count(segment.head, place) if given else 0
        after += early.count(place, view.length(segment.id))
    return Misplaced(cut, before, after)


class _EventsOnOneSide:
    """Counts the events of a segment at or after a time (`late`), or those before it."""

    def __init__(
        self,
        logs: LogReader,
        view: StreamView,
        segment: SegmentId,
        time: Micros,
        *,
        by_event_time: bool,
        late: bool,
    ) -> None:
        self._logs = logs
        self._view = view
        self._segment = segment
        self._time = time
        self._by_event_time = by_event_time
        self._late = late

    def count(self, start: int, stop: int) -> int:
        """Among the offsets `start <= offset < stop`."""
        total, at = 0, start
        source = SegmentReader(self._logs, self._view, self._segment)
        while at < stop:
            try:
                page = source.plan(at, stop)
                for piece in page.extents:
                    total += self._count_in(piece)
                    at = piece.stop + piece.shift
                at = page.stop
            except Truncated:
                at = source.first_readable(at, stop)
            except BlobMissing as exc:
                source.plan_again(exc)
        return total

    def _count_in(self, piece: PlannedExtent) -> int:
        bounds = piece.extent.events if self._by_event_time else piece.extent.appended
        if bounds.low is not None and bounds.high is not None:
            if bounds.high < self._time if self._late else bounds.low >= self._time:
                return 0
            if not self._by_event_time and (bounds.low >= self._time if self._late else bounds.high < self._time):
                return piece.stop - piece.start  # every event has an append time
        compare = pc.greater_equal if self._late else pc.less
        total = 0
        for _, times in times_of(self._logs, self._view, piece, self._by_event_time):
            total += pc.sum(compare(times.cast(pa.int64()), self._time)).as_py() or 0
        return total
