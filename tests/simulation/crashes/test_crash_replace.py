"""A crash at every port call of a job that replaces a time range of out-of-order data: whoever resumes it gets what an
undisturbed run gets, no event lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.model.replaced import Replaced
from anabranch.store import Store
from anabranch.testing.faults import Action
from anabranch.transfer.jobs.record import JobState
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import answers, crashed_at, crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim

LOW, HIGH = 50, 51


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLACE_VIEW_EVENTS", 3)
    monkeypatch.setattr(limits, "REPLACE_RUNS_MIN", 2)
    monkeypatch.setattr(limits, "REPLACE_EVENTS_MAX", 4)


def prepare(store: Store) -> None:
    """A stream of two segments in which every second event is in the range, in commits of several events, one of them
    in a Parquet file, and a replacement."""
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)
    store.streams.create("s/new")
    with store.writer("s/a") as writer:
        for first in range(0, 24, 8):
            for n in range(first, first + 8):
                padding = b" " * 300 * (first // 8 % 2)
                ack = writer.write(b"%d" % n + padding, key="abc"[n // 2 % 3], time=LOW if n % 2 else n)
            ack.result()
            writer.flush()
            if first == 0:
                store.compact(force=True)
    with store.writer("s/new") as writer:
        for n in (-1, -2):
            writer.write(b"%d" % n, key="a", time=LOW).result()


def numbers(store: Store) -> list[int]:
    with store.reader("s/a") as reader:
        return sorted(int(event.body) for event in reader)


BEFORE = list(range(24))
KEPT = list(range(0, 24, 2))


def replace(store: Store) -> Replaced:
    return store.streams.replace("s/a", between=(LOW, HIGH), with_="s/new", window=1, request="r")


def replace_while_written(store: Store) -> Replaced:
    """The same; meanwhile events are appended, one of them in the range, the stream is truncated, and compacted."""
    told: list[str] = []

    def meanwhile(what: str, _done: int, _total: int | None) -> None:
        told.append(what)
        if told.count("events rewritten") == 1 and told[-1] == "events rewritten":
            with store.writer("s/a") as writer:
                writer.write(b"100", key="a", time=LOW).result()
                writer.write(b"102", key="a", time=LOW + 50).result()
            store.compact(force=True)

    return store.streams.replace("s/a", between=(LOW, HIGH), with_="s/new", window=1, progress=meanwhile, request="r")


def tell(number: int, action: Action, verb: Callable[[Store], Replaced] = replace) -> Process | None:
    """Prepare, replace in a process that suffers a fault at a call, and resume the job in another."""
    actors: list[Process | None] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            rows = store.jobs.list()
            done = [row.state for row in rows] == [JobState.DONE]
            seen = [n for n in numbers(store) if n < 100]
            late = [n for n in numbers(store) if n >= 100]
            assert seen == (sorted([-1, -2, *KEPT]) if done else BEFORE), (number, action)
            assert late in ([], [100], [100, 102], [102]), (number, action)
            assert checked(store) == []
            store.compact(force=True)
            for _ in range(2):  # collected in between: what a job holds is spared
                store.collect(horizon_us=0)
            assert checked(store) == []
            for row in rows:
                if row.state is not JobState.DONE:
                    store.jobs.resume(row.id, take_over=True).wait()
            answer = replace(store)
            assert replace(store) == answer
            assert [row.state for row in store.jobs.list()] == [JobState.DONE]
            assert numbers(store) == sorted([-1, -2, *KEPT, *(n for n in late if n != 100)])
            assert answer.added == 2
            assert answer.rewritten > 0
            assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/a", "s/new"]
            for _ in range(3):
                store.compact(force=True)
                store.collect()
                store.runtime.tasks.sleep(1)
            assert numbers(store) == sorted([-1, -2, *KEPT, *(n for n in late if n != 100)])
            assert checked(store) == []

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            first.close()
            stumbles = (ab.errors.AppendUncertain, ab.errors.StoreUnavailable)
            actors.append(crashed_at(world, number, action, verb, *stumbles))
            survivor = world.process("survivor")
            survivor.call(survive)
            survivor.close()

        world.run(play)
    return actors[0]


@some_or_every_crash
@pytest.mark.parametrize("verb", [replace, replace_while_written], ids=lambda each: each.__name__)
def test_a_crash_at_any_call_of_a_replacement_loses_and_doubles_nothing(
    verb: Callable[[Store], Replaced], every: bool
) -> None:
    actor = tell(0, Action.PASS, verb)
    assert actor is not None
    calls = list(actor.gate.calls)
    assert {"blobs.put", "writing.commit", "catalog.reading"} <= set(calls)
    for number, action in crashes(calls, every=every):
        crashed = tell(number, action, verb)
        assert crashed is None or not crashed.alive


@some_or_every_crash
@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
def test_a_lost_answer_to_a_step_of_a_replacement_loses_and_doubles_nothing(action: Action, every: bool) -> None:
    whole = tell(0, Action.PASS)
    assert whole is not None
    for number in answers(whole.gate.calls, "writing.commit", "blobs.put", every=every):
        tell(number, action)
