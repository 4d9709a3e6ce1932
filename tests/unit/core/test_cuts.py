"""Cut arithmetic over random histories of splits and merges, held to a model that knows every event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core import cuts
from anabranch.errors import InvalidCut, Truncated
from anabranch.model.append import LogState
from anabranch.model.cut import HEAD, TAIL, StreamCut
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE, KeyRange, covers_once
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView

STREAM = StreamId(7)
NAME = StreamName("a", "b")
KEYS = [FULL_KEY_RANGE.high // 16 * i for i in range(16)]  # points, one for each key of the model


@dataclass
class Event:
    """Of the model: its key's point, and its place in the order of all appends, which is also its time."""

    point: int
    order: int


@dataclass
class World:
    """A stream that can be appended to and scaled, with every event in memory."""

    segments: dict[SegmentId, Segment] = field(default_factory=dict)
    events: dict[SegmentId, list[Event]] = field(default_factory=dict)
    epoch: int = 0
    number: int = 0
    order: int = 0
    sealed: bool = False

    def begin(self, range_: KeyRange) -> None:
        segment = SegmentId(self.epoch, self.number)
        self.segments[segment] = Segment(segment, range_, None, 0)
        self.events[segment] = []
        self.number += 1

    def current(self) -> list[Segment]:
        return sorted((s for s in self.segments.values() if s.retired is None), key=lambda s: s.range.low)

    def append(self, point: int) -> None:
        (segment,) = (s.id for s in self.current() if point in s.range)
        self.events[segment].append(Event(point, self.order))
        self.order += 1

    def scale(self, first: int, count: int, edges: list[int]) -> None:
        """Replace `count` adjoining segments by ranges cut at those of the edges that lie within."""
        old = self.current()[first : first + count]
        self.epoch += 1
        low, high = old[0].range.low, old[-1].range.high
        bounds = [low, *sorted({e for e in edges if low < e < high}), high]
        for segment in old:
            self.segments[segment.id] = replace(segment, retired=self.epoch)
        for left, right in pairwise(bounds):
            self.begin(KeyRange(left, right))

    def view(self) -> StreamView:
        info = StreamInfo(STREAM, NAME, RAW, 1, {}, Micros(0), self.sealed, 1, self.epoch, self.number)
        logs, spans = {}, {}
        for i, segment in enumerate(self.segments):
            log = LogId(i)
            logs[log] = LogState(log, STREAM, len(self.events[segment]), size=10 * len(self.events[segment]))
            spans[segment] = (Span(segment, 0, log, 0, None),)
        return StreamView(info, dict(self.segments), spans, logs)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    for range_ in FULL_KEY_RANGE.split(draw(st.integers(1, 3))):
        world.begin(range_)
    for _ in range(draw(st.integers(0, 8))):
        for point in draw(st.lists(st.sampled_from(KEYS), max_size=8)):
            world.append(point)
        if draw(st.booleans()):
            first = draw(st.integers(0, len(world.current()) - 1))
            count = draw(st.integers(1, min(3, len(world.current()) - first)))
            world.scale(first, count, draw(st.lists(st.integers(1, FULL_KEY_RANGE.high - 1), max_size=3)))
    return world


def stroll(draw: Callable[..., Any], world: World, start: StreamCut, steps: int) -> list[StreamCut]:
    """Cuts that a reader of this world may come by after `start`, in order."""
    view, found, at = world.view(), [start], start.as_dict()
    for _ in range(steps):
        at = cuts.skip_exhausted(view, at) if draw(st.booleans()) else at
        segment = draw(st.sampled_from(sorted(at)))
        at = {**at, segment: draw(st.integers(at[segment], view.length(segment)))}
        found.append(StreamCut.of(STREAM, at))
    return found


def read(world: World, pieces: list[tuple[SegmentId, int, int]]) -> list[Event]:
    return [event for segment, low, high in pieces for event in world.events[segment][low:high]]


def assert_order_of_keys(events: list[Event]) -> None:
    last: dict[int, int] = {}
    for event in events:
        assert last.get(event.point, -1) < event.order, f"key {event.point:x} was read out of order"
        last[event.point] = event.order


@given(worlds())
def test_reading_from_head_to_tail_yields_every_event_once_in_the_order_of_its_key(world: World) -> None:
    view = world.view()
    events = read(world, cuts.ranges(view, cuts.head_cut(view), cuts.tail_cut(view)))
    assert sorted(e.order for e in events) == list(range(world.order))
    assert_order_of_keys(events)


