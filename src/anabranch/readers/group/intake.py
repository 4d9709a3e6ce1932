"""The rows of the segments that a group reader has, of any number of streams. It never waits, and it knows nothing of
successors: which segments it has is for the group to say."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import NamedTuple

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.errors import StreamNotFound
from anabranch.log.plan import Plan
from anabranch.log.read import LogReader, Rows, Selection
from anabranch.log.view import load, refresh
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView

_EXTENTS_PER_PLAN_MIN = 16

Ends = Mapping[StreamId, Mapping[SegmentId, int]]


class Delivery(NamedTuple):
    """Rows of one segment, at least one, and the view in which they were found."""

    segment: StreamSegment
    rows: Rows
    view: StreamView


class _Stale(Exception):
    """The stream changed since the view was loaded."""


class Intake:
    """Pulls rows; the segments it has take turns. For one thread at a time."""

    def __init__(
        self, catalog: Catalog, logs: LogReader, streams: Sequence[StreamId], ends: Ends, *, rows_max: int
    ) -> None:
        self._catalog = catalog
        self._logs = logs
        self._ends = ends
        self._rows_max = rows_max
        self._positions: dict[StreamSegment, int] = {}
        self._open: dict[StreamSegment, Generator[Rows]] = {}  # reads under way
        self._turns: deque[StreamSegment] = deque()
        with catalog.reading() as reading:
            self.views: dict[StreamId, StreamView] = {stream: load(reading, stream) for stream in streams}

    @property
    def positions(self) -> Mapping[StreamSegment, int]:
        """The segments it has, and where it reads on in each."""
        return self._positions

    def begin(self, segment: StreamSegment, offset: int) -> None:
        """Have a segment from now on, or go on elsewhere in it."""
        self._end(segment)
        self._positions[segment] = offset
        if segment not in self._turns:
            self._turns.append(segment)

    def drop(self, segments: Collection[StreamSegment]) -> None:
        """Have these segments no more."""
        for segment in segments:
            self._end(segment)
            self._positions.pop(segment, None)
        self._turns = deque(segment for segment in self._turns if segment in self._positions)

    def refresh(self) -> bool:
        """Look at the streams anew. False where nothing changed. Raises StreamNotFound."""
        with self._catalog.reading() as reading:
            fresh = {stream: refresh(reading, view) for stream, view in self.views.items()}
        changed = any(fresh[stream] is not view for stream, view in self.views.items())
        self.views = fresh
        return changed

    def pull(self) -> Delivery | None:
        """The next rows that are there, or None where the views hold no more. Raises Truncated, StreamNotFound,
        CorruptBlob, BlobMissing."""
        for _ in range(len(self._turns)):
            segment = self._turns[0]
            while True:
                try:
                    rows = self._next(segment)
                    break
                except _Stale:
                    self._reload(segment.stream)
            self._turns.rotate(-1)
            if rows is not None:
                return Delivery(segment, rows, self.views[segment.stream])
        return None

    def exhausted(self) -> list[StreamSegment]:
        """The segments it has that hold nothing more, now or ever."""
        return [segment for segment, offset in self._positions.items() if self._is_over(segment, offset)]

    def close(self) -> None:
        """End what helps with reading. A second close is harmless."""
        for segment in list(self._open):
            self._end(segment)

    def _is_over(self, segment: StreamSegment, offset: int) -> bool:
        view = self.views[segment.stream]
        if segment.segment not in view.segments:
            return False
        end = self._ends.get(segment.stream)
        if end is not None and offset >= end.get(segment.segment, 0):
            return True
        return view.sealed(segment.segment) and offset >= view.length(segment.segment)

    def _next(self, segment: StreamSegment) -> Rows | None:
        while self._positions[segment] < self._stop(segment):
            reading = self._open.get(segment) or self._begin(segment)
            try:
                rows = next(reading)
            except StopIteration:
                del self._open[segment]
                continue
            except BaseException:
                self._open.pop(segment, None)
                raise
            self._positions[segment] = rows.stop
            if rows.batch.num_rows:
                return rows
        return None

    def _begin(self, segment: StreamSegment) -> Generator[Rows]:
        extents_max = max(limits.EXTENTS_PER_PLAN_MAX // len(self._positions), _EXTENTS_PER_PLAN_MIN)
        start, stop = self._positions[segment], self._stop(segment)

        def page(offset: int) -> Plan:
            view = self.views[segment.stream]
            with self._catalog.reading() as reading:
                info = reading.stream(segment.stream)
                if info is None or info.version != view.info.version:
                    raise _Stale
                return self._logs.plan(reading, view, segment.segment, offset, stop, extents_max=extents_max)

        selection = Selection(self.views[segment.stream].info.schema.columns, self._rows_max)
        opened = self._logs.read(page, start, stop, selection)
        self._open[segment] = opened
        return opened

    def _stop(self, segment: StreamSegment) -> int:
        view, end = self.views[segment.stream], self._ends.get(segment.stream)
        if segment.segment.epoch > view.info.epoch:
            raise _Stale  # another reader saw a scale that this one has not
        if cuts.below_head(view, {segment.segment: self._positions[segment]}):
            raise cuts.truncated(view)
        length = view.length(segment.segment)
        return length if end is None else min(length, end.get(segment.segment, 0))

    def _reload(self, stream: StreamId) -> None:
        with self._catalog.reading() as reading:
            if reading.stream(stream) is None:
                raise StreamNotFound(str(self.views[stream].info.name))
            self.views = {**self.views, stream: load(reading, stream)}

    def _end(self, segment: StreamSegment) -> None:
        if segment in self._open:
            self._open.pop(segment).close()
