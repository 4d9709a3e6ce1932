"""The shared state of a reader group, driven through joins, deaths, splits, merges and checkpoints in any order, and held
to what its readers were given."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.group import GroupState
from anabranch.core.group_format import GroupStateCodec
from anabranch.errors import AlreadyExists, CorruptStore, FormatTooNew, ReaderNotInGroup
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.position import Position, StreamSegment
from tests.unit.core.test_cuts import KEYS, STREAM, Event, World

NAMES = ["r0", "r1", "r2"]


def fresh(world: World) -> GroupState:
    starts = changes.offsets_of(cuts.head_cut(world.view()))
    return GroupState((STREAM,), starts, {}, starts)


class Group(RuleBasedStateMachine):
    """A stream, a group, and readers as an application sees them: each remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        for part in FULL_KEY_RANGE.split(3):
            self.world.begin(part)
        self.state = fresh(self.world)
        self.sessions = 0
        self.session: dict[str, str] = {}
        self.at: dict[str, dict[StreamSegment, int]] = {}  # of each reader that lives, behind what it was given
        self.orders: dict[int, list[int]] = defaultdict(list)  # of each key, its events
        self.given: dict[int, int] = defaultdict(int)  # of each key, how many of them were given, from the first on
        self.accepted: set[tuple[SegmentId, int]] = set()
        self.numbers = count()
        self.before: dict[
            str, set[tuple[SegmentId, int]]
        ] = {}  # of the checkpoint that is collected, what readers were given
        self.after: set[tuple[SegmentId, int]] = set()  # … before they came to it, and after
        for name in NAMES[:2]:
            self.join(name)
        for _ in range(3):
            self.append(KEYS)
            for name in NAMES[:2]:
                self.meet(name, False)

    # the stream

    @rule(points=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def append(self, points: list[int]) -> None:
        for point in points:
            self.orders[point].append(self.world.order)
            self.world.append(point)

    @rule(
        first=st.integers(0, 9),
        count=st.integers(1, 3),
        edges=st.lists(st.integers(1, FULL_KEY_RANGE.high - 1), max_size=2),
    )
    def scale(self, first: int, count: int, edges: list[int]) -> None:
        first %= len(self.world.current())
        self.world.scale(first, min(count, len(self.world.current()) - first), edges)

    # the readers

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        self.sessions += 1
        self.session[name] = str(self.sessions)
        self.state = changes.join(self.state, name, str(self.sessions), Micros(0))
        self.at[name] = self.state.owned(name)

    @rule(name=st.sampled_from(NAMES), noticed=st.booleans())
    def die(self, name: str, noticed: bool) -> None:
        """What it was given and had not accepted will be given again."""
        self.at.pop(name, None)
        if noticed:
            self.state = changes.leave(self.state, [name])
            assert changes.leave(self.state, [name]) == self.state

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5), which=st.integers(0, 9))
    def read(self, name: str, count: int, which: int) -> None:
        held = sorted(self.at.get(name, ()))
        if not held:
            return
        segment = held[which % len(held)]
        start = self.at[name][segment]
        stop = min(start + count, self.world.view().length(segment.segment))
        for offset in range(start, stop):
            event: Event = self.world.events[segment.segment][offset]
            assert (segment.segment, offset) not in self.accepted, "an accepted event was given again"
            place = self.orders[event.point].index(event.order)
            assert place <= self.given[event.point], "an event came before one that precedes it"
            self.given[event.point] = max(self.given[event.point], place + 1)
            if self.state.checkpoint is not None and name not in self.state.checkpoint.waiting:
                self.after.add((segment.segment, offset))
        self.at[name][segment] = max(start, stop)

    @rule(name=st.sampled_from(NAMES), come=st.booleans())
    def meet(self, name: str, come: bool) -> None:
        """As `readers.group.share` does it."""
        if name not in self.at:
            return
        view = {STREAM: self.world.view()}
        state = self.state
        changes.require_member(state, "g", name, self.session[name])
        pending = state.checkpoint
        self.accept(name)
        state = changes.accept(state, name, self.at[name])
        if come and pending is not None and name in pending.waiting:
            self.before[name] = {(s.segment, o) for s, at in self.at[name].items() for o in range(at)}
            state = changes.reach_checkpoint(state, name)
        done = len(state.checkpoints)
        state = changes.rebalance(changes.advance(state, view), name, view)
        self.state = state
        for complete in state.checkpoints[done:]:
            self.checkpoint_is_a_cut(complete)
            self.before, self.after = {}, set()  # the next one is collected from here on
        owned = state.owned(name)
        self.at[name] = {segment: self.at[name].get(segment, offset) for segment, offset in owned.items()}

    @rule(order=st.permutations(NAMES), count=st.integers(0, 9))
    def go_on(self, order: list[str], count: int) -> None:
        for name in order:
            if name in self.at and count:
                for which in range(len(self.at[name])):
                    self.read(name, count, which)
            self.meet(name, False)

    def accept(self, name: str) -> None:
        for segment, offset in self.at[name].items():
            self.accepted.update((segment.segment, each) for each in range(offset))

    @rule(number=st.integers(0, 2))
    def begin_checkpoint(self, number: int) -> None:
        if len(self.state.pending) <= number:
            self.state = changes.begin_checkpoint(self.state, "g", f"c{next(self.numbers)}", Micros(0))

    def checkpoint_is_a_cut(self, checkpoint: changes.Checkpoint) -> None:
        view = self.world.view()
        reach = cuts.read_offsets(view, cuts.check_cut(view, checkpoint.cut(STREAM)))
        inside = {(segment, offset) for segment, at in reach.items() for offset in range(at)}
        for given in self.before.values():
            assert given <= inside, "a reader came to the checkpoint with an event behind it"
        assert not self.after & inside, "a reader was given an event before the checkpoint after it came there"

    @rule()
    def end(self) -> None:
        """Left alone, whoever is there reads everything, each key in order."""
        for name in NAMES:
            if name in self.state.members and name not in self.at:
                self.state = changes.leave(self.state, [name])
        self.join("r0")
        self.append(KEYS)
        for _ in range(15):
            for name in sorted(self.at):
                for which in range(len(self.at[name])):
                    self.read(name, 1_000, which)
                self.meet(name, True)
        unread = cuts.distance(self.world.view(), self.state.cut(STREAM), cuts.tail_cut(self.world.view()))
        assert unread == 0

    # at any time

    @invariant()
    def positions_are_a_cut(self) -> None:
        cuts.check_cut(self.world.view(), self.state.cut(STREAM))

    @invariant()
    def segments_that_are_read_are_in_the_cut_and_their_readers_in_the_group(self) -> None:
        assert self.state.owners.keys() <= self.state.positions.keys()
        assert set(self.state.owners.values()) <= self.state.members.keys()

    @invariant()
    def the_state_survives_as_bytes(self) -> None:
        codec = GroupStateCodec()
        assert codec.decode(codec.encode(self.state)) == self.state


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.fixture
def world() -> World:
    world = World()
    for part in FULL_KEY_RANGE.split(2):
        world.begin(part)
    return world


