"""Scaling: whatever is asked for, the segments of an epoch cover the key space exactly once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import limits
from anabranch.core.scale import ScalePlan, plan_merge, plan_replacement, plan_segments, plan_split
from anabranch.errors import InvalidArgument
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE, KeyRange, covers_once
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView


def stream(count: int = 1) -> StreamView:
    info = StreamInfo(StreamId(7), StreamName("a", "b"), RAW, 1, {}, Micros(0), False, 1, 0, count)
    segments = [Segment(SegmentId(0, i), part, None, 0) for i, part in enumerate(FULL_KEY_RANGE.split(count))]
    return view_of(info, segments)


def view_of(info: StreamInfo, segments: list[Segment]) -> StreamView:
    spans = {s.id: (Span(s.id, 0, LogId(s.id.number + 1), 0, None),) for s in segments}
    return StreamView(info, {s.id: s for s in segments}, spans, {})


def after(view: StreamView, plan: ScalePlan) -> StreamView:
    retired = {segment.id for segment in plan.sealed}
    segments = [replace(s, retired=plan.epoch) if s.id in retired else s for s in view.ordered]
    info = replace(view.info, epoch=plan.epoch, next_number=view.info.next_number + len(plan.created))
    return view_of(info, [*segments, *plan.created])


def check(view: StreamView, plan: ScalePlan) -> StreamView:
    """The view after the plan, with the invariants of scaling looked at."""
    scaled = after(view, plan)
    assert plan.epoch == view.info.epoch + 1
    assert covers_once(segment.range for segment in scaled.current)
    numbers = [segment.id.number for segment in scaled.ordered]
    assert len(set(numbers)) == len(numbers) and max(numbers) < scaled.info.next_number
    for segment in plan.created:
        assert (segment.created, segment.retired, segment.head) == (plan.epoch, None, 0)
        assert covers_once(
            (
                KeyRange(max(s.range.low, segment.range.low), min(s.range.high, segment.range.high))
                for s in scaled.predecessors(segment.id)
            ),
            segment.range,
        )
    for segment in plan.sealed:
        assert {s.id for s in scaled.successors(segment.id)} == {
            s.id for s in plan.created if s.range.overlaps(segment.range)
        }
    return scaled


asks = st.lists(
    st.tuples(st.sampled_from(["split", "merge", "segments"]), st.integers(0, 50), st.integers(2, 7)), max_size=12
)


@given(st.integers(1, 5), asks)
def test_every_epoch_of_any_history_covers_the_key_space_exactly_once(
    count: int, history: list[tuple[str, int, int]]
) -> None:
    view = stream(count)
    for kind, pick, number in history:
        current = view.current
        if kind == "split":
            plan: ScalePlan | None = plan_split(view, current[pick % len(current)].id, number)
        elif kind == "merge" and len(current) > 1:
            first = pick % (len(current) - 1)
            plan = plan_merge(view, [s.id for s in current[first : first + number]])
        else:
            plan = plan_segments(view, number)
        if plan is not None:
            view = check(view, plan)
    for epoch in range(view.info.epoch + 1):
        assert covers_once(segment.range for segment in view.at_epoch(epoch))


@given(st.integers(1, 60), st.integers(1, 60))
def test_so_many_segments_of_equal_range(before: int, count: int) -> None:
    view = stream(before)
    plan = plan_segments(view, count)
    if before == count:
        assert plan is None
        return
    assert plan is not None
    scaled = check(view, plan)
    assert [s.range for s in scaled.current] == list(FULL_KEY_RANGE.split(count))
    kept = {s.id for s in scaled.current} & {s.id for s in view.current}
    assert kept == {s.id for s in view.current if s.range in FULL_KEY_RANGE.split(count)}


@given(st.data())
def test_a_replacement_covers_the_same_points_once_or_is_refused(data: st.DataObject) -> None:
    view = stream(4)
    chosen = data.draw(st.lists(st.sampled_from([s.id for s in view.current]), min_size=1, max_size=3, unique=True))
    edges = sorted({FULL_KEY_RANGE.high // 16 * i for i in range(16)} | {FULL_KEY_RANGE.high})
    pairs = st.tuples(st.sampled_from(edges), st.sampled_from(edges)).filter(lambda pair: pair[0] < pair[1])
    ranges = data.draw(st.lists(pairs.map(lambda pair: KeyRange(*pair)), min_size=1, max_size=6))
    points = [edge for edge in edges[:-1] if any(edge in view.segments[ident].range for ident in chosen)]
    covered = [edge for part in ranges for edge in edges[:-1] if edge in part]
    if sorted(covered) == points:
        check(view, plan_replacement(view, chosen, ranges))
    else:
        with pytest.raises(InvalidArgument, match="cover exactly"):
            plan_replacement(view, chosen, ranges)


def test_segments_that_are_not_adjacent_cannot_be_merged() -> None:
    view = stream(4)
    with pytest.raises(InvalidArgument, match="adjacent key ranges"):
        plan_merge(view, [SegmentId(0, 0), SegmentId(0, 2)])
    check(view, plan_merge(view, [SegmentId(0, 2), SegmentId(0, 1)]))


@pytest.mark.parametrize("segments", [[], [SegmentId(0, 0)], [SegmentId(0, 0), SegmentId(0, 0)]])
def test_a_merge_takes_two_different_segments(segments: list[SegmentId]) -> None:
    with pytest.raises(InvalidArgument):
        plan_merge(stream(2), segments)


def test_only_current_segments_are_scaled_and_the_error_lists_them() -> None:
    view = stream(2)
    scaled = check(view, plan_split(view, SegmentId(0, 0), 2))
    for plan in (lambda: plan_split(scaled, SegmentId(0, 0), 2), lambda: plan_split(scaled, SegmentId(9, 9), 2)):
        with pytest.raises(InvalidArgument, match=r"expected a current segment of 'a/b' \(1.2, 1.3, 0.1\), got"):
            plan()


@pytest.mark.parametrize("count", [0, -1, limits.SEGMENTS_MAX + 1])
def test_the_number_of_segments_has_limits(count: int) -> None:
    with pytest.raises(InvalidArgument):
        plan_segments(stream(), count)
    with pytest.raises(InvalidArgument):
        plan_split(stream(), SegmentId(0, 0), count)


def test_splitting_respects_the_limit_of_the_whole_stream() -> None:
    view = stream(10)
    with pytest.raises(InvalidArgument, match="at most"):
        plan_split(view, SegmentId(0, 0), limits.SEGMENTS_MAX - 8)
    plan_split(view, SegmentId(0, 0), limits.SEGMENTS_MAX - 9)


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 1 << 64), st.integers(1, 40))
def test_a_split_range_is_covered_once_by_nearly_equal_parts(low: int, width: int, parts: int) -> None:
    whole = KeyRange(low, min(low + width, 1 << 64))
    if parts > whole.high - whole.low:
        with pytest.raises(InvalidArgument):
            whole.split(parts)
        return
    split = whole.split(parts)
    widths = [part.high - part.low for part in split]
    assert len(split) == parts and covers_once(split, whole) and max(widths) - min(widths) <= 1


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 4), (-1, 5), (0, (1 << 64) + 1)])
def test_what_is_no_key_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(InvalidArgument, match="not a key range"):
        KeyRange(low, high)
