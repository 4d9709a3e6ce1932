"""The one way to read a segment: plans a page at a time, with spans that are current, and plans again if a plan is stale.

Deciding which segments to read, in which order and how far is left to the callers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.core import cuts
from anabranch.errors import BlobMissing
from anabranch.log.plan import MissingBlob, ReadPlan, plan
from anabranch.log.read import LogReader, SegmentRows, Selection, no_rows
from anabranch.log.view import with_current_spans
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView

CurrentView: TypeAlias = Callable[[Reading, StreamView], StreamView]


class SegmentReader:
    """Reads one segment, also while its stream is appended to, scaled, flattened or compacted. For one thread at a
    time.

    Every page is planned in a catalog snapshot of its own. `current` returns the view that is valid in the snapshot,
    given the last one; by default the stream is loaded again if it changed in another way than by appends. Offsets are
    half-open ranges, and `stop` is at most the segment's length. Each method raises StreamNotFound; Truncated if
    events of the range are gone; CorruptCatalog.
    """

    def __init__(
        self,
        logs: LogReader,
        view: StreamView,
        segment: SegmentId,
        *,
        extents_max: int | None = None,
        current: CurrentView = with_current_spans,
    ) -> None:
        """A page of a plan holds at most `extents_max` extents; None stands for `limits.EXTENTS_PER_PLAN_MAX`."""
        self.view = view  # as of the last plan
        self.segment = segment
        self._logs = logs
        self._extents_max = extents_max
        self._current = current
        self._missing = MissingBlob()

    def plan_in(self, reading: Reading, start: int, stop: int, *, between: tuple[int, int] | None = None) -> ReadPlan:
        """The next page of the plan, in the caller's snapshot. `between` prunes extents, as in `log.plan.plan`."""
        self.view = view = self._current(reading, self.view)
        cuts.check_readable(view, {self.segment: start})
        return plan(
            reading,
            view,
            self.segment,
            start,
            stop,
            extents_max=self._extents_max or limits.EXTENTS_PER_PLAN_MAX,
            columns=self._logs.columns,
            between=between,
        )

    def plan(self, start: int, stop: int, *, between: tuple[int, int] | None = None) -> ReadPlan:
        """The next page of the plan, in a snapshot of its own."""
        with self._logs.catalog.reading() as reading:
            return self.plan_in(reading, start, stop, between=between)

    def pages(self, start: int, stop: int, *, between: tuple[int, int] | None = None) -> Iterator[ReadPlan]:
        """The whole plan, page by page, for a caller that reads no blob or keeps them from being collected."""
        while start < stop:
            page = self.plan(start, stop, between=between)
            yield page
            start = page.stop

    def first_readable(self, start: int, stop: int) -> int:
        """After Truncated: the first offset of the range that is left, or an offset from `stop` on if none is."""
        present = self.view.segments.get(self.segment)  # none: it is wholly truncated, or a replacement removed it
        return stop if present is None else max(start, present.head)

    def plan_again(self, error: BlobMissing) -> None:
        """Call this if a planned blob is missing, then plan again from the first offset that was not read. Raises the
        error if that was done for this blob before."""
        self._missing.plan_again(error)

    def rows(self, start: int, stop: int, selection: Selection) -> Generator[SegmentRows]:
        """The selected rows of `start <= offset < stop`, in order. A batch is empty if all its rows were left out; the
        last one ends at `stop`.

        Raises CorruptBlob if bytes are not those that were written, and BlobMissing if a blob is gone that a second
        plan still names.
        """
        offset = start
        while offset < stop:
            page = self.plan(offset, stop, between=selection.between)
            try:
                for rows in self._logs.rows(page.extents, selection):
                    yield rows
                    offset = rows.stop
            except BlobMissing as exc:
                self.plan_again(exc)
                continue
            if offset < page.stop:  # what follows was pruned
                yield no_rows(offset, page.stop, selection)
                offset = page.stop