@given(st.data(), worlds())
def test_every_place_a_reader_comes_by_is_a_sound_cut(data: st.DataObject, world: World) -> None:
    view = world.view()
    for cut in stroll(data.draw, world, cuts.head_cut(view), 12):
        assert cuts.check_cut(view, cut) == cut
        settled = StreamCut.of(STREAM, cuts.skip_exhausted(view, cut.as_dict()))
        assert covers_once(view.segments[s].range for s, _ in settled)
        assert cuts.check_cut(view, settled) == settled
        assert cuts.is_before(view, cut, settled)
        assert cuts.is_before(view, settled, cut)
        assert cuts.ranges(view, cut, settled) == []


@given(st.data(), worlds())
def test_ranges_between_two_cuts_hold_what_lies_between_and_keep_the_order(data: st.DataObject, world: World) -> None:
    view = world.view()
    way = stroll(data.draw, world, cuts.head_cut(view), 8)
    head, tail = way[0], cuts.tail_cut(view)
    for cut in way:
        first, rest = cuts.ranges(view, head, cut), cuts.ranges(view, cut, tail)
        assert sorted(e.order for e in read(world, first) + read(world, rest)) == list(range(world.order))
        assert_order_of_keys(read(world, first) + read(world, rest))
        assert cuts.is_before(view, head, cut)
        assert cuts.is_before(view, cut, tail)
        assert cuts.distance(view, head, cut) + cuts.distance(view, cut, tail) == world.order


@given(st.data(), worlds())
def test_an_end_before_the_start_is_refused(data: st.DataObject, world: World) -> None:
    view = world.view()
    way = stroll(data.draw, world, cuts.head_cut(view), 6)
    late = way[-1]
    for early in way:
        if cuts.distance(view, early, late):
            assert not cuts.is_before(view, late, early)
            with pytest.raises(InvalidCut):
                cuts.ranges(view, late, early)


@given(st.data(), worlds(), st.one_of(st.none(), st.integers(1, 20)), st.one_of(st.none(), st.integers(1, 200)))
def test_micro_batches_reach_the_end_within_their_budget_and_never_hold_a_successor(
    data: st.DataObject, world: World, events_max: int | None, bytes_max: int | None
) -> None:
    view = world.view()
    way = stroll(data.draw, world, cuts.head_cut(view), 6)
    start, stop = (way[0], way[-1]) if data.draw(st.booleans()) else (way[0], None)
    goal = stop or cuts.tail_cut(view)
    seen: list[Event] = []
    at = start
    while (end := cuts.next_cut(view, at, events_max=events_max, bytes_max=bytes_max, stop=stop)) != at:
        batch = cuts.ranges(view, at, end)
        ids = [segment for segment, _, _ in batch]
        assert covers_once(view.segments[s].range for s, _ in end)
        ranges = sorted(view.segments[s].range for s in ids)
        assert all(a.high <= b.low for a, b in pairwise(ranges)), "a segment with its successor"
        events = read(world, batch)
        assert events
        assert events_max is None or len(events) <= events_max
        assert bytes_max is None or len(events) <= max(bytes_max // 10, 1)
        assert cuts.is_before(view, end, goal)
        seen += events
        at = end
    assert_order_of_keys(seen)
    assert cuts.distance(view, at, goal) == 0
    assert sorted(e.order for e in seen) == sorted(e.order for e in read(world, cuts.ranges(view, start, goal)))


@given(st.dictionaries(st.builds(SegmentId, st.just(0), st.integers(0, 9)), st.integers(0, 50)), st.integers(0, 200))
def test_a_budget_is_shared_evenly_and_used_up(wanted: dict[SegmentId, int], budget: int) -> None:
    granted = cuts.divide_evenly(wanted, budget)
    assert sum(granted.values()) == min(budget, sum(wanted.values()))
    assert all(granted[s] <= wanted[s] for s in wanted)
    for segment in wanted:
        if granted[segment] < wanted[segment]:
            assert granted[segment] >= max(granted.values()) - 1


@given(worlds(), st.integers(0, 70))
def test_the_cut_at_a_time_splits_every_key_at_that_time(world: World, time: int) -> None:
    view = world.view()

    def first_at(segment: SegmentId) -> int | None:
        return next((i for i, e in enumerate(world.events[segment]) if e.order >= time), None)

    cut = cuts.check_cut(view, cuts.walk_cut(view, first_at))
    before = read(world, cuts.ranges(view, cuts.head_cut(view), cut))
    behind = read(world, cuts.ranges(view, cut, cuts.tail_cut(view)))
    assert all(e.order < time for e in before)
    assert all(e.order >= time for e in behind)


@given(st.data(), worlds())
def test_a_pinned_walk_stands_exactly_at_the_pin(data: st.DataObject, world: World) -> None:
    view = world.view()
    segment = data.draw(st.sampled_from(sorted(world.segments)))
    offset = data.draw(st.integers(0, view.length(segment)))
    # Even if every clock were wrong, and all that precedes the pin seemed to be late.
    late = data.draw(st.booleans())
    cut = cuts.check_cut(view, cuts.walk_cut(view, lambda s: 0 if late else None, pin=(segment, offset)))
    assert cut.as_dict()[segment] == offset


def merged() -> World:
    """Two segments of two events each, merged into a third that holds two."""
    world = World()
    for range_ in FULL_KEY_RANGE.split(2):
        world.begin(range_)
    for point in (0, FULL_KEY_RANGE.high - 1, 0, FULL_KEY_RANGE.high - 1):
        world.append(point)
    world.scale(0, 2, [])
    world.append(0)
    world.append(1)
    return world


LEFT, RIGHT, BOTH = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2)


