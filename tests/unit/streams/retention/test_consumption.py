"""What subscribed groups release, over random streams and positions: no truncation is ahead of a live subscriber within its
bound."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.group import GroupState
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.stream import StreamView
from anabranch.streams.retention import consumption
from anabranch.streams.retention.plan import RetentionBounds, plan_cut
from tests.unit.core.test_cuts import STREAM, World, stroll, worlds


def somewhere(data: st.DataObject, world: World) -> StreamCut:
    """A place that a reader may stand at."""
    return stroll(data.draw, world, cuts.head_cut(world.view()), data.draw(st.integers(0, 12)))[-1]


def group_at(view: StreamView, cut: StreamCut) -> GroupState:
    starts = changes.offsets_of(cuts.head_cut(view))
    positions = changes.offsets_of(StreamCut.of(STREAM, cuts.skip_exhausted(view, cut.as_dict())))
    return GroupState((STREAM,), starts, {}, positions)


def passed(world: World, view: StreamView, cut: StreamCut) -> set[int]:
    """The events before a cut."""
    pieces = cuts.ranges(view, cuts.head_cut(view), cut)
    return {event.order for segment, low, high in pieces for event in world.events[segment][low:high]}


@settings(max_examples=150)
@given(st.data(), worlds(), st.integers(1, 4), st.booleans())
def test_a_truncation_takes_no_event_that_a_subscriber_has_not_read_but_behind_the_bound(
    data: st.DataObject, world: World, groups: int, kept: bool
) -> None:
    view = world.view()
    stands = [consumption.released(group_at(view, somewhere(data, world)), view, "position") for _ in range(groups)]
    subscribers = [each for each in stands if each is not None]
    assert len(subscribers) == groups
    bound = somewhere(data, world)
    stays = somewhere(data, world) if kept else None
    cut = plan_cut(view, RetentionBounds(bound, stays), consumption.consumed(view, subscribers))
    assert cuts.check_cut(view, cut) == cut
    gone, by_bound = passed(world, view, cut), passed(world, view, bound)
    read = set.intersection(*(passed(world, view, each) for each in subscribers))
    expected = by_bound | read
    if stays is not None:
        expected &= passed(world, view, stays)
    assert gone == expected  # nothing more goes, and all that may go does
    for each in subscribers:
        end = consumption.lost_until(view, each, cut)
        lost = gone - passed(world, view, each)
        assert lost <= by_bound
        assert bool(lost) == (end is not None)
        if end is not None:  # what is reported is what is lost
            assert passed(world, view, end) - passed(world, view, each) == lost


@settings(max_examples=60)
@given(st.data(), worlds())
def test_what_was_truncated_before_a_group_came_to_it_holds_nothing_up(data: st.DataObject, world: World) -> None:
    view = world.view()
    state, head = group_at(view, somewhere(data, world)), somewhere(data, world)
    reached = cuts.read_offsets(view, head)
    segments = {segment: replace(each, head=reached.get(segment, each.head)) for segment, each in view.segments.items()}
    later = replace(view, segments=segments)
    cut = consumption.released(state, later, "position")
    assert cut is not None and cuts.check_cut(later, cut) == cut
    assert passed(world, view, cut) == passed(world, view, head) | passed(world, view, state.cut(STREAM))


@settings(max_examples=60)
@given(st.data(), worlds())
def test_a_checkpoint_that_is_gathered_lies_behind_what_is_released(data: st.DataObject, world: World) -> None:
    """Some readers came to it and went on, others did not."""
    view = world.view()
    state = changes.begin_checkpoint(group_at(view, somewhere(data, world)), "g", "c", Micros(1))
    came = {each: at for each, at in state.positions.items() if data.draw(st.booleans())}
    assert state.checkpoint is not None
    moved = {each: data.draw(st.integers(at, view.length(each.segment))) for each, at in state.positions.items()}
    state = replace(state, positions=moved, pending=(replace(state.checkpoint, offsets=came),))
    cut = consumption.released(state, view, "position")
    done = changes.advance(state, {STREAM: view}).checkpoints[-1].cut(STREAM)
    assert cut is not None
    assert cuts.is_before(view, cut, done) and cuts.is_before(view, cut, state.cut(STREAM))
    at_checkpoint = consumption.released(changes.advance(state, {STREAM: view}), view, "checkpoint")
    assert at_checkpoint is not None and cuts.is_before(view, at_checkpoint, done)


def test_a_group_that_does_not_read_the_stream_releases_nothing_of_it_and_none_holds_nothing() -> None:
    world = World()
    world.begin(FULL_KEY_RANGE)
    view = world.view()
    other = GroupState((StreamId(8),), {}, {}, {})
    assert consumption.released(other, view, "position") is None
    assert consumption.consumed(view, []) is None
    head = cuts.head_cut(view)
    assert plan_cut(view, RetentionBounds(head, None), None) == head
