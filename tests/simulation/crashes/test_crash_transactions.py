"""A crash at every port call of a transaction: its events are there, all of them, if it is called committed, and none if
not; what it left can be gone on with or is swept away."""

from __future__ import annotations

import pytest

from anabranch.errors import TransactionAborted, TransactionNotFound
from anabranch.model.transaction import TransactionState
from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashed_at, crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim

LEASE_S = 60.0
NAMES = ("s/a", "s/b")
EVENTS = 4


def prepare(store: Store) -> None:
    store.scopes.create("s")
    for name in NAMES:
        store.streams.create(name, scaling=2)


def transact(store: Store) -> None:
    """Two flushes' worth of events for two streams, small and large."""
    with store.transaction(lease_s=LEASE_S) as txn:
        for n in range(EVENTS):
            for name in NAMES:
                txn.writer(name).write(f"{n}".encode() + b" " * 300 * (n % 2), key="abc"[n % 3])
            if n == 1:
                txn.flush()
        txn.commit()


def seen(store: Store) -> list[int]:
    """How many events each stream has."""
    counts = []
    for name in NAMES:
        with store.reader(name) as reader:
            counts.append(sum(1 for _ in reader))
    return counts


def survive(store: Store) -> None:
    """What a process finds behind the crash."""
    states = [info.state for info in store.transactions.list()]
    counts = seen(store)
    assert counts in ([0, 0], [EVENTS, EVENTS])
    assert (counts[0] > 0) == (TransactionState.COMMITTED in states)
    for info in store.transactions.list():
        if info.state is not TransactionState.OPEN:
            continue
        flushed = sum(info.events.values())
        assert flushed in (0, 4)
        with store.transaction(info.id) as again:  # as another process would
            again.writer("s/a").write("and one more")
        assert sum(seen(store)) == flushed + 1
    for _ in range(3):
        store.runtime.tasks.sleep(LEASE_S + 1)
        store.compact(force=True)
        store.collect(horizon_us=0)
    assert checked(store) == []


def abandon(store: Store) -> None:
    """The same, where nobody goes on: the lease runs out."""
    before = [info for info in store.transactions.list() if info.state is TransactionState.OPEN]
    for _ in range(3):
        store.runtime.tasks.sleep(LEASE_S + 1)
        store.collect(horizon_us=0)
    for info in before:
        with pytest.raises(TransactionAborted):
            store.transaction(info.id)
    assert seen(store) in ([0, 0], [EVENTS, EVENTS])
    assert checked(store) == []


def run(number: int, action: Action) -> Process | None:
    actors: list[Process | None] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            first.close()
            actors.append(crashed_at(world, number, action, transact))
            survivor = world.process("survivor")
            survivor.call(survive if number % 2 else abandon)
            survivor.close()

        world.run(play)
    return actors[0]


@some_or_every_crash
def test_a_crash_at_any_call_shows_all_of_a_transaction_or_nothing(every: bool) -> None:
    whole = run(0, Action.PASS)
    assert whole is not None
    for number, action in crashes(list(whole.gate.calls), every=every):
        crashed = run(number, action)
        assert crashed is None or not crashed.alive


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
def test_a_lost_answer_doubles_nothing_and_is_found_out(action: Action) -> None:
    whole = run(0, Action.PASS)
    assert whole is not None
    commits = [number for number, name in enumerate(whole.gate.calls, 1) if name == "writing.commit"]
    assert len(commits) >= 3
    for number in commits[1:]:  # behind the begin, whose answer names what could be gone on with
        with World(1, settings=SETTINGS) as world, tight_limits():

            def play(world: World = world, number: int = number) -> None:
                first = world.process("first")
                first.call(prepare)
                first.close()
                actor = world.process("actor", faults=FaultAt(number, action))
                actor.call(transact)
                actor.close()
                survivor = world.process("survivor")
                assert survivor.call(seen) == [EVENTS, EVENTS]
                assert survivor.call(checked) == []
                with pytest.raises(TransactionNotFound):
                    survivor.call(lambda store: store.transaction("another"))
                survivor.close()

            world.run(play)