def test_a_merged_segment_waits_for_all_its_predecessors() -> None:
    view = merged().view()
    assert cuts.skip_exhausted(view, {LEFT: 2, RIGHT: 1}) == {LEFT: 2, RIGHT: 1}
    assert cuts.skip_exhausted(view, {LEFT: 2, RIGHT: 2}) == {BOTH: 0}


def test_empty_generations_are_settled_through_at_once() -> None:
    world = World()
    world.begin(FULL_KEY_RANGE)
    world.scale(0, 1, [8])
    world.scale(0, 2, [9])
    world.append(1)
    view = world.view()
    assert cuts.head_cut(view) == StreamCut.of(STREAM, {SegmentId(2, 3): 0, SegmentId(2, 4): 0})
    assert cuts.resolve(view, HEAD) == cuts.head_cut(view)
    assert cuts.resolve(view, TAIL) == StreamCut.of(STREAM, {SegmentId(2, 3): 1, SegmentId(2, 4): 0})


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ({LEFT: 1}, "key space"),
        ({LEFT: 1, RIGHT: 0, BOTH: 0}, "key space"),
        ({LEFT: 3, RIGHT: 0}, "the end of segment"),
        ({SegmentId(5, 9): 0}, "no segment"),
    ],
)
def test_a_cut_that_is_no_place_in_the_stream_is_refused(offsets: dict[SegmentId, int], why: str) -> None:
    with pytest.raises(InvalidCut, match=why):
        cuts.check_cut(merged().view(), StreamCut.of(STREAM, offsets))


def test_a_cut_of_another_stream_is_refused() -> None:
    with pytest.raises(InvalidCut, match="belongs to"):
        cuts.check_cut(merged().view(), StreamCut.of(StreamId(8), {BOTH: 0}))


def test_a_cut_that_holds_a_segment_with_its_ancestor_is_refused_though_it_covers_the_keys() -> None:
    world = merged()
    world.scale(0, 1, [FULL_KEY_RANGE.high // 2])
    cut = StreamCut.of(STREAM, {LEFT: 2, SegmentId(2, 4): 0})
    assert cuts.covers(world.view(), cut)
    with pytest.raises(InvalidCut, match="must be read before"):
        cuts.check_cut(world.view(), cut)


def test_a_cut_below_the_head_is_truncated_and_the_error_reports_the_head() -> None:
    world = merged()
    world.segments[LEFT] = replace(world.segments[LEFT], head=2)
    world.segments[RIGHT] = replace(world.segments[RIGHT], head=1)
    with pytest.raises(Truncated) as error:
        cuts.check_cut(world.view(), StreamCut.of(STREAM, {LEFT: 1, RIGHT: 1}))
    assert error.value.head == {"0.0": 2, "0.1": 1}
    assert cuts.below_head(world.view(), {LEFT: 2, RIGHT: 0})
    assert not cuts.below_head(world.view(), {LEFT: 2, RIGHT: 1})


def test_segments_that_were_truncated_away_are_known_by_their_numbers() -> None:
    world = merged()
    view = world.view()
    for gone in (LEFT, RIGHT):
        del world.segments[gone]
    short = StreamView(view.info, dict(world.segments), {BOTH: view.spans[BOTH]}, view.logs)
    assert cuts.head_cut(short) == StreamCut.of(STREAM, {BOTH: 0})
    with pytest.raises(Truncated):
        cuts.check_cut(short, StreamCut.of(STREAM, {LEFT: 2, RIGHT: 0}))
