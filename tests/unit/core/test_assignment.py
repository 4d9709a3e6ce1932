"""Who reads which segment: readers that each make their own moves end in balance, and then nothing moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.core.assignment import plan_moves, shares, wanted_readers

NAMES = [f"r{i}" for i in range(6)]
NONE: frozenset[str] = frozenset()


def some(segments: str) -> frozenset[str]:
    return frozenset(segments)


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(0, 20))
@settings(max_examples=40)
def test_shares_differ_by_one_at_most_and_add_up(readers: set[str], segments: int) -> None:
    found = shares(readers, {}, segments)
    assert sum(found.values()) == segments and found.keys() == readers
    assert max(found.values()) - min(found.values()) <= 1


def test_the_largest_lag_goes_to_the_reader_with_the_least() -> None:
    owners = {"a": "r1", "b": "r2", "c": None, "d": None}
    lag = {"a": 100_000, "b": 0, "c": 50_000, "d": 10}
    assert plan_moves("r2", ["r1", "r2"], owners, lag) == (NONE, some("c"))
    assert plan_moves("r1", ["r1", "r2"], owners, lag) == (NONE, some("d"))


def test_a_new_reader_gets_the_segment_that_is_furthest_behind() -> None:
    owners = dict.fromkeys("abc", "r1")
    assert plan_moves("r1", ["r1", "r2"], owners, {"a": 1, "b": 900, "c": 20}) == (some("b"), NONE)


def test_released_segments_balance_the_lag() -> None:
    lag = {"a": 7_200, "b": 1_000, "c": 1_100, "d": 0}
    given_up, _ = plan_moves("r1", ["r1", "r2"], dict.fromkeys("abcd", "r1"), lag)
    assert given_up == {"a", "d"}
    taken = plan_moves("r2", ["r1", "r2"], dict.fromkeys("bc", "r1") | {"a": None, "d": None}, lag)
    assert taken == (NONE, some("ad"))


def test_segments_in_use_are_not_released() -> None:
    owners = dict.fromkeys("ab", "r1")
    assert plan_moves("r1", ["r1", "r2"], owners, {"a": 900}, keep={"a"}) == (some("b"), NONE)
    assert plan_moves("r1", ["r1", "r2"], owners, {"a": 900}, keep={"a", "b"}) == (NONE, NONE)


def test_a_reader_that_is_not_in_the_group_does_nothing() -> None:
    assert plan_moves("r9", ["r1"], {"a": None}, {}) == (NONE, NONE)


def test_wanted_readers_follow_the_lag_with_hysteresis() -> None:
    def wanted(lag: int, running: int) -> int:
        return wanted_readers(8, lag, events_per_reader=100, readers_max=6, running=running)

    assert [wanted(0, 0), wanted(450, 1), wanted(10_000, 1)] == [1, 5, 6]
    assert [wanted(350, 5), wanted(250, 5), wanted(150, 5)] == [5, 5, 2]
    assert [wanted(0, 5), wanted(0, 2)] == [1, 1]
    assert wanted(10_000, 8) == 6  # more than may run


class Readers(RuleBasedStateMachine):
    """Readers come, go, and move in any order, while segments come, go and fall behind."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[str] = set()
        self.owners: dict[int, str | None] = {0: None, 1: None, 2: None}
        self.lag: Counter[int] = Counter()
        self.next = 3

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        self.readers.add(name)

    @rule(name=st.sampled_from(NAMES))
    def go(self, name: str) -> None:
        self.readers.discard(name)
        self.owners = {s: None if o == name else o for s, o in self.owners.items()}

    @rule(choice=st.integers(0, 99))
    def split(self, choice: int) -> None:
        gone = sorted(self.owners)[choice % len(self.owners)]
        del self.owners[gone]
        self.owners |= {self.next: None, self.next + 1: None}
        self.next += 2

    @rule(choice=st.integers(0, 99))
    def end(self, choice: int) -> None:
        if len(self.owners) > 1:
            del self.owners[sorted(self.owners)[choice % len(self.owners)]]

    @rule(choice=st.integers(0, 99), events=st.integers(0, 1_000_000))
    def fall_behind(self, choice: int, events: int) -> None:
        self.lag[sorted(self.owners)[choice % len(self.owners)]] = events

    @rule(name=st.sampled_from(NAMES))
    def move(self, name: str) -> None:
        self.step(name)

    def step(self, name: str) -> bool:
        given_up, taken = plan_moves(name, self.readers, self.owners, self.lag)
        for segment in given_up:
            assert self.owners[segment] == name
            self.owners[segment] = None
        for segment in taken:
            assert self.owners[segment] is None, "taken from another"
            self.owners[segment] = name
        return bool(given_up or taken)

    @rule(order=st.permutations(NAMES), lag=st.integers(0, 1_000_000))
    def settle(self, order: list[str], lag: int) -> None:
        """Left alone, they come to rest in a few rounds, in balance; and no lag whatever wakes them again."""
        held_before = {segment for segment, owner in self.owners.items() if owner is not None}
        given_up: Counter[int] = Counter()
        for _ in range(4):
            before = dict(self.owners)
            moved = [self.step(name) for name in order]
            given_up.update(s for s, o in before.items() if o is not None and self.owners[s] != o)
            if not any(moved):
                break
        else:
            raise AssertionError("they do not come to rest")
        assert all(count == 1 and segment in held_before for segment, count in given_up.items()), "back and forth"
        if self.readers:
            counts = Counter(dict.fromkeys(self.readers, 0))
            counts.update(owner for owner in self.owners.values() if owner is not None)
            assert None not in self.owners.values()
            assert max(counts.values()) - min(counts.values()) <= 1
        for segment in self.owners:
            self.lag[segment] = lag * (segment % 3)
        assert not any(self.step(name) for name in order), "lag alone moved a segment"

    @invariant()
    def nobody_who_is_gone_reads(self) -> None:
        assert all(owner is None or owner in self.readers for owner in self.owners.values())


TestReaders = Readers.TestCase
TestReaders.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
