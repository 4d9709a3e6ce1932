"""The part of a stream between two cuts, as segments and spans that no later append can change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.core.cuts import ranges, reached, resolve, truncated
from anabranch.core.spans import locate, offset_of
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import Segment, Span, StreamView


@dataclass(frozen=True, slots=True)
class Piece:
    """What of one segment lies between the cuts: the offsets `segment.head <= offset < stop`. `spans` are closed, in
    offset order, none empty, and cover just these."""

    segment: Segment
    stop: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """All segments of a stream, in id order, each with what of it lies between `start` and `end`, which may be
    nothing: so the epochs stay what they were. No event of it was appended after `appended_at`."""

    view: StreamView
    start: StreamCut
    end: StreamCut
    pieces: tuple[Piece, ...]
    appended_at: Micros

    @property
    def events(self) -> int:
        """How many events lie in it."""
        return sum(piece.stop - piece.segment.head for piece in self.pieces)


def plan_stretch(view: StreamView, start: StreamCut | Edge, end: StreamCut | Edge) -> Stretch:
    """Takes O(n log n) in segments and spans. Raises InvalidCut, also where `end` lies before `start`; Truncated."""
    start, end = resolve(view, start), resolve(view, end)
    ranges(view, start, end)  # refuses an end before the start
    early, late = reached(view, start), reached(view, end)
    pieces = []
    for segment in view.ordered:
        head = early.get(segment.id, segment.head)
        pieces.append(_piece(view, replace(segment, head=head), max(head, late.get(segment.id, head))))
    return Stretch(
        view, start, end, tuple(pieces), max((log.appended_at for log in view.logs.values()), default=Micros(0))
    )


def _piece(view: StreamView, segment: Segment, stop: int) -> Piece:
    spans = []
    for span, low, high in locate(view.spans.get(segment.id, ()), segment.head, stop):
        if low < view.logs[span.log].low_water:  # a view outlives its extents only where somebody held it too long
            raise truncated(view)
        spans.append(Span(segment.id, offset_of(span, low), span.log, low, high))
    assert sum(span.stop - span.start for span in spans if span.stop is not None) == stop - segment.head
    return Piece(segment, stop, tuple(spans))
