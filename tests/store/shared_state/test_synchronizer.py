"""Revisioned streams and state that many share: every update counts once, whoever was first."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import anabranch as ab
from anabranch import limits
from anabranch.catalog.port import StreamTail, Subject, Writing
from anabranch.errors import (
    AppendUncertain,
    ConditionFailed,
    InvalidArgument,
    StoreBusy,
    StreamNotFound,
    StreamSealed,
    TooLarge,
    Truncated,
)
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.settings import Settings
from anabranch.shared_state.synchronizer import JsonCodec, StateSynchronizer
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, Once, Rig, sound, store_at
from tests.waiting import until_ended


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Store]:
    with store_at("memory", tmp_path) as store:
        yield store


def test_an_append_at_another_revision_is_refused(store: Store) -> None:
    one, two = store.shared.revisioned("s/_x"), store.shared.revisioned("s/_x")
    assert one.last() is None and one.latest() == 0
    assert one.append(b"a", expected=0) == 1
    with pytest.raises(ConditionFailed) as refused:
        two.append(b"b", expected=0)
    assert (refused.value.expected, refused.value.actual) == (0, 1)
    assert two.append(b"b") == 2 and two.append(b"c", expected=2) == 3
    assert [tuple(each) for each in one.read()] == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert one.read(1).__next__() == (2, b"b") and one.last() == (3, b"c")


def test_entries_are_read_up_to_the_revision_as_of_the_call(store: Store) -> None:
    stream = store.shared.revisioned("s/_x")
    stream.append(b"a")
    entries = stream.read()
    stream.append(b"b")
    assert [each.value for each in entries] == [b"a"]


@pytest.mark.parametrize("value", [{1: "a"}, {"a": [{"b": {None: 1}}]}, "\ud800", object()])
def test_what_other_processes_would_not_read_back_is_refused(plain: Store, value: Any) -> None:
    state: StateSynchronizer[Any] = plain.shared.synchronizer("s/x", initial={})
    with pytest.raises(InvalidArgument, match="can't encode the state as JSON"):
        state.update(lambda _: value)
    assert state.fetch() == {} and state.update(lambda _: {"1": "a"}) == {"1": "a"}


def test_a_state_that_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="can't encode the state as JSON"):
        JsonCodec().encode(deep)


def test_concurrent_truncations_of_entries_succeed(plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = plain.shared.revisioned("s/_x"), plain.shared.revisioned("s/_x")
    for _ in range(3):
        one.append(b"a")
    truncate = plain.streams.truncate

    def slow(*arguments: Any) -> Any:
        monkeypatch.undo()
        two.truncate(2)
        return truncate(*arguments)

    monkeypatch.setattr(plain.streams, "truncate", slow)
    one.truncate(1)  # it has seen that the entry is there still
    assert one.oldest() == 2


def test_revisions_continue_after_a_truncation(store: Store) -> None:
    stream = store.shared.revisioned("s/_x")
    for value in (b"a", b"b", b"c"):
        stream.append(value)
    stream.truncate(2)
    stream.truncate(1)  # lower: nothing to do
    assert (stream.oldest(), stream.latest()) == (2, 3)
    with pytest.raises(Truncated):
        list(stream.read(1))
    assert stream.append(b"d", expected=3) == 4
    assert [each.value for each in stream.read(2)] == [b"c", b"d"]
    stream.truncate(4)
    assert stream.last() is None and stream.append(b"e", expected=4) == 5
    assert sound(store)


def test_large_values_are_in_blobs_and_too_large_ones_are_refused(store: Store) -> None:
    state = store.shared.synchronizer("s/x", initial="")
    text = "x" * (limits.INLINE_BYTES_MAX * 2)
    state.update(lambda _: text)
    assert store.shared.synchronizer("s/x").fetch() == text
    with pytest.raises(TooLarge):
        state.update(lambda _: "x" * (limits.EVENT_BYTES_MAX + 1))
    assert state.state == text and sound(store)


def test_the_first_process_sets_the_initial_value(store: Store) -> None:
    assert store.shared.synchronizer("s/x", initial={"n": 1}).state == {"n": 1}
    assert store.shared.synchronizer("s/x", initial={"n": 2}).state == {"n": 1}
    assert store.shared.synchronizer("s/x", create=False).fetch() == {"n": 1}
    with pytest.raises(StreamNotFound):
        store.shared.synchronizer("s/y", create=False)
    assert [str(i.name) for i in store.streams.list("s", internal=True)] == ["s/_state-x"]
    assert list(store.streams.list("s")) == []


def test_concurrent_updates_lose_nothing(store: Store) -> None:
    def count() -> None:
        state = store.shared.synchronizer("s/x", initial=0)
        for _ in range(12):
            state.update(lambda n: n + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    until_ended(*threads)
    assert store.shared.synchronizer("s/x").fetch() == 48


def test_an_update_is_applied_to_the_newest_value(plain: Store) -> None:
    one = plain.shared.synchronizer("s/x", initial=[0])
    two: ab.StateSynchronizer[list[int]] = plain.shared.synchronizer("s/x")
    two.update(lambda value: [*value, 2])
    assert one.update(lambda value: [*value, 1]) == [0, 2, 1]
    assert one.revision == 3 and two.fetch() == [0, 2, 1]


def test_a_no_op_update_writes_nothing_and_reads_the_current_value(plain: Store) -> None:
    one = plain.shared.synchronizer("s/x", initial=0)
    two: ab.StateSynchronizer[int] = plain.shared.synchronizer("s/x")
    assert one.update(lambda value: value) == 0 and one.revision == 1
    two.update(lambda _: 5)
    assert one.update(lambda value: max(value, 0)) == 5  # of the 0 it knew, it would have been 0
    assert one.stream.latest() == 2


def test_an_error_of_the_change_function_writes_nothing(plain: Store) -> None:
    state = plain.shared.synchronizer("s/x", initial=1)
    with pytest.raises(ZeroDivisionError):
        state.update(lambda value: value // 0)
    with pytest.raises(InvalidArgument, match="codec="):
        state.update(lambda _: object())  # type: ignore[arg-type, return-value]
    assert state.fetch() == 1 and state.stream.latest() == 1


class Pickled:
    def encode(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


def test_any_value_with_a_codec(plain: Store) -> None:
    state = plain.shared.synchronizer("s/x", initial=frozenset({1}), codec=Pickled())
    state.update(lambda value: value | {(2, "b")})
    assert plain.shared.synchronizer("s/x", codec=Pickled()).fetch() == {1, (2, "b")}


def test_old_values_are_truncated_automatically(plain: Store) -> None:
    stream = plain.shared.revisioned("s/_state-x")
    state = ab.StateSynchronizer(stream, plain.runtime, JsonCodec(), 0, entries_kept=4)
    for _ in range(9):
        state.update(lambda n: n + 1)
    assert state.stream.oldest() == 7 and plain.shared.synchronizer("s/x").fetch() == 9
    state.compact()
    assert (state.stream.oldest(), state.stream.latest(), state.fetch()) == (9, 10, 9)


def test_fetching_during_compaction_never_fails_or_goes_back(store: Store) -> None:
    done = threading.Event()
    seen: list[list[int]] = [[], [], []]
    ended: list[bool] = []

    def watch(values: list[int]) -> None:
        state: ab.StateSynchronizer[int] = store.shared.synchronizer("s/x")
        while not done.is_set():
            values.append(state.fetch())
            values.append(store.shared.synchronizer("s/x", initial=-1).state)  # who opens it anew reads the same entry
        ended.append(True)

    state = store.shared.synchronizer("s/x", initial=0)
    threads = [threading.Thread(target=watch, args=(values,)) for values in seen]
    for each in threads:
        each.start()
    while min(map(len, seen)) < 40 and all(each.is_alive() for each in threads):
        state.update(lambda n: n + 1)
        state.compact()  # all behind which they stood is gone
    done.set()
    until_ended(*threads)
    assert len(ended) == 3, "a thread died"
    assert all(values == sorted(values) and values[0] >= 0 for values in seen)


def test_a_stream_that_can_be_scaled_or_is_sealed_is_refused(plain: Store) -> None:
    with pytest.raises(InvalidArgument, match="begin with '_'"):
        plain.shared.revisioned("s/x")
    plain.streams.create("s/_two", scaling=2)
    with pytest.raises(InvalidArgument, match="is not a revisioned stream"):
        plain.shared.revisioned("s/_two")
    stream = plain.shared.revisioned("s/_x")
    stream.append(b"a")
    plain.streams.seal("s/_x")
    with pytest.raises(StreamSealed):
        stream.append(b"b")
    assert stream.last() == (1, b"a")


def test_an_append_whose_answer_was_lost_counts_once(plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    state = plain.shared.synchronizer("s/x", initial=0)
    real = plain.catalog.commit
    lost: list[bool] = []

    def commit(wanted: Commit) -> tuple[tuple[Verdict, ...], ...]:
        done = real(wanted)
        if not lost:
            lost.append(True)
            raise ab.errors.AppendUncertain("the answer was lost")
        return done

    monkeypatch.setattr(plain.catalog, "commit", commit)
    assert state.update(lambda n: n + 1) == 1
    assert lost and state.stream.latest() == 2 and plain.shared.synchronizer("s/x").fetch() == 1


@pytest.mark.parametrize("landed", [True, False])
def test_an_update_under_the_lock_of_unknown_outcome_counts_once(
    plain: Store, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    one = plain.shared.synchronizer("s/_n", initial=0)
    two: StateSynchronizer[int] = plain.shared.synchronizer("s/_n")
    writing = plain.catalog.writing
    lost: list[bool] = []

    @contextmanager
    def lossy(on: Subject | None = None) -> Iterator[Writing]:
        if not isinstance(on, StreamTail) or on.stream != two.stream.id or lost:
            with writing(on) as txn:
                yield txn
            return
        lost.append(True)
        try:
            with writing(on) as txn:
                yield txn
                if not landed:
                    raise _Undone
        except _Undone:
            pass
        raise AppendUncertain

    assert one.update(lambda n: n + 1) == 1
    monkeypatch.setattr(plain.catalog, "writing", lossy)
    assert two.update(lambda n: n + 10) == 11
    assert lost
    assert one.fetch() == two.fetch() == 11
    assert (one.revision, two.revision) == (3, 3)
    assert two.update(lambda n: n + 100) == 111


class _Undone(Exception):
    """Ends a transaction without its changes."""


@pytest.mark.parametrize("in_turn", [False, True], ids=["alone", "in_turn"])
def test_an_interrupted_durable_update_does_not_swallow_the_next(in_turn: bool) -> None:
    with Rig() as rig:
        state = rig.store.shared.synchronizer("s/x", initial=[0])
        state._contended = in_turn
        interrupt, real = Once(KeyboardInterrupt()), rig.catalog.writing

        @contextmanager
        def writing(subject: Subject | None = None) -> Iterator[Writing]:
            with real(subject) as txn:
                yield txn
            interrupt()

        rig.catalog.after = interrupt
        rig.catalog.writing = writing  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            state.update(lambda value: [*value, 1])
        assert state.update(lambda value: [*value, 2]) == [0, 1, 2]
        assert rig.store.shared.synchronizer("s/x").state == [0, 1, 2]


def test_an_update_succeeds_even_if_compaction_fails() -> None:
    with Rig() as rig:
        state = rig.store.shared.synchronizer("s/x", initial=0)
        state._entries_kept = 4
        refusing, real = Once(StoreBusy("another process holds the store")), rig.catalog.writing

        def writing(subject: Subject | None = None) -> AbstractContextManager[Writing]:
            refusing()
            return real(subject)

        rig.catalog.writing = writing  # type: ignore[assignment, method-assign]
        assert [state.update(lambda value: value + 1) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        assert not refusing.left and state.stream.oldest() == 0
        state.update(lambda value: value + 1)
        assert state.stream.oldest() == 7


def test_after_a_lost_race_updates_are_made_under_the_lock(store: Store) -> None:
    one = store.shared.synchronizer("s/_n", initial=0)
    two: StateSynchronizer[int] = store.shared.synchronizer("s/_n")
    seen: list[int] = []

    def add(n: int) -> int:
        seen.append(n)
        return n + 1

    for _ in range(5):
        one.update(lambda n: n + 1)
    assert two.update(add) == 6
    assert seen == [0, 5]
    assert two.update(lambda n: n) == 6
    assert one.update(lambda n: 6) == 6
    assert one.revision == two.revision == 7


def test_a_handle_with_a_forgotten_writer_continues(plain: Store) -> None:
    state = plain.shared.synchronizer("s/x", initial=0)
    state.update(lambda n: n + 1)
    with plain.catalog.writing() as txn:
        txn.drop_progress_before(plain.runtime.clock.now() + 1, 100)  # type: ignore[arg-type]
    assert state.update(lambda n: n + 1) == 2


class Handles(RuleBasedStateMachine):
    """Handles on one state, used in any order, against one list."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ab.connect("memory://", settings=Settings(inline_bytes_max=64))
        self.store.scopes.create("s")
        first: list[int] = []
        self.handles = [self.store.shared.synchronizer("s/x", initial=first) for _ in range(3)]
        self.truth: list[int] = []
        self.updates = 1

    @rule(handle=st.integers(0, 2), value=st.integers())
    def add(self, handle: int, value: int) -> None:
        self.truth = [*self.truth[-20:], value]
        self.updates += 1
        assert self.handles[handle].update(lambda state: [*state[-20:], value]) == self.truth

    @rule(handle=st.integers(0, 2))
    def change_nothing(self, handle: int) -> None:
        assert self.handles[handle].update(lambda state: list(state)) == self.truth

    @rule(handle=st.integers(0, 2))
    def fetch(self, handle: int) -> None:
        assert self.handles[handle].fetch() == self.truth

    @rule(handle=st.integers(0, 2))
    def compact(self, handle: int) -> None:
        self.handles[handle].compact()
        assert self.handles[handle].stream.oldest() == self.updates - 1

    @rule(handle=st.integers(0, 2))
    def open_anew(self, handle: int) -> None:
        self.handles[handle] = self.store.shared.synchronizer("s/x", initial=[7])
        assert self.handles[handle].state == self.truth

    @rule()
    def upkeep(self) -> None:
        self.store.compact(force=True)
        self.store.collect(horizon_us=0)

    @invariant()
    def revisions_count_updates(self) -> None:
        assert self.handles[0].stream.latest() == self.updates
        assert all(handle.revision <= self.updates for handle in self.handles)

    def teardown(self) -> None:
        self.store.close()


TestHandles = Handles.TestCase
TestHandles.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
