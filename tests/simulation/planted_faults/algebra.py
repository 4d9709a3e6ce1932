"""Planted faults of copies, appends, renames and stitches; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from anabranch.catalog.port import Writing
from anabranch.core.stitch import JoinResult, StitchPlan
from anabranch.core.stream_slice import SegmentSlice, StreamSlice, plan_slice
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams import change, manager
from anabranch.streams.algebra import append as append_stream
from anabranch.streams.algebra import copy
from anabranch.streams.algebra.stitch import stitch_streams
from anabranch.streams.directory.find import need_info
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.requests import Result
from anabranch.streams.segments import open_segment
from anabranch.testing.faults import Action
from tests.simulation.clients import ALGEBRA, APPENDS
from tests.simulation.planted_faults.core import PlantedFault, _replaced
from tests.simulation.simulation import FaultRates

__all__ = ["ALGEBRA_FAULTS"]


def share_the_open_log() -> AbstractContextManager[None]:
    """A copy's open segments continue in the logs of the source."""

    def insert_slice(txn: Writing, stream: StreamId, stretch: StreamSlice) -> None:
        for piece in stretch.segments:
            txn.put_segment(stream, piece.segment)
            for span in piece.spans:
                txn.put_span(stream, span)
            if piece.segment.retired is None:
                _share(txn, stream, stretch.view, piece)

    return _replaced(copy, "insert_slice", insert_slice)


def _share(txn: Writing, stream: StreamId, view: StreamView, piece: SegmentSlice) -> None:
    last = view.spans[piece.segment.id][-1]
    start = last.start + piece.stop - last.offset
    txn.put_span(stream, Span(piece.segment.id, piece.stop, last.log, start, None))


def copy_all_but_the_last_event() -> AbstractContextManager[None]:
    """A copy ends one event too early, if a span ends with the source's tail."""

    def short(view: StreamView, start: Any, end: Any) -> StreamSlice:
        stretch = plan_slice(view, start, end)
        return replace(stretch, segments=tuple(_shortened(piece) for piece in stretch.segments))

    return _replaced(copy, "plan_slice", short)


def _shortened(piece: SegmentSlice) -> SegmentSlice:
    if piece.segment.retired is not None or not piece.spans:
        return piece
    *spans, last = piece.spans
    assert last.stop is not None
    if last.stop - last.start > 1:
        spans.append(replace(last, stop=last.stop - 1))
    return SegmentSlice(piece.segment, piece.stop - 1, tuple(spans))


def open_without_the_old_fences() -> AbstractContextManager[None]:
    """A writer that was taken over on a stream may continue writing to it after a stream was appended."""

    def bare(txn: Writing, view: StreamView, plan: StitchPlan, appended_at: Micros) -> None:
        for segment in plan.opened:
            open_segment(txn, view.info.id, segment, appended_at=appended_at, fence=0)

    return _replaced(append_stream, "open_new_segments", bare)


def append_without_a_seal() -> AbstractContextManager[None]:
    """The old segments are retired, but their logs accept further appends from writers that have them open."""

    def only_close(txn: Writing, view: StreamView, segment: Segment) -> None:
        pass

    return _replaced(append_stream, "close_segment", only_close)


def forget_the_request() -> AbstractContextManager[None]:
    """A change that is repeated after a lost answer is made twice."""

    def faulty(txn: Writing, request: str | None, operation: str, now: Micros, act: Callable[[], Result]) -> Result:
        return act()

    return _replaced(change, "run_once", faulty)


def rename_by_making_anew() -> AbstractContextManager[None]:
    """A rename makes a copy under the new name and deletes the old stream, which breaks its writers."""

    def rename(txn: Writing, old: StreamName, new: StreamName, now: Micros) -> StreamInfo:
        stream = StreamId(now % (1 << 62))
        copy.copy_stream(txn, StreamRange.of(str(old)), new, stream, now)
        delete_stream(txn, old, now)
        return need_info(txn, stream)

    return _replaced(manager, "rename_stream", rename)


def stitch_in_another_order() -> AbstractContextManager[None]:
    """The last source comes first."""

    def reversed_(txn: Writing, parts: Any, *rest: Any, **more: Any) -> JoinResult:
        joined = stitch_streams(txn, list(reversed(parts)), *rest, **more)
        return JoinResult(joined.stream, tuple(reversed(joined.parts)))

    return _replaced(manager, "stitch_streams", reversed_)


_UNANSWERED: Final[FaultRates] = {"writing.commit": {Action.UNCERTAIN_LANDED: 0.2}}
_SLOW: Final[FaultRates] = {"catalog.commit": {Action.DELAY_BEFORE: 0.4}}

ALGEBRA_FAULTS: Final = (
    PlantedFault(share_the_open_log, ("nobody wrote", "check: error"), mixes=ALGEBRA),
    PlantedFault(copy_all_but_the_last_event, ("and it was not taken over", "not between the cuts"), mixes=ALGEBRA),
    PlantedFault(
        open_without_the_old_fences, ("out of order", "history: not linearizable", "acknowledged"), _SLOW, APPENDS
    ),
    PlantedFault(
        append_without_a_seal, ("nobody wrote it", "acknowledged, and not there", "check: error"), _SLOW, APPENDS
    ),
    PlantedFault(forget_the_request, ("nobody wrote it", "was answered by"), _UNANSWERED, ALGEBRA),
    PlantedFault(rename_by_making_anew, (" lost sim/",), mixes=ALGEBRA),
    PlantedFault(stitch_in_another_order, (" begins before ",), mixes=ALGEBRA),
)
