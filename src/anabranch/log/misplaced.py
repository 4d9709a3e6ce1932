"""Counts the events on the wrong side of a cut at a time.

Extents whose time bounds lie on the right side are not read. Of other extents only the column of times is read.
"""

from __future__ import annotations

from functools import partial

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
        count = partial(_count, logs, view, segment.id, time, by_event_time)
        before += count(segment.head, place, late=True) if given else 0
        after += count(place, view.length(segment.id), late=False)
    return Misplaced(cut, before, after)


def _count(
    logs: LogReader,
    view: StreamView,
    segment: SegmentId,
    time: Micros,
    by_event_time: bool,
    start: int,
    stop: int,
    *,
    late: bool,
) -> int:
    """How many events of `start <= offset < stop` are at or after a time (`late`), or before it."""
    total, at = 0, start
    source = SegmentReader(logs, view, segment)
    while at < stop:
        try:
            page = source.plan(at, stop)
            for piece in page.extents:
                total += _count_in(logs, view, piece, time, by_event_time, late)
                at = piece.stop + piece.shift
            at = page.stop
        except Truncated:
            at = source.first_readable(at, stop)
        except BlobMissing as exc:
            source.plan_again(exc)
    return total


def _count_in(
    logs: LogReader, view: StreamView, piece: PlannedExtent, time: Micros, by_event_time: bool, late: bool
) -> int:
    bounds = piece.extent.events if by_event_time else piece.extent.appended
    if bounds.low is not None and bounds.high is not None:
        if bounds.high < time if late else bounds.low >= time:
            return 0
        if not by_event_time and (bounds.low >= time if late else bounds.high < time):
            return piece.stop - piece.start  # every event has an append time
    compare = pc.greater_equal if late else pc.less
    total = 0
    for _, times in times_of(logs, view, piece, by_event_time):
        total += pc.sum(compare(times.cast(pa.int64()), time)).as_py() or 0
    return total
