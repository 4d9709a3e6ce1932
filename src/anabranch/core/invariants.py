"""The invariants of the catalog's rows: pure functions from rows to sentences about violations.

They assume nothing: any row may have been changed from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from anabranch import limits
from anabranch.core.compaction import ARROW, GONE, PARQUET
from anabranch.core.holes import intersects, viewed_ranges
from anabranch.core.ranges import Range, covered
from anabranch.model.append import LogState, Progress
from anabranch.model.ids import LogId, SegmentId, StreamId, WriterId
from anabranch.model.keyspace import KEY_SPACE_END, KeyRange
from anabranch.model.stream import Extent, Segment, Span, StreamView


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """A violated invariant: of a segment or a log of a stream, or of the stream as a whole."""

    message: str
    segment: SegmentId | None = None
    log: LogId | None = None


# streams


def stream_violations(view: StreamView) -> Iterator[InvariantViolation]:
    """Violations in a stream: epochs and key space, bookkeeping of segments, spans. O(n log n)."""
    for segment in view.ordered:
        for what in _segment_flaws(view, segment):
            yield InvariantViolation(what, segment.id)
    yield from _coverage_flaws(view)
    for unknown in view.spans.keys() - view.segments.keys():
        yield InvariantViolation("spans belong to a segment that does not exist", unknown)
    for segment in view.ordered:
        yield from _span_flaws(view, segment)


def _segment_flaws(view: StreamView, segment: Segment) -> Iterator[str]:
    epoch = view.info.epoch
    if segment.created > epoch:
        yield f"was created in epoch {segment.created}, but the stream is in epoch {epoch}"
    if segment.id.number >= view.info.next_number:
        yield f"has number {segment.id.number}, but the stream's next number is {view.info.next_number}"
    if segment.retired is not None and not segment.created < segment.retired <= epoch:
        yield f"was retired in epoch {segment.retired}, which is not between {segment.created + 1} and {epoch}"


def _coverage_flaws(view: StreamView) -> Iterator[InvariantViolation]:
    """Each epoch covers the key space once: the first does, and in each later one the new segments take over exactly
    the key ranges of those they retired."""
    created: dict[int, list[KeyRange]] = {}
    retired: dict[int, list[KeyRange]] = {}
    for segment in view.ordered:
        created.setdefault(segment.created, []).append(segment.range)
        if segment.retired is not None:
            retired.setdefault(segment.retired, []).append(segment.range)
    if not created:
        yield InvariantViolation("it has no segments")
        return
    first = min(created)
    for epoch in range(first, view.info.epoch + 1):
        new = created.get(epoch, [])
        if not new:
            yield InvariantViolation(f"epoch {epoch} began without a new segment")
        for low, high in pairwise(sorted(new)):
            if low.overlaps(high):
                yield InvariantViolation(f"in epoch {epoch} the key ranges {low} and {high} overlap")
        if epoch == first:
            if covered(new) != [(0, KEY_SPACE_END)]:
                yield InvariantViolation(f"the segments of epoch {epoch} do not cover the key space")
        elif covered(new) != covered(retired.get(epoch, [])):
            yield InvariantViolation(
                f"the segments created in epoch {epoch} do not cover the key ranges of those it retired"
            )


def _span_flaws(view: StreamView, segment: Segment) -> Iterator[InvariantViolation]:
    spans = view.spans.get(segment.id, ())
    for span in spans:
        for what in _placement_flaws(view.logs.get(span.log), span):
            yield InvariantViolation(what, segment.id, span.log)
    for before, after in pairwise(spans):
        if before.stop is None:
            yield InvariantViolation(
                "a span that follows its log is not the last of its segment", segment.id, before.log
            )
        elif before.offset + before.stop - before.start != after.offset:
            end = before.offset + before.stop - before.start
            yield InvariantViolation(
                f"one span ends at offset {end}, the next begins at {after.offset}", segment.id, after.log
            )
    yield from _edge_flaws(view, segment, spans)


def _placement_flaws(log: LogState | None, span: Span) -> Iterator[str]:
    if log is None:
        yield f"the span at offset {span.offset} is in a log that does not exist"
        return
    stop = log.length if span.stop is None else span.stop
    if not 0 <= span.start <= stop:
        yield f"the span at offset {span.offset} runs from position {span.start} to {stop}"
    elif stop > log.length and not (log.sealed and span.start == stop):
        # A sealed log ends after the last viewed event, so a span that views none may be after that.
        yield f"the span at offset {span.offset} ends at position {stop}, its log at {log.length}"
    elif span.start < log.low_water and span.start < stop:
        yield f"the span at offset {span.offset} begins at position {span.start}, its log only at {log.low_water}"


def _edge_flaws(view: StreamView, segment: Segment, spans: Sequence[Span]) -> Iterator[InvariantViolation]:
    """The head is within the segment; the end is open exactly if the segment is."""
    sealed = view.sealed(segment.id)
    if not spans:
        if not sealed:
            yield InvariantViolation("is open, but has no span", segment.id)
        return
    last = spans[-1]
    log = view.logs.get(last.log)
    if sealed and last.stop is None:
        yield InvariantViolation("is sealed, but its last span follows its log", segment.id, last.log)
    if not sealed and last.stop is not None:
        yield InvariantViolation("is open, but its last span does not follow its log", segment.id, last.log)
    if not sealed and log is not None and log.sealed:
        yield InvariantViolation("is open, but its log is sealed", segment.id, last.log)
    if log is not None:
        length = last.offset + (log.length if last.stop is None else last.stop) - last.start
        if not spans[0].offset <= segment.head <= length:
            yield InvariantViolation(
                f"its head is {segment.head}, its offsets are {spans[0].offset} … {length}", segment.id
            )


# logs


def log_violations(log: LogState, spans: Sequence[tuple[StreamId, Span]]) -> Iterator[str]:
    """Violations in a log and in all the spans that view it."""
    following = sum(span.stop is None for _, span in spans)
    if not 0 <= log.low_water <= log.length:
        yield f"its low-water mark is {log.low_water}, its length {log.length}"
    if log.sealed and following:
        yield "it is sealed, but a span follows it"
    if not log.sealed and following != 1:
        yield f"it is open, but {following or 'no'} spans follow it"


@dataclass(slots=True)
class ExtentChain:
    """Checks a log's extents one after another from its low-water mark on, yielding violations. `_viewed` holds the
    positions that the log's spans view."""

    _viewed: list[Range]
    _last: Extent | None = field(default=None)

    @classmethod
    def of(cls, spans: Iterable[tuple[StreamId, Span]]) -> ExtentChain:
        """A chain for the log that these spans view."""
        return cls(viewed_ranges(span for _, span in spans))

    def check_next(self, log: LogState, extent: Extent) -> Iterator[str]:
        """Check the next extent; `log` as of the same snapshot."""
        label = f"the extent {extent.start} … {extent.stop}"
        last, self._last = self._last, extent
        if extent.start >= extent.stop:
            yield f"{label} is empty"
        if last is None:
            if extent.start > log.low_water:
                yield f"positions {log.low_water} … {extent.start - 1} are in no extent"
        elif extent.start > last.stop:
            yield f"positions {last.stop} … {extent.start - 1} are in no extent"
        elif extent.start < last.stop:
            yield f"{label} overlaps the one before, which ends at {last.stop}"
        if extent.encoding == GONE and intersects(self._viewed, extent):
            yield f"{label} was collected, though a span views it"
        if extent.stop > log.length:
            yield f"{label} reaches beyond the log's length {log.length}"
        if extent.size_end < (last.size_end if last else 0):
            yield f"{label} ends at logical byte {extent.size_end}, the one before at {last.size_end if last else 0}"
        for what in (*_time_flaws(log, extent, last), *_encoding_flaws(extent)):
            yield f"{label} {what}"

    def check_end(self, log: LogState) -> Iterator[str]:
        """Check after the last extent; `log` as of the same snapshot."""
        last = self._last
        if last is None:
            if log.low_water != log.length:
                yield f"positions {log.low_water} … {log.length - 1} are in no extent"
            return
        if last.stop < log.length:
            yield f"positions {last.stop} … {log.length - 1} are in no extent"
        if last.size_end != log.size:
            yield f"its extents hold {last.size_end} logical bytes, the log's row says {log.size}"
        if last.appended.high is not None and last.appended.high > log.appended_at:
            yield f"its last extent was appended at {last.appended.high} µs, the log's row says {log.appended_at}"