def test_a_reader_that_was_taken_over_is_refused(world: World) -> None:
    state = changes.join(fresh(world), "r", "first", Micros(0))
    changes.require_member(state, "g", "r", "first")
    state = changes.join(state, "r", "second", Micros(0))
    with pytest.raises(ReaderNotInGroup):
        changes.require_member(state, "g", "r", "first")


def test_positions_never_go_back_and_only_owners_advance_them(world: World) -> None:
    views = {STREAM: world.view()}
    state = changes.rebalance(changes.join(fresh(world), "r", "s", Micros(0)), "r", views)
    (segment, _) = sorted(state.owned("r"))
    state = changes.accept(state, "r", {segment: 5})
    assert changes.accept(state, "r", {segment: 3}) == state
    assert changes.accept(state, "other", {segment: 9}) == state


def test_a_checkpoint_without_readers_is_complete_at_once(world: World) -> None:
    views = {STREAM: world.view()}
    state = changes.advance(changes.begin_checkpoint(fresh(world), "g", "c", Micros(3)), views)
    assert state.checkpoint is None and state.checkpoints[0].cut(STREAM) == cuts.head_cut(world.view())
    with pytest.raises(AlreadyExists):
        changes.begin_checkpoint(state, "g", "c", Micros(4))


def test_a_checkpoint_whose_begin_is_retried_after_others_completed_it_is_the_same_one(world: World) -> None:
    """The answer to its beginning was lost; meanwhile the readers came to it."""
    views = {STREAM: world.view()}
    state = changes.advance(changes.begin_checkpoint(fresh(world), "g", "c", Micros(3)), views)
    assert changes.begin_checkpoint(state, "g", "c", Micros(3)) is state


