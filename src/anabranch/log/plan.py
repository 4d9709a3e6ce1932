"""Plans reads: which extents hold a segment range. A plan covers one page, and may be stale when it is carried out: the
extents may have been compacted, and their old blobs collected, since it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.core.compaction import GONE
from anabranch.core.spans import locate
from anabranch.errors import BlobMissing, CorruptCatalog
from anabranch.model.ids import LogId, SegmentId, StreamId
from anabranch.model.stream import Extent, StreamView
from anabranch.runtime.log_events import PLAN_STALE


class PlannedExtent(NamedTuple):
    """The events of one extent that a read needs: positions `start <= position < stop` of its log. Adding `shift` to a
    position gives the segment's offset. `columns` are those the extent was encoded with."""

    extent: Extent
    start: int
    stop: int
    shift: int
    columns: pa.Schema

    @property
    def row(self) -> int:
        """The first event's row in the message or file."""
        return self.extent.location.row + self.start - self.extent.start


class ReadPlan(NamedTuple):
    """Planned extents in offset order. Covers the offsets up to `stop`; offsets in no planned extent were pruned."""

    extents: list[PlannedExtent]
    stop: int


class MissingBlob:
    """Distinguishes a stale plan from a damaged store, during one read. A new plan does not name a blob that was
    collected; if the same blob is missing again, it is lost."""

    def __init__(self) -> None:
        self._key: str | None = None

    def plan_again(self, error: BlobMissing) -> None:
        """Returns normally if the plan may be stale; the caller then plans the rest of its read again. Raises the
        error if the same blob was missing before."""
        if error.key == self._key:
            raise error
        self._key = error.key
        PLAN_STALE(blob=error.key)


def plan(
    reading: Reading,
    view: StreamView,
    segment: SegmentId,
    start: int,
    stop: int,
    *,
    extents_max: int,
    columns: Callable[[Reading, StreamId, int], pa.Schema],
    between: tuple[int, int] | None = None,
) -> ReadPlan:
    """Plans the read of a segment's offsets `start <= offset < stop`, at most `extents_max` extents of it.

    `between` prunes extents with no event time in `between[0] <= time < between[1]`. An extent without bounds is never
    pruned. Raises CorruptCatalog if the log has no extent for a position.
    """
    pieces: list[PlannedExtent] = []
    left, reach = extents_max, start
    located = locate(view.spans.get(segment, ()), start, stop)
    found: dict[int, list[Extent]] = {}
    for number, (span, low, high) in enumerate(located):
        owner, shift, position = _owner(reading, view, span.log), span.offset - span.start, low
        if len(located) > 1 and number % limits.SPANS_PER_LOOKUP == 0:
            behind = located[number + limits.SPANS_PER_LOOKUP :]
            found = _by_span(reading, view, segment, low + shift, behind[0][0].offset if behind else stop, left)
        extents = found.get(span.offset, [])
        if not extents or extents[0].log != span.log:  # the only span, or the catalog is newer than the view
            extents = reading.extents(span.log, low, high, left)
        for extent in extents:
            if not extent.start <= position < extent.stop or extent.encoding == GONE:
                break
            first, position = position, min(extent.stop, high)
            if between is None or _intersects(extent, *between):
                pieces.append(PlannedExtent(extent, first, position, shift, columns(reading, owner, extent.schema)))
        reach = position + shift
        if position < high and (len(extents) < left or extents[-1].stop > position):
            raise CorruptCatalog(f"log {span.log} has no extent for position {position}")
        left -= len(extents)
        if left <= 0:
            return ReadPlan(pieces, reach)
    if reach < stop:
        raise CorruptCatalog(f"segment {segment} of '{view.info.name}' has no span for offset {reach}")
    return ReadPlan(pieces, reach)


def _by_span(
    reading: Reading, view: StreamView, segment: SegmentId, start: int, stop: int, limit: int
) -> dict[int, list[Extent]]:
    """The extents of several spans, by the offset at which each span begins."""
    found: dict[int, list[Extent]] = {}
    for offset, extent in reading.extents_of_segment(view.info.id, segment, start, stop, limit):
        found.setdefault(offset, []).append(extent)
    return found


def _owner(reading: Reading, view: StreamView, log: LogId) -> StreamId:
    state = view.logs.get(log) or reading.logs([log]).get(log)
    if state is None:
        raise CorruptCatalog(f"log {log} is missing, though a span of '{view.info.name}' is in it")
    return state.stream


def _intersects(extent: Extent, low: int, high: int) -> bool:
    bounds = extent.events
    return bounds.low is None or bounds.high is None or (bounds.low < high and bounds.high >= low)
