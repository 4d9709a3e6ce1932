"""The plans of copies and stitches: whatever stretches they are made of, what comes of them breaks no invariant."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from anabranch.core.invariants import stream_violations
from anabranch.core.scale import plan_segments
from anabranch.core.stitch import JoinResult, plan_stitch
from anabranch.core.stream_slice import SegmentSlice, StreamSlice, plan_slice
from anabranch.model.append import LogState
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView

Epochs = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=4)


def grown(epochs: list[tuple[int, int]]) -> list[StreamView]:
    """A stream that is scaled to so many segments, each of which then gets so many events; its view at each step."""
    info = StreamInfo(StreamId(7), StreamName("a", "b"), RAW, 1, {}, Micros(0), False, 1, 0, 1)
    segments = {SegmentId(0, 0): Segment(SegmentId(0, 0), FULL_KEY_RANGE, None, 0)}
    spans: dict[SegmentId, tuple[Span, ...]] = {SegmentId(0, 0): (Span(SegmentId(0, 0), 0, LogId(1), 0, None),)}
    logs = {LogId(1): LogState(LogId(1), info.id)}
    views = [StreamView(info, segments, spans, logs)]
    for count, events in epochs:
        view = views[-1]
        plan = plan_segments(view, count)
        if plan is not None:
            segments, spans, logs = dict(view.segments), dict(view.spans), dict(view.logs)
            for old in plan.sealed:
                (last,) = spans[old.id]
                segments[old.id] = replace(old, retired=plan.epoch)
                spans[old.id] = (replace(last, stop=logs[last.log].length),)
                logs[last.log] = replace(logs[last.log], sealed=True)
            for new in plan.created:
                log = LogId(len(logs) + 1)
                segments[new.id], spans[new.id] = new, (Span(new.id, 0, log, 0, None),)
                logs[log] = LogState(log, info.id)
            number = view.info.next_number + len(plan.created)
            view = StreamView(replace(view.info, epoch=plan.epoch, next_number=number), segments, spans, logs)
        logs = {i: log if log.sealed else replace(log, length=log.length + events) for i, log in view.logs.items()}
        views.append(replace(view, logs=logs))
    return views


def seen(
    view: StreamView, pieces: tuple[SegmentSlice, ...], opened: tuple[Segment, ...], epoch: int, number: int
) -> StreamView:
    """The stream that is made of a plan, open or sealed."""
    info = replace(view.info, sealed=not opened, epoch=epoch, next_number=number)
    segments = {piece.segment.id: piece.segment for piece in pieces} | {segment.id: segment for segment in opened}
    spans = {piece.segment.id: piece.spans for piece in pieces if piece.spans}
    logs = {log: replace(state, sealed=True) for log, state in view.logs.items()}
    for i, segment in enumerate(opened):
        spans[segment.id] = (Span(segment.id, 0, LogId(1_000 + i), 0, None),)
        logs[LogId(1_000 + i)] = LogState(LogId(1_000 + i), info.id)
    return StreamView(info, segments, spans, logs)


def stretches(data: st.DataObject, views: list[StreamView]) -> list[StreamSlice]:
    """Some parts of the newest view, between moments at which it was seen."""
    found = []
    for _ in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.integers(0, len(views)))
        last = data.draw(st.integers(max(first - 1, 0), len(views) - 1))
        start = HEAD if first == 0 else plan_slice(views[first - 1], HEAD, TAIL).end
        found.append(plan_slice(views[-1], start, plan_slice(views[last], HEAD, TAIL).end))
    return found


@given(epochs=Epochs, data=st.data())
def test_a_stretch_keeps_epochs_and_holds_the_events_between_its_cuts(
    epochs: list[tuple[int, int]], data: st.DataObject
) -> None:
    views = grown(epochs)
    (stretch, *_) = stretches(data, views)
    info = views[-1].info
    made = seen(views[-1], stretch.segments, (), info.epoch, info.next_number)
    assert list(stream_violations(made)) == []
    assert [segment.id for segment in made.ordered] == [segment.id for segment in views[-1].ordered]
    assert stretch.events == sum(made.length(s.id) - s.head for s in made.ordered)
    assert all(span.stop is not None and span.start < span.stop for p in stretch.segments for span in p.spans)


@given(epochs=Epochs, data=st.data(), opened=st.integers(0, 3), epoch=st.integers(0, 5))
def test_stitched_stretches_break_no_invariant_and_no_pointer(
    epochs: list[tuple[int, int]], data: st.DataObject, opened: int, epoch: int
) -> None:
    views = grown(epochs)
    parts = stretches(data, views)
    ranges = FULL_KEY_RANGE.split(opened) if opened > 1 else [FULL_KEY_RANGE] * opened
    plan = plan_stitch(parts, epoch=epoch, number=11, opened=ranges)
    made = seen(views[-1], plan.slices, plan.opened, plan.epoch, plan.number)
    assert list(stream_violations(made)) == []
    assert len(made.segments) == len(plan.slices) + opened  # no id came twice
    assert sum(m.stop - m.start for moves in plan.moved for m in moves) == sum(part.events for part in parts)
    for part, moves in zip(parts, plan.moved, strict=True):
        old = {piece.segment.id: piece for piece in part.segments}
        for moved in moves:
            (before, after) = old[moved.old].spans, made.spans[moved.new]
            assert [replace(span, segment=moved.new) for span in before] == list(after)
    joined = JoinResult(
        StreamId(9), tuple((part.view.info.id, moves) for part, moves in zip(parts, plan.moved, strict=True))
    )
    assert JoinResult.from_json(joined.to_json()) == joined
