"""The reads under way of a cursor that takes rows from several segments in turn."""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import NamedTuple

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.log.read import LogReader, SegmentRows, Selection
from anabranch.log.segment_reader import SegmentReader
from anabranch.model.ids import SegmentId
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView

_EXTENTS_PER_PLAN_MIN = 16


class StaleView(Exception):
    """A stream changed, in another way than by appends, since the cursor loaded its view."""


class _PendingOpen(NamedTuple):
    source: SegmentReader
    rows: Generator[SegmentRows]


class OpenSegments:
    """At most one read of each segment. For one thread at a time."""

    def __init__(self, logs: LogReader) -> None:
        self._logs = logs
        self._reads: dict[StreamSegment, _PendingOpen] = {}

    def pull(
        self, view: StreamView, segment: SegmentId, start: int, stop: int, selection: Selection, *, share: int
    ) -> SegmentRows:
        """The next rows from `start`, where the previous rows ended, and before `stop`; no rows if the filter left out
        all that were read. The cursor has `share` segments, which share the extents of a page.

        Raises StaleView if the stream is no longer as `view` has it: the cursor loads it and calls again. Also raises
        what `SegmentReader.rows` raises. After any error the next call begins a new read.
        """
        place = StreamSegment(view.info.id, segment)
        known = self._reads.get(place)
        if known is not None:
            known.source.view = view
            rows = self._advance(place, known)
            if rows is not None:
                return rows
        extents_max = max(limits.EXTENTS_PER_PLAN_MAX // share, _EXTENTS_PER_PLAN_MIN)
        source = SegmentReader(self._logs, view, segment, extents_max=extents_max, current=_unchanged)
        begun = self._reads[place] = _PendingOpen(source, source.rows(start, stop, selection))
        rows = self._advance(place, begun)
        assert rows is not None  # start < stop
        return rows

    def end(self, segments: Collection[StreamSegment] | None = None) -> None:
        """Ends the reads of these segments, or all of them. May be called again."""
        for place in list(self._reads if segments is None else segments):
            if place in self._reads:
                self._reads.pop(place).rows.close()

    def _advance(self, place: StreamSegment, read: _PendingOpen) -> SegmentRows | None:
        try:
            rows = next(read.rows, None)
        except BaseException:
            self._reads.pop(place, None)
            raise
        if rows is None:
            del self._reads[place]
        return rows


def _unchanged(reading: Reading, view: StreamView) -> StreamView:
    info = reading.stream(view.info.id)
    if info is None or info.version != view.info.version:
        raise StaleView
    return view
