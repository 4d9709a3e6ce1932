"""The flow of a stream's rows in reading order. It never waits; a reader decides what to do when it runs dry."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from typing import NamedTuple

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.errors import StreamNotFound
from anabranch.log.plan import Plan
from anabranch.log.read import LogReader, Rows, Selection
from anabranch.log.view import load, refresh
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView

_EXTENTS_PER_PLAN_MIN = 16


class Delivery(NamedTuple):
    """Rows of one segment, at least one; the view in which they were found; and how far other segments, or this one,
    were read since the last delivery without finding any row that was asked for."""

    segment: SegmentId
    rows: Rows
    view: StreamView
    skipped: Mapping[SegmentId, int]


class _Stale(Exception):
    """The stream changed since the view was loaded."""


class Flow:
    """Pulls rows segment by segment: segments that have rows take turns, and a segment's successors follow when all
    their predecessors are exhausted. With `end`, nothing behind that cut is read."""

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
        self._logs = logs
        self._selection = selection
        self._view = view
        self._end = None if end is None else cuts.reached(view, end)
        self._positions = cuts.settle(view, start.as_dict())
        self._open: dict[SegmentId, tuple[Generator[Rows], int]] = {}  # reads under way, and where each stops
        self._skipped: dict[SegmentId, int] = {}
        self._turns = self._waiting()

    @property
    def positions(self) -> dict[SegmentId, int]:
        """Where the flow stands: behind everything it has delivered or left out."""
        return dict(self._positions)

    @property
    def view(self) -> StreamView:
        """The stream as it was last seen."""
        return self._view

    def pull(self) -> Delivery | None:
        """The next rows that are there, or None where the view holds no more. Raises Truncated, StreamNotFound,
        CorruptBlob, BlobMissing."""
        while True:
            while self._turns:
                segment = self._turns.popleft()
                try:
                    rows = self._next(segment)
                except _Stale:
                    self._turns.appendleft(segment)  # as long as the stream can't be looked at anew
                    self._reload()
                    continue
                except BaseException:
                    self._turns.appendleft(segment)  # who reads on gets the error again, never later rows
                    raise
                if rows is not None:
                    self._turns.append(segment)
                    skipped, self._skipped = self._skipped, {}
                    return Delivery(segment, rows, self._view, skipped)
            settled = cuts.settle(self._view, self._positions)
            if settled == self._positions:
                return None
            self._positions = settled
            self._turns = self._waiting()

    def refresh(self) -> bool:
        """Look whether there is more by now. Raises Truncated, StreamNotFound."""
        with self._catalog.reading() as reading:
            fresh = refresh(reading, self._view)
        if fresh is self._view:
            return False
        self._adopt(fresh)
        return bool(self._turns) or cuts.settle(self._view, self._positions) != self._positions

    @property
    def exhausted(self) -> bool:
        """True if nothing can follow: all is read up to the end that was given, or the stream is sealed."""
        if self._turns or cuts.settle(self._view, self._positions) != self._positions:
            return False
        return self._end is not None or self._view.info.sealed

    def close(self) -> None:
        """End what helps with reading. A second close is harmless."""
        while self._open:
            _, (reading, _) = self._open.popitem()
            reading.close()

    def _next(self, segment: SegmentId) -> Rows | None:
        """The next rows of a segment, or None where the view holds no more of it."""
        while self._positions[segment] < (stop := self._stop(segment)):
            reading, ends = self._open.get(segment) or self._begin(segment, stop)
            try:
                rows = next(reading)
            except StopIteration:
                if self._positions[segment] < ends:  # what lies behind the last rows was pruned
                    self._positions[segment] = self._skipped[segment] = ends
                del self._open[segment]
                continue
            except BaseException:
                self._open.pop(segment, None)
                raise
            self._positions[segment] = rows.stop
            if rows.batch.num_rows:
                return rows
            self._skipped[segment] = rows.stop
        return None

    def _begin(self, segment: SegmentId, stop: int) -> tuple[Generator[Rows], int]:
        extents_max = max(limits.EXTENTS_PER_PLAN_MAX // len(self._positions), _EXTENTS_PER_PLAN_MIN)

        def page(offset: int) -> Plan:
            with self._catalog.reading() as reading:
                info = reading.stream(self._view.info.id)
                if info is None or info.version != self._view.info.version:
                    raise _Stale
                return self._logs.plan(
                    reading,
                    self._view,
                    segment,
                    offset,
                    stop,
                    extents_max=extents_max,
                    between=self._selection.between,
                )

        opened = self._logs.read(page, self._positions[segment], stop, self._selection), stop
        self._open[segment] = opened
        return opened

    def _stop(self, segment: SegmentId) -> int:
        length = self._view.length(segment)
        return length if self._end is None else min(length, self._end.get(segment, 0))

    def _waiting(self) -> deque[SegmentId]:
        return deque(s for s in sorted(self._positions) if self._positions[s] < self._stop(s))

    def _reload(self) -> None:
        with self._catalog.reading() as reading:
            if reading.stream(self._view.info.id) is None:
                raise StreamNotFound(str(self._view.info.name))
            view = load(reading, self._view.info.id)
        self._adopt(view)

    def _adopt(self, view: StreamView) -> None:
        if cuts.below_head(view, self._positions):
            raise cuts.truncated(view)
        self._view = view
        self._turns = self._waiting()
