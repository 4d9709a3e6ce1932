"""The part of a stream between two cuts, as segments and spans that later appends can't change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.core.cuts import ranges, read_offsets, resolve, truncated_error
from anabranch.core.spans import locate, offset_of
from anabranch.errors import CorruptCatalog
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import Segment, Span, StreamView


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """The part of one segment between the cuts: the offsets `segment.head <= offset < stop`. `spans` are closed, in
    offset order, not empty, and cover exactly these offsets."""

    segment: Segment
    stop: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class StreamSlice:
    """All segments of a stream, in id order, each with its part between `start` and `end`, which may be empty: so the
    epochs are preserved. None of its events was appended after `appended_at`."""

    view: StreamView
    start: StreamCut
    end: StreamCut
    segments: tuple[SegmentSlice, ...]
    appended_at: Micros

    @property
    def events(self) -> int:
        """How many events are in it."""
        return sum(segment_slice.stop - segment_slice.segment.head for segment_slice in self.segments)


def plan_slice(view: StreamView, start: StreamCut | Edge, end: StreamCut | Edge) -> StreamSlice:
    """Slice a stream between two cuts. Takes O(n log n) in segments and spans. Raises InvalidCut, also if `end` is
    before `start`; Truncated."""
    start, end = resolve(view, start), resolve(view, end)
    ranges(view, start, end)  # refuses an end before the start
    start_offsets, end_offsets = read_offsets(view, start), read_offsets(view, end)
    segment_slices = []
    for segment in view.ordered:
        head = start_offsets.get(segment.id, segment.head)
        segment_slices.append(
            _slice_segment(view, replace(segment, head=head), max(head, end_offsets.get(segment.id, head)))
        )
    return StreamSlice(
        view, start, end, tuple(segment_slices), max((log.appended_at for log in view.logs.values()), default=Micros(0))
    )


def _slice_segment(view: StreamView, segment: Segment, stop: int) -> SegmentSlice:
    spans = []
    for span, low, high in locate(view.spans.get(segment.id, ()), segment.head, stop):
        if low < view.logs[span.log].low_water:  # a view outlives its extents only if it was held too long
            raise truncated_error(view)
        spans.append(Span(segment.id, offset_of(span, low), span.log, low, high))
    if sum(span.stop - span.start for span in spans if span.stop is not None) != stop - segment.head:
        raise CorruptCatalog(
            f"the spans of segment {segment.id} of '{view.info.name}' do not cover all offsets below {stop}", "spans"
        )
    return SegmentSlice(segment, stop, tuple(spans))
