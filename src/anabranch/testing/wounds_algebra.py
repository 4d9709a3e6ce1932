"""Wounds of the operations that make streams of streams; see `testing.wounds`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from anabranch.catalog.port import Writing
from anabranch.core.stitch import Joined, StitchPlan
from anabranch.core.stretch import Piece, Stretch, plan_stretch
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams import algebra, append_stream, change, copy, naming
from anabranch.streams.create import delete_stream, open_segment
from anabranch.streams.find import need_info
from anabranch.streams.requests import Result
from anabranch.streams.stitch import stitch_streams
from anabranch.testing.clients import ALGEBRA, GROWTH
from anabranch.testing.faults import Action
from anabranch.testing.simulation import Weather
from anabranch.testing.wounds import Wound, _replaced

__all__ = ["ALGEBRA_WOUNDS"]


def share_the_open_log() -> AbstractContextManager[None]:
    """A copy's open segments go on in the logs of the source."""

    def put_stretch(txn: Writing, stream: StreamId, stretch: Stretch) -> None:
        for piece in stretch.pieces:
            txn.put_segment(stream, piece.segment)
            for span in piece.spans:
                txn.put_span(stream, span)
            if piece.segment.retired is None:
                _share(txn, stream, stretch.view, piece)

    return _replaced(copy, "put_stretch", put_stretch)


def _share(txn: Writing, stream: StreamId, view: StreamView, piece: Piece) -> None:
    last = view.spans[piece.segment.id][-1]
    start = last.start + piece.stop - last.offset
    txn.put_span(stream, Span(piece.segment.id, piece.stop, last.log, start, None))


def copy_all_but_the_last_event() -> AbstractContextManager[None]:
    """A copy ends one event too early, where a span ends with the source's tail."""

    def short(view: StreamView, start: Any, end: Any) -> Stretch:
        stretch = plan_stretch(view, start, end)
        return replace(stretch, pieces=tuple(_shortened(piece) for piece in stretch.pieces))

    return _replaced(copy, "plan_stretch", short)


def _shortened(piece: Piece) -> Piece:
    if piece.segment.retired is not None or not piece.spans:
        return piece
    *spans, last = piece.spans
    assert last.stop is not None
    if last.stop - last.start > 1:
        spans.append(replace(last, stop=last.stop - 1))
    return Piece(piece.segment, piece.stop - 1, tuple(spans))


def open_without_the_old_fences() -> AbstractContextManager[None]:
    """Who was taken over on a stream may go on writing to it behind what was appended to it."""

    def bare(txn: Writing, view: StreamView, plan: StitchPlan, appended_at: Micros) -> None:
        for segment in plan.opened:
            open_segment(txn, view.info.id, segment, appended_at=appended_at, fence=0)

    return _replaced(append_stream, "_open", bare)


def append_without_a_seal() -> AbstractContextManager[None]:
    """The old segments are retired, but their logs take further appends of those who have them open."""

    def only_close(txn: Writing, view: StreamView, segment: Segment) -> None:
        pass

    return _replaced(append_stream, "close_segment", only_close)


def forget_the_request() -> AbstractContextManager[None]:
    """A change that is asked for again after a lost answer is made again."""

    def careless(txn: Writing, request: str | None, operation: str, now: Micros, act: Callable[[], Result]) -> Result:
        return act()

    return _replaced(change, "once", careless)


def rename_by_making_anew() -> AbstractContextManager[None]:
    """A rename makes a copy under the new name and deletes the old stream, whose writers are lost."""

    def rename(txn: Writing, old: StreamName, new: StreamName, now: Micros) -> StreamInfo:
        stream = StreamId(now % (1 << 62))
        copy.copy_stream(txn, StreamRange.of(str(old)), new, stream, now)
        delete_stream(txn, old, now)
        return need_info(txn, stream)

    return _replaced(naming, "rename_stream", rename)


def stitch_in_another_order() -> AbstractContextManager[None]:
    """The last source comes first."""

    def reversed_(txn: Writing, parts: Any, *rest: Any, **more: Any) -> Joined:
        joined = stitch_streams(txn, list(reversed(parts)), *rest, **more)
        return Joined(joined.stream, tuple(reversed(joined.parts)))

    return _replaced(algebra, "stitch_streams", reversed_)


_UNANSWERED: Final[Weather] = {"writing.commit": {Action.UNCERTAIN_LANDED: 0.2}}
_SLOW: Final[Weather] = {"catalog.commit": {Action.DELAY_BEFORE: 0.4}}

ALGEBRA_WOUNDS: Final = (
    Wound(share_the_open_log, ("nobody wrote", "check: error"), casts=ALGEBRA),
    Wound(copy_all_but_the_last_event, ("and it was not taken over", "not between the cuts"), casts=ALGEBRA),
    Wound(open_without_the_old_fences, ("out of order", "history: not linearizable", "acknowledged"), _SLOW, GROWTH),
    Wound(append_without_a_seal, ("nobody wrote it", "acknowledged, and not there", "check: error"), _SLOW, GROWTH),
    Wound(forget_the_request, ("nobody wrote it", "was answered by"), _UNANSWERED, ALGEBRA),
    Wound(rename_by_making_anew, (" lost sim/",), casts=ALGEBRA),
    Wound(stitch_in_another_order, (" begins before ",), casts=ALGEBRA),
)
