"""Retention in the simulated world: whatever crashes, is lost or comes twice, no policy lets go more than it says."""

from __future__ import annotations

from contextlib import suppress

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt, Faults
from tests.simulation.clients import RETENTION, checked
from tests.simulation.simulation import SETTINGS, Simulation
from tests.simulation.world import ProcessCrashed, World

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))])
def test_policies_keep_what_they_say_beside_everything_else(seed: int) -> None:
    outcome = Simulation(seed, steps=5_000, mixes=RETENTION).run()
    assert outcome.sound, (seed, outcome.violations, outcome.error)
    assert outcome.done["retain"] > 0


def begin(store: Store) -> None:
    """Eight events, of which four are old."""
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2, retention=ab.RetainFor("1s"))
    with store.writer("s/a") as writer:
        for n in range(8):
            store.runtime.tasks.sleep(2 if n == 4 else 0)
            writer.write(b"%d" % n, key=str(n)).result()


def kept(store: Store) -> list[bytes]:
    with store.reader("s/a") as reader:
        return sorted(event.body for event in reader)


def leases(store: Store) -> int:
    with store.catalog.reading() as reading:
        return len(reading.leases())


@pytest.mark.slow
def test_a_crash_at_any_call_of_retention_is_mended_by_the_next() -> None:
    seen: list[list[bytes]] = []
    number, struck = 0, True
    while struck:
        number += 1
        assert number < 100
        for action in (Action.CRASH_BEFORE, Action.CRASH_AFTER):
            struck = crashed(FaultAt(number, action), seen)
    assert number > 8
    assert {len(each) for each in seen} == {4, 8}  # all or nothing, and each of the two came


def crashed(faults: Faults, seen: list[list[bytes]]) -> bool:
    """Play the story; True if the faults struck."""
    alive: list[bool] = []
    with World(1, settings=SETTINGS) as world:
        world.run(lambda: alive.append(story(world, faults, seen)))
    return alive == [False]


def story(world: World, faults: Faults, seen: list[list[bytes]]) -> bool:
    """True if the process lives on."""
    world.process("first").call(begin)
    doomed = world.process("doomed", faults=faults)
    with suppress(ProcessCrashed):
        doomed.call(lambda store: store.retain())
    mender = world.process("mender")
    assert mender.call(checked) == []
    seen.append(mender.call(kept))
    assert seen[-1][-4:] == [b"4", b"5", b"6", b"7"]
    mender.call(lambda store: store.retain())
    assert mender.call(kept) == [b"4", b"5", b"6", b"7"]
    world.sleep(limits.LEASE_US / 1e6)
    mender.call(lambda store: store.collect())
    assert mender.call(leases) == 0
    return doomed.alive
