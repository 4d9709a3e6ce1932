"""Pulls rows of the segments that are assigned to a group reader, of any number of streams. It never waits and does
not continue with successors: the group decides which segments a reader has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.errors import StreamNotFound
from anabranch.log.read import LogReader, SegmentRows, Selection
from anabranch.log.view import load, refresh, with_current_spans
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView
from anabranch.reading.open_segments import OpenSegments, StaleView

Ends = Mapping[StreamId, Mapping[SegmentId, int]]


class GroupDelivery(NamedTuple):
    """Rows of one segment, at least one, and the view in which they were found."""

    segment: StreamSegment
    rows: SegmentRows
    view: StreamView


class GroupCursor:
    """Pulls rows from its segments in turn. For one thread at a time."""

    def __init__(
        self,
        catalog: Catalog,
        logs: LogReader,
        streams: Sequence[StreamId],
        ends: Ends,
        *,
        rows_max: int,
        deleted: Callable[[], StreamNotFound | None],
    ) -> None:
        """`deleted` returns the error for a deleted stream of the group, None if no stream was deleted."""
        self._catalog = catalog
        self._deleted = deleted
        self._ends = ends
        self._rows_max = rows_max
        self._positions: dict[StreamSegment, int] = {}
        self._reads = OpenSegments(logs)
        self._turns: deque[StreamSegment] = deque()
        with self._translated(), catalog.reading() as reading:
            self.views: dict[StreamId, StreamView] = {stream: load(reading, stream) for stream in streams}

    @property
    def positions(self) -> Mapping[StreamSegment, int]:
        """The segments it has, and the next offset to read in each."""
        return self._positions

    def seek(self, segment: StreamSegment, offset: int) -> None:
        """Add a segment, or move to another offset in it."""
        self._reads.end([segment])
        self._positions[segment] = offset
        if segment not in self._turns:
            self._turns.append(segment)

    def remove(self, segments: Collection[StreamSegment]) -> None:
        """Remove these segments."""
        self._reads.end(segments)
        for segment in segments:
            self._positions.pop(segment, None)
        self._turns = deque(segment for segment in self._turns if segment in self._positions)

    def refresh(self) -> bool:
        """Reload the streams' views. Returns False where nothing changed. Raises GroupStreamDeleted."""
        with self._translated(), self._catalog.reading() as reading:
            refreshed = {stream: refresh(reading, view) for stream, view in self.views.items()}
        changed = any(refreshed[stream] is not view for stream, view in self.views.items())
        self.views = refreshed
        return changed

    def pull(self) -> GroupDelivery | None:
        """The next available rows, or None where the views hold no more. Raises Truncated, GroupStreamDeleted,
        CorruptBlob, BlobMissing."""
        with self._translated():
            return self._pull()

    def _pull(self) -> GroupDelivery | None:
        for _ in range(len(self._turns)):
            segment = self._turns[0]
            while True:
                try:
                    rows = self._next(segment)
                    break
                except StaleView:
                    self._reload(segment.stream)
            self._turns.rotate(-1)
            if rows is not None:
                return GroupDelivery(segment, rows, self.views[segment.stream])
        return None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except StreamNotFound as exc:
            raise (self._deleted() or exc) from None

    def exhausted(self) -> list[StreamSegment]:
        """The segments it has that have no more rows, now or ever."""
        return [segment for segment, offset in self._positions.items() if self._is_exhausted(segment, offset)]

    def close(self) -> None:
        """Close the reads under way. A second close is harmless."""
        self._reads.end()

    def _is_exhausted(self, segment: StreamSegment, offset: int) -> bool:
        view = self.views[segment.stream]
        if segment.segment not in view.segments:
            return False
        end = self._ends.get(segment.stream)
        if end is not None and offset >= end.get(segment.segment, 0):
            return True
        return view.sealed(segment.segment) and offset >= view.length(segment.segment)

    def _next(self, segment: StreamSegment) -> SegmentRows | None:
        while (position := self._positions[segment]) < (stop := self._stop(segment)):
            view = self.views[segment.stream]
            selection = Selection(view.info.schema.columns, self._rows_max)
            share = len(self._positions)
            rows = self._reads.pull(view, segment.segment, position, stop, selection, share=share)
            self._positions[segment] = rows.stop
            if rows.batch.num_rows:
                return rows
        return None

    def _stop(self, segment: StreamSegment) -> int:
        view, end = self.views[segment.stream], self._ends.get(segment.stream)
        if segment.segment.epoch > view.info.epoch:
            raise StaleView  # another reader saw a scale that this one has not
        cuts.check_readable(view, {segment.segment: self._positions[segment]})
        length = view.length(segment.segment)
        return length if end is None else min(length, end.get(segment.segment, 0))

    def _reload(self, stream: StreamId) -> None:
        with self._catalog.reading() as reading:
            self.views = {**self.views, stream: with_current_spans(reading, self.views[stream])}
