"""A crash at every port call of a job that copies or views bytes within a store: whoever goes on with it makes what an undisturbed run makes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.store import Store
from anabranch.testing.faults import Action
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.record import JobState
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import answers, crashed_at, crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim

Image = list[tuple[str, int, bytes, int | None]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOB_RANGE_BYTES", 800)
    monkeypatch.setattr(limits, "JOB_BLOB_BYTES", 400)
    monkeypatch.setattr(limits, "JOB_BUNDLE_RANGES_MAX", 2)


def prepare(store: Store) -> None:
    """A stream of two epochs, of inlined events, blobs and a file."""
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)
    with store.writer("s/a") as writer:
        for n in range(4):
            writer.write(f"{n}".encode() + b" " * 300 * (n % 2), key="abc"[n % 3]).result()
        store.compact(force=True)
        store.streams.scale("s/a", 1)
        for n in range(4, 7):
            writer.write(f"{n}".encode() + b" " * 300 * (n % 2), key="abc"[n % 3]).result()


def image(store: Store, name: str) -> Image:
    with store.reader(name) as reader:
        return sorted((str(e.pointer.segment), e.pointer.offset, e.body, e.appended_us) for e in reader)


def copy(store: Store) -> None:
    store.streams.copy("s/a", "s/b", independent=True, window=1, request="r")


def follow(store: Store) -> None:
    """Copy, and follow what is written meanwhile: more events, and a scale."""
    job = store.jobs.copy(store, "s/a", "s/b", follow=Until(idle_s=0.5), window=1, request="r")
    with store.writer("s/a") as writer:
        writer.write(b"more", key="a").result()
        store.streams.scale("s/a", 2)
        writer.write(b"and more", key="b").result()
    job.wait()


def follow_within(store: Store) -> None:
    """The same with a copy that views the bytes there are."""
    job = store.jobs.copy(store, "s/a", "s/b", follow=Until(idle_s=0.5), independent=False, request="r")
    with store.writer("s/a") as writer:
        writer.write(b"more", key="a").result()
        store.streams.scale("s/a", 2)
        writer.write(b"and more", key="b").result()
    job.wait()


def tell_following(number: int, action: Action, verb: Callable[[Store], None] = follow) -> Process | None:
    """Follow in a process that suffers a fault at a call, and go on with the job in another."""
    actors: list[Process | None] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            assert checked(store) == []
            for row in store.jobs.list():
                if row.state is not JobState.DONE:
                    store.jobs.resume(row.id, take_over=True).wait()
                assert image(store, "s/b") == image(store, "s/a")
            assert checked(store) == []

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            first.close()
            actors.append(crashed_at(world, number, action, verb, ab.errors.AppendUncertain))
            survivor = world.process("survivor")
            survivor.call(survive)
            survivor.close()

        world.run(play)
    return actors[0]


def tell(number: int, action: Action) -> Process | None:
    """Prepare, copy in a process that suffers a fault at a call, and go on with the job in another."""
    actors: list[Process | None] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            jobs = store.jobs.list()
            there = store.streams.exists("s/b")
            assert not there or image(store, "s/b") == image(store, "s/a")
            assert there == (bool(jobs) and jobs[0].state is JobState.DONE)
            for _ in range(2):  # collected in between: what a job holds is spared
                store.collect(horizon_us=0)
            assert checked(store) == []
            if jobs and jobs[0].state is not JobState.DONE:
                store.jobs.resume(jobs[0].id, take_over=True).wait()
            copy(store)
            assert len(store.jobs.list()) == 1
            assert image(store, "s/b") == image(store, "s/a")
            assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/a", "s/b"]
            whole = image(store, "s/a")
            store.streams.delete("s/a")
            for _ in range(3):
                store.compact(force=True)
                store.collect()
                store.runtime.tasks.sleep(1)
            assert image(store, "s/b") == whole
            assert checked(store) == []

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            first.close()
            actors.append(
                crashed_at(world, number, action, copy, ab.errors.AppendUncertain, ab.errors.StoreUnavailable)
            )
            survivor = world.process("survivor")
            survivor.call(survive)
            survivor.close()

        world.run(play)
    return actors[0]


@some_or_every_crash
def test_a_crash_at_any_call_of_a_job_is_gone_on_from(every: bool) -> None:
    actor = tell(0, Action.PASS)
    assert actor is not None
    calls = list(actor.gate.calls)
    assert {"blobs.put", "blobs.get", "writing.commit", "catalog.reading"} <= set(calls)
    for number, action in crashes(calls, every=every):
        crashed = tell(number, action)
        assert crashed is None or not crashed.alive


@some_or_every_crash
@pytest.mark.parametrize("verb", [follow, follow_within], ids=lambda each: each.__name__)
def test_a_crash_while_a_copy_follows_its_source_is_gone_on_from(verb: Callable[[Store], None], every: bool) -> None:
    whole = tell_following(0, Action.PASS, verb)
    assert whole is not None
    calls = list(whole.gate.calls)
    assert calls.count("writing.commit") > 6
    for number, action in crashes(calls, every=every):
        crashed = tell_following(number, action, verb)
        assert crashed is None or not crashed.alive


@some_or_every_crash
def test_a_lost_answer_while_a_copy_views_on_doubles_and_loses_nothing(every: bool) -> None:
    whole = tell_following(0, Action.PASS, follow_within)
    assert whole is not None
    for number in answers(whole.gate.calls, "writing.commit", every=every):
        for action in (Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST):
            tell_following(number, action, follow_within)


@some_or_every_crash
@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
def test_a_lost_answer_to_a_step_doubles_and_loses_nothing(action: Action, every: bool) -> None:
    whole = tell(0, Action.PASS)
    assert whole is not None
    for number in answers(whole.gate.calls, "writing.commit", "blobs.put", every=every):
        tell(number, action)
