"""Pulls the rows of a stream in reading order. Never waits: the reader decides what to do if there are no more rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.log.read import LogReader, SegmentRows, Selection
from anabranch.log.view import refresh, with_current_spans
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView
from anabranch.reading.open_segments import OpenSegments, StaleView
from anabranch.reading.row_source import StreamDelivery


class StreamCursor:
    """Pulls rows segment by segment. Segments that have rows take turns; a segment's successors follow when all their
    predecessors are exhausted. With `end`, reads nothing after that cut."""

    def __init__(
        self,
        catalog: Catalog,
        logs: LogReader,
        view: StreamView,
        *,
        start: StreamCut,
        end: StreamCut | None,
        selection: Selection,
    ) -> None:
        self._catalog = catalog
        self._selection = selection
        self._view = view
        self._end = None if end is None else cuts.read_offsets(view, end)
        self._positions = cuts.skip_exhausted(view, start.as_dict())
        self._reads = OpenSegments(logs)
        self._moved = True  # other segments have moved, or new ones come, since the last delivery
        self._turns = self._waiting()

    @property
    def positions(self) -> dict[SegmentId, int]:
        """The offset in each segment after everything that was delivered or filtered out."""
        return dict(self._positions)

    @property
    def view(self) -> StreamView:
        """The stream as of the last look-up."""
        return self._view

    def pull(self) -> StreamDelivery | None:
        """The next available rows, or None if the view holds no more. Raises Truncated, StreamNotFound, CorruptBlob,
        BlobMissing."""
        while True:
            while self._turns:
                segment = self._turns.popleft()
                try:
                    rows = self._next(segment)
                except StaleView:
                    self._turns.appendleft(segment)  # in case loading the stream again fails
                    self._reload()
                    continue
                except BaseException:
                    self._turns.appendleft(segment)  # the next pull raises the error again, never returns later rows
                    raise
                if rows is not None:
                    self._turns.append(segment)
                    return StreamDelivery(segment, rows, self._before(segment, rows.first))
            settled = cuts.skip_exhausted(self._view, self._positions)
            if settled == self._positions:
                return None
            self._positions, self._moved = settled, True
            self._turns = self._waiting()

    def refresh(self) -> bool:
        """Loads the latest view; returns whether it has more to read. Raises Truncated, StreamNotFound."""
        with self._catalog.reading() as reading:
            fresh = refresh(reading, self._view)
        if fresh is self._view:
            return False
        self._adopt(fresh)
        return bool(self._turns) or cuts.skip_exhausted(self._view, self._positions) != self._positions

    @property
    def exhausted(self) -> bool:
        """True if nothing can follow: everything up to the given end is read, or the stream is sealed."""
        if self._turns or cuts.skip_exhausted(self._view, self._positions) != self._positions:
            return False
        return self._end is not None or self._view.info.sealed

    def close(self) -> None:
        """Closes the reads under way. May be called again."""
        self._reads.end()

    def _next(self, segment: SegmentId) -> SegmentRows | None:
        """The next rows of a segment, or None if the view holds no more of it."""
        while self._positions[segment] < (stop := self._stop(segment)):
            position, share = self._positions[segment], len(self._positions)
            rows = self._reads.pull(self._view, segment, position, stop, self._selection, share=share)
            self._positions[segment] = rows.stop
            if rows.batch.num_rows:
                return rows
            self._moved = True
        return None

    def _before(self, segment: SegmentId, first: int) -> Mapping[SegmentId, int] | None:
        if not self._moved:
            return None
        self._moved = False
        return cuts.skip_exhausted(self._view, {**self._positions, segment: first})

    def _stop(self, segment: SegmentId) -> int:
        length = self._view.length(segment)
        return length if self._end is None else min(length, self._end.get(segment, 0))

    def _waiting(self) -> deque[SegmentId]:
        return deque(s for s in sorted(self._positions) if self._positions[s] < self._stop(s))

    def _reload(self) -> None:
        with self._catalog.reading() as reading:
            view = with_current_spans(reading, self._view)
        self._adopt(view)

    def _adopt(self, view: StreamView) -> None:
        cuts.check_readable(view, self._positions)
        self._view = view
        self._turns = self._waiting()