def _time_flaws(log: LogState, extent: Extent, last: Extent | None) -> Iterator[str]:
    low, high = extent.appended.low, extent.appended.high
    if low is None or high is None or low > high:
        yield f"was appended from {low} to {high} µs"
    elif last is not None and last.appended.high is not None and low < last.appended.high:
        yield f"was appended at {low} µs, the one before at {last.appended.high}"
    elif extent.encoding == ARROW and low != high:
        yield f"is one append, but has append times from {low} to {high} µs"
    low, high = extent.events.low, extent.events.high
    if (low is None) != (high is None) or (low is not None and high is not None and low > high):
        yield f"has event times from {low} to {high} µs"
    elif high is not None and (log.event_high is None or high > log.event_high):
        yield f"has event times up to {high} µs, the log's row says {log.event_high}"


def _encoding_flaws(extent: Extent) -> Iterator[str]:
    if extent.encoding == GONE:
        if extent.blob is not None or extent.data is not None:
            yield "was collected, but has bytes"
        return
    if extent.encoding not in (ARROW, PARQUET):
        yield f"has an unknown encoding '{extent.encoding}'"
    if extent.blob is None and extent.data is None:
        yield "has neither a blob nor inlined bytes"
    if extent.blob is not None and extent.data is not None:
        yield "has both a blob and inlined bytes"
    if extent.blob is not None and extent.key is None:
        yield f"is in blob {extent.blob}, which the catalog does not list"
    if min(extent.location.offset, extent.location.length, extent.location.row) < 0:
        yield f"lies at byte {extent.location.offset}, length {extent.location.length}, row {extent.location.row}"


def progress_violations(log: LogState, writer: WriterId, progress: Progress) -> Iterator[str]:
    """Violations in the progress that a log stores for a writer."""
    who = f"writer {writer}"
    batches = progress.recent
    if len(batches) > limits.WRITER_BATCHES_KEPT:
        yield f"{who} has {len(batches)} recorded batches, at most {limits.WRITER_BATCHES_KEPT} are kept"
    for one, two in pairwise(batches):
        in_order = one.first + one.events == two.first and one.start + one.events <= two.start
        if not in_order or one.appended_at > two.appended_at or one.fence > two.fence:
            yield f"{who}: its batches {one.first} and {two.first} do not follow each other"
    for first, count, start, at, fence in batches:
        # A sealed log may have been cut after the last viewed position.
        beyond = start + count > log.length and not log.sealed
        if first < 0 or count <= 0 or start < 0 or beyond or at > log.appended_at or fence > progress.fence:
            yield f"{who}: its batch {first} of {count} events at {start} is not in the log"
    if batches and batches[-1][0] + batches[-1][1] != progress.next:
        yield f"{who} continues at {progress.next}, its last batch ends at {batches[-1][0] + batches[-1][1]}"
    if progress.next < 0 or progress.fence < 0:
        yield f"{who} continues at {progress.next} under fence {progress.fence}"