def test_checkpoints_are_kept_beside_abandoned_silent_ones(world: World) -> None:
    views, state = {STREAM: world.view()}, fresh(world)
    for i in range(20):
        state = changes.advance(changes.begin_checkpoint(state, "g", f"c{i}", Micros(i)), views)
        state = changes.advance(changes.begin_checkpoint(state, "g", f"s{i}", Micros(i), silent=True), views)
    assert [each.name for each in state.checkpoints if not each.silent] == [f"c{i}" for i in range(4, 20)]
    assert len(state.checkpoints) == 32
    assert GroupStateCodec().decode(GroupStateCodec().encode(state)) == state
    state = changes.forget_checkpoint(state, "s19")
    assert changes.forget_checkpoint(state, "s19") == state and len(state.checkpoints) == 31


@pytest.fixture
def two(world: World) -> GroupState:
    """A group of which `a` and `b` read a segment each, which both hold events; `a` has come to a pending checkpoint."""
    for point in KEYS:
        world.append(point)
    views = {STREAM: world.view()}
    state = changes.join(changes.join(fresh(world), "a", "s", Micros(0)), "b", "s", Micros(0))
    state = changes.rebalance(changes.rebalance(state, "a", views), "b", views)
    assert [len(state.owned(name)) for name in "ab"] == [1, 1]
    state = changes.begin_checkpoint(state, "g", "c", Micros(0))
    return changes.reach_checkpoint(state, "a")


def test_no_successors_enter_while_a_checkpoint_is_pending(world: World, two: GroupState) -> None:
    (segment,) = two.owned("a")
    world.scale([s.id for s in world.current()].index(segment.segment), 1, [KEYS[3], KEYS[12]])
    views = {STREAM: world.view()}
    state = changes.accept(two, "a", {segment: world.view().length(segment.segment)})
    state = changes.rebalance(changes.advance(state, views), "b", views)
    assert state.positions.keys() == two.positions.keys() and segment not in state.owned("b")
    state = changes.advance(changes.reach_checkpoint(state, "b"), views)
    cut = cuts.check_cut(world.view(), state.checkpoints[-1].cut(STREAM))
    assert cut.as_dict()[segment.segment] == 0  # where `a` came to it
    assert segment not in state.positions  # and now they have entered


def test_a_segment_in_a_checkpoint_goes_only_to_readers_that_reached_it(world: World, two: GroupState) -> None:
    (segment,) = two.owned("a")
    views = {STREAM: world.view()}
    state = changes.leave(changes.accept(two, "a", {segment: 3}), ["a"])
    assert segment not in changes.rebalance(state, "b", views).owned("b")
    state = changes.reach_checkpoint(state, "b")
    assert segment in changes.rebalance(state, "b", views).owned("b")
    assert changes.advance(state, views).checkpoints[-1].offsets[segment] == 0


