"""A crash at every port call of a job that copies by a filter: whoever resumes it gets what an undisturbed run gets, no
event lost or doubled."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.core.copy import CopyResult
from anabranch.store import Store
from anabranch.testing.faults import Action
from anabranch.transfer.jobs.record import JobState
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import answers, crashed_at, crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLACE_VIEW_EVENTS", 3)
    monkeypatch.setattr(limits, "REPLACE_RUNS_MIN", 2)
    monkeypatch.setattr(limits, "REPLACE_EVENTS_MAX", 4)
    monkeypatch.setattr(limits, "JOB_RANGE_BYTES", 200)


def prepare(store: Store) -> None:
    """A stream of two segments, in commits of several events, one of them in a Parquet file."""
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)
    with store.writer("s/a") as writer:
        for first in range(0, 24, 8):
            for n in range(first, first + 8):
                ack = writer.write(b"%d" % n, key="abc"[n // 2 % 3], time=n)
            ack.result()
            writer.flush()
            if first == 0:
                store.compact(force=True)


def numbers(store: Store, name: str) -> list[int]:
    with store.reader(name) as reader:
        return sorted(int(event.body) for event in reader)


def copy(store: Store) -> CopyResult:
    """The copy; meanwhile events are appended, the source is truncated, and all is compacted."""
    told: list[str] = []

    def meanwhile(what: str, _done: int, _total: int | None) -> None:
        told.append(what)
        if len(told) == 1:
            with store.writer("s/a") as writer:
                writer.write(b"100", key="a").result()
            store.streams.truncate("s/a", ab.TAIL)
            store.compact(force=True)

    return store.streams.copy(
        "s/a", "s/b", where="payload::VARCHAR::BIGINT % 2 = 0", window=1, progress=meanwhile, request="r"
    )


KEPT = list(range(0, 24, 2))


def tell(number: int, action: Action) -> Process | None:
    """Prepare, copy in a process that suffers a fault at a call, and resume the job in another."""
    actors: list[Process | None] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            rows = store.jobs.list()
            assert store.streams.exists("s/b") == ([row.state for row in rows] == [JobState.DONE]), (number, action)
            assert checked(store) == []
            store.compact(force=True)
            for _ in range(2):  # collected in between: what a job holds is spared
                store.collect(horizon_us=0)
            assert checked(store) == []
            for row in rows:
                if row.state is not JobState.DONE:
                    store.jobs.resume(row.id, take_over=True).wait()
            answer = copy(store)
            assert copy(store) == answer
            assert [row.state for row in store.jobs.list()] == [JobState.DONE]
            assert answer.filtered is not None
            assert (answer.filtered.events, answer.filtered.rewritten > 0) == (12, True)
            assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/a", "s/b"]
            for _ in range(3):
                assert numbers(store, "s/b") == KEPT
                store.compact(force=True)
                store.collect()
                store.runtime.tasks.sleep(1)
            assert numbers(store, "s/b") == KEPT
            assert checked(store) == []

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            first.close()
            stumbles = (ab.errors.AppendUncertain, ab.errors.StoreUnavailable)
            actors.append(crashed_at(world, number, action, copy, *stumbles))
            survivor = world.process("survivor")
            survivor.call(survive)
            survivor.close()

        world.run(play)
    return actors[0]


@some_or_every_crash
def test_a_crash_at_any_call_of_a_copy_by_a_filter_loses_and_doubles_nothing(every: bool) -> None:
    actor = tell(0, Action.PASS)
    assert actor is not None
    calls = list(actor.gate.calls)
    assert {"blobs.put", "writing.commit", "catalog.reading"} <= set(calls)
    for number, action in crashes(calls, every=every):
        crashed = tell(number, action)
        assert crashed is None or not crashed.alive


@some_or_every_crash
@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
def test_a_lost_answer_to_a_step_of_a_copy_by_a_filter_loses_and_doubles_nothing(action: Action, every: bool) -> None:
    whole = tell(0, Action.PASS)
    assert whole is not None
    for number in answers(whole.gate.calls, "writing.commit", "blobs.put", every=every):
        tell(number, action)
