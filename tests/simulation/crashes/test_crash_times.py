"""A crash at every port call of what writers note of times: the watermark never says too much, and goes with its stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import ProcessCrashed, World

pytestmark = pytest.mark.sim

Work = Callable[[Store], None]


def prepare(store: Store) -> None:
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)


def prepare_noted(store: Store) -> None:
    prepare(store)
    note(store)


def note(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in (5, 15):
            writer.write(b"x", key=str(time), time=time)
            writer.note_time(time)


def commit(store: Store) -> None:
    with store.transaction() as txn:
        txn.writer("s/a").write(b"x", key="k", time=5)
        txn.commit(note_time=15)


def delete(store: Store) -> None:
    store.streams.delete("s/a")


def verify(store: Store) -> None:
    """What the watermark says is true; and once its stream is gone nothing is left of it."""
    if store.streams.exists("s/a"):
        mark = store.watermarks.get("s/a")
        if mark is not None:
            with store.reader("s/a", start=mark.cut) as reader:
                assert all((event.time_us or 0) >= mark.time_us for event in reader)
        store.streams.delete("s/a")
    store.collect()
    assert list(store.streams.list(internal=True)) == []
    assert checked(store) == []


def run(first: Work, work: Work, number: int, action: Action) -> list[str]:
    """Run it in a process that crashes at its `number`th call, with 0 in one that does not; its calls."""
    calls: list[str] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def play() -> None:
            beginner = world.process("beginner")
            beginner.call(first)
            beginner.close()
            actor = world.process("actor")
            opened = len(actor.gate.calls)
            if number:
                actor.gate.faults = FaultAt(opened + number, action)
                with pytest.raises(ProcessCrashed):
                    actor.call(work)
            else:
                actor.call(work)
                calls.extend(actor.gate.calls[opened:])
                actor.close()
            survivor = world.process("survivor")
            survivor.call(verify)
            survivor.close()

        world.run(play)
    return calls


@some_or_every_crash
@pytest.mark.parametrize(("first", "work"), [(prepare, note), (prepare, commit), (prepare_noted, delete)])
def test_a_crash_at_any_call_leaves_no_wrong_watermark_and_nothing_behind(first: Work, work: Work, every: bool) -> None:
    calls = run(first, work, 0, Action.PASS)
    assert sum(name in ("writing.commit", "catalog.commit") for name in calls) > 1
    for number, action in crashes(calls, every=every):
        run(first, work, number, action)