def test_a_segment_taken_by_a_reader_after_the_checkpoint_is_added_to_it(world: World, two: GroupState) -> None:
    (segment,) = two.owned("b")
    views = {STREAM: world.view()}
    state = changes.leave(changes.accept(two, "b", {segment: 2}), ["b"])
    state = changes.rebalance(state, "a", views)
    state = changes.advance(changes.accept(state, "a", {segment: 5}), views)
    assert state.checkpoints[-1].offsets[segment] == 2


def test_a_group_with_an_end_finishes_at_the_end(world: World) -> None:
    for point in KEYS:
        world.append(point)
    end = cuts.tail_cut(world.view())
    state = fresh(world)
    state = GroupState(state.streams, state.starts, {STREAM: cuts.read_offsets(world.view(), end)}, state.positions)
    world.scale(0, 2, [])
    world.append(KEYS[0])
    views = {STREAM: world.view()}
    assert not state.finished(views) and state.live(views) == set(state.positions)
    state = changes.reset(state, changes.offsets_of(end))
    assert state.finished(views) and state.live(views) == set()


def test_positions_below_the_head_move_to_the_head() -> None:
    world = World()
    world.begin(FULL_KEY_RANGE)
    for point in KEYS:
        world.append(point)
    state = fresh(world)
    first = SegmentId(0, 0)
    world.segments[first] = replace(world.segments[first], head=9)
    state = changes.skip_truncated(state, {STREAM: world.view()})
    assert state.cut(STREAM) == StreamCut.of(STREAM, {first: 9})


def test_a_stale_view_does_not_look_like_a_truncation(world: World) -> None:
    old = {STREAM: world.view()}
    world.scale(0, 2, [])
    views = {STREAM: world.view()}
    state = changes.advance(fresh(world), views)
    assert state.cut(STREAM) == cuts.tail_cut(world.view())
    assert changes.skip_truncated(state, old) == changes.advance(state, old) == state


def test_a_state_of_the_first_format_is_read_with_its_pending_checkpoint(world: World) -> None:
    state = changes.begin_checkpoint(changes.join(fresh(world), "r", "s", Micros(0)), "g", "c", Micros(3))
    fields = json.loads(GroupStateCodec().encode(state))
    (pending,) = fields.pop("pending")
    for old, expected in ((pending, state), (None, changes.cancel_checkpoint(state))):
        data = json.dumps({**fields, "format": 1, "checkpoint": old}).encode()
        assert GroupStateCodec().decode(data) == expected


def test_successors_enter_between_two_checkpoints(world: World, two: GroupState) -> None:
    """Else a group that is always at a checkpoint would never read on after a scale."""
    two = changes.begin_checkpoint(two, "g", "d", Micros(0))
    (segment,) = two.owned("a")
    world.scale([s.id for s in world.current()].index(segment.segment), 1, [KEYS[3], KEYS[12]])
    views = {STREAM: world.view()}
    state = changes.accept(two, "a", {segment: world.view().length(segment.segment)})
    state = changes.advance(changes.reach_checkpoint(state, "b"), views)
    assert segment not in state.positions and [each.name for each in state.checkpoints] == ["c"]
    assert state.checkpoint is not None
    assert (state.checkpoint.name, state.checkpoint.waiting) == ("d", {"a", "b"})
    for name in "ab":
        state = changes.reach_checkpoint(state, name)
    cuts.check_cut(world.view(), changes.advance(state, views).checkpoints[-1].cut(STREAM))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "streams": [3]}'])
def test_invalid_bytes_of_a_state_raise_corrupt_store(data: bytes) -> None:
    with pytest.raises(CorruptStore):
        GroupStateCodec().decode(data)


def test_a_state_of_a_newer_release_is_refused() -> None:
    with pytest.raises(FormatTooNew):
        GroupStateCodec().decode(b'{"format": 3}')


def test_a_position_survives_as_text() -> None:
    offsets: dict[Any, int] = {StreamSegment(STREAM, SegmentId(1, i)): 7 * i for i in range(3)}
    position = Position.of(offsets)
    assert Position.parse(str(position)) == position and position.as_dict() == offsets
    assert Position.parse("") == Position(())
