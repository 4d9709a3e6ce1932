"""Going on from cuts, the order of cuts, and what retention lets go, held to a model that knows every event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core import cuts
from anabranch.core.advance import advance, rounds
from anabranch.errors import InvalidArgument
from anabranch.model.cut import Order, StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.stream import StreamView
from anabranch.streams.retention.plan import RetentionIndex, newest, plan_bounds, plan_cut
from anabranch.streams.retention.policy import RetainBytes, RetainFor, Retention
from tests.unit.core.test_cuts import STREAM, World, assert_order_of_keys, merged, read, stroll, worlds


def weights(world: World) -> dict[int, int]:
    """Each event of the model weighs something else, by its order; some weigh nothing."""
    return {order: order * 7 % 5 for order in range(world.order)}


class Weigher:
    def __init__(self, world: World) -> None:
        self._world, self._weights = world, weights(world)

    def __call__(self, segment: SegmentId, start: int, stop: int) -> int:
        return sum(self._weights[event.order] for event in self._world.events[segment][start:stop])


def events(segment: SegmentId, start: int, stop: int) -> int:
    return stop - start


def passed(world: World, start: StreamCut, end: StreamCut) -> set[int]:
    return {event.order for event in read(world, cuts.ranges(world.view(), start, end))}


@settings(max_examples=40)
@given(st.data(), worlds(), st.integers(-1, 40))
def test_going_on_by_so_many_events_passes_just_so_many(data: st.DataObject, world: World, amount: int) -> None:
    view = world.view()
    start = stroll(data.draw, world, cuts.head_cut(view), 4)[-1]
    left = cuts.distance(view, start, cuts.tail_cut(view))
    end = cuts.check_cut(view, advance(view, start, amount, events))
    assert cuts.distance(view, start, end) == min(max(amount, 0), left)
    assert_order_of_keys(read(world, cuts.ranges(view, start, end)))
    again = advance(view, start, amount, events, at_most=True)
    assert cuts.compare(view, again, end) is Order.SAME


@settings(max_examples=40)
@given(worlds())
def test_the_order_of_going_on_is_one_chain_in_which_each_cut_has_one_event_more(world: World) -> None:
    view = world.view()
    head = cuts.head_cut(view)
    chain = [advance(view, head, amount, events) for amount in range(world.order + 1)]
    for amount, cut in enumerate(chain):
        assert len(passed(world, head, cut)) == amount
        assert not amount or passed(world, head, chain[amount - 1]) < passed(world, head, cut)


@settings(max_examples=40)
@given(st.data(), worlds(), st.integers(0, 60))
def test_going_on_by_bytes_stops_at_the_first_cut_with_enough_or_the_last_with_no_more(
    data: st.DataObject, world: World, amount: int
) -> None:
    view, weigh = world.view(), Weigher(world)
    way = stroll(data.draw, world, cuts.head_cut(view), 6)
    start, stop = way[0], way[-1] if data.draw(st.booleans()) else None
    goal = stop or cuts.tail_cut(view)

    def weight(end: StreamCut) -> int:
        return sum(weigh(*part) for part in cuts.ranges(view, start, end))

    chain = [advance(view, start, n, events, stop=stop) for n in range(cuts.distance(view, start, goal) + 1)]
    first = next((cut for cut in chain if weight(cut) >= amount), chain[-1])
    last = [cut for cut in chain if weight(cut) <= amount][-1]
    assert cuts.compare(view, advance(view, start, amount, weigh, stop=stop), first) is Order.SAME
    assert cuts.compare(view, advance(view, start, amount, weigh, at_most=True, stop=stop), last) is Order.SAME
    assert all(cuts.is_before(view, cut, goal) for cut in chain)


@settings(max_examples=40)
@given(worlds())
def test_rounds_tell_every_event_ahead_once(world: World) -> None:
    view = world.view()
    seen = [(s, at[s], at[s] + count) for at, ahead in rounds(view, cuts.head_cut(view)) for s, count in ahead.items()]
    assert sorted(event.order for event in read(world, seen)) == list(range(world.order))
    assert_order_of_keys(read(world, seen))


@settings(max_examples=40)
@given(st.data(), worlds())
def test_two_cuts_lie_to_each_other_as_the_events_before_them_do(data: st.DataObject, world: World) -> None:
    view = world.view()
    head = cuts.head_cut(view)
    first, second = (stroll(data.draw, world, head, data.draw(st.integers(0, 8)))[-1] for _ in range(2))
    one, other = passed(world, head, first), passed(world, head, second)
    order = cuts.compare(view, first, second)
    assert (order in (Order.SAME, Order.BEFORE)) == (one <= other)
    assert (order in (Order.SAME, Order.AFTER)) == (other <= one)
    far, near = cuts.union(view, first, second), cuts.intersection(view, first, second)
    for cut in (far, near):
        assert cuts.check_cut(view, cut) == cut
    assert passed(world, head, far) == one | other
    assert passed(world, head, near) == one & other


def test_places_of_two_segments_are_concurrent_and_an_end_is_the_head_of_what_follows() -> None:
    view = merged().view()
    left, right = ({SegmentId(0, 0): a, SegmentId(0, 1): b} for a, b in ((1, 0), (0, 1)))
    assert cuts.compare(view, StreamCut.of(STREAM, left), StreamCut.of(STREAM, right)) is Order.CONCURRENT
    ended = StreamCut.of(STREAM, {SegmentId(0, 0): 2, SegmentId(0, 1): 2})
    assert cuts.compare(view, ended, StreamCut.of(STREAM, {SegmentId(1, 2): 0})) is Order.SAME


# retention: the model's order of events is their append time


def index(world: World, view: StreamView, *, coarse: int = 1) -> RetentionIndex:
    """What a catalog would answer; times are looked up `coarse` events at a time for counting."""

    def at(time: Micros) -> StreamCut:
        def first(segment: SegmentId) -> int | None:
            head = view.segments[segment].head
            return next((i for i, e in enumerate(world.events[segment]) if e.order >= time and i >= head), None)

        return cuts.walk_cut(view, first)

    return RetentionIndex(at, lambda time: at(Micros(time // coarse * coarse)), Weigher(world))


def dated(world: World) -> StreamView:
    view = world.view()
    return replace(view, logs={i: replace(log, appended_at=Micros(world.order)) for i, log in view.logs.items()})


def retained(world: World, view: StreamView, policy: Retention, now: int) -> StreamCut:
    return plan_cut(view, plan_bounds(view, policy, now=Micros(now), index=index(world, view)), None)


@settings(max_examples=40)
@given(worlds(), st.integers(0, 70), st.integers(0, 70))
def test_events_go_by_age_and_none_that_is_younger(world: World, now: int, age: int) -> None:
    view = dated(world)
    cut = retained(world, view, Retention(age_us=age), now)
    gone = passed(world, cuts.head_cut(view), cut)
    assert gone == {order for order in range(world.order) if order < now - age}


@settings(max_examples=40)
@given(worlds(), st.integers(0, 100), st.sampled_from([1, 4, 1000]))
def test_the_newest_bytes_stay_and_hardly_more(world: World, size: int, coarse: int) -> None:
    view = dated(world)
    cut = newest(view, size, index(world, view, coarse=coarse))
    kept = passed(world, cut, cuts.tail_cut(view))
    weight = weights(world)
    assert sum(weight[order] for order in kept) >= min(size, sum(weight.values()))
    # No cut a little further would do: one event more, in the worst place, and too little is left.
    if cuts.compare(view, cut, cuts.head_cut(view)) is not Order.SAME:
        assert sum(weight[order] for order in kept) - max(weight.values(), default=0) <= size


@settings(max_examples=40)
@given(worlds(), st.integers(0, 70), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_what_a_policy_keeps_at_least_stays_whatever_else_it_says(
    world: World, now: int, age: int, age_min: int, size: int, size_min: int
) -> None:
    view = dated(world)
    policy = Retention(max(age, age_min), max(size, size_min), age_min, size_min)
    cut = retained(world, view, policy, now)
    kept = passed(world, cut, cuts.tail_cut(view))
    assert cuts.check_cut(view, cut) == cut
    if age_min:  # an age of nothing keeps nothing, not even events of a clock that is ahead
        assert kept >= {order for order in range(world.order) if order >= now - age_min}
    weight = weights(world)
    assert sum(weight[order] for order in kept) >= min(size_min, sum(weight.values()))
    by_age = retained(world, view, Retention(max(age, age_min), None, age_min, size_min), now)
    assert cuts.is_before(view, by_age, cut)  # two reasons let at least as much go as one of them


def test_segments_with_few_events_keep_as_much_of_the_past_as_those_with_many() -> None:
    world = World()
    for range_ in FULL_KEY_RANGE.split(2):
        world.begin(range_)
    for i in range(100):
        world.append(0 if i % 10 else FULL_KEY_RANGE.high - 1)
    view = dated(world)
    cut = newest(view, 100, index(world, view))
    kept = passed(world, cut, cuts.tail_cut(view))
    assert kept == set(range(min(kept), 100))


def test_policies_are_joined_and_say_what_is_wrong_with_them() -> None:
    both = RetainFor("7d", bytes_min="1MB") | RetainBytes("10GB", age_min="1h")
    assert both == Retention(7 * 86_400_000_000, 10**10, 3_600_000_000, 10**6)
    assert Retention.from_json(both.to_json()) == both
    wrongs: list[tuple[Callable[[], Retention], str]] = [
        (lambda: Retention(), "none of them"),
        (lambda: RetainFor("soon"), "not a duration"),
        (lambda: RetainFor(-1), "not between"),
        (lambda: RetainBytes("10 potatoes"), "not a size"),
        (lambda: RetainFor("7d") | RetainFor("8d"), "can't join"),
        (lambda: Retention(age_us=5, age_min_us=6), "minimum age"),
        (lambda: Retention(size=5, size_min=6), "minimum size"),
    ]
    for wrong, why in wrongs:
        with pytest.raises(InvalidArgument, match=why):
            wrong()
