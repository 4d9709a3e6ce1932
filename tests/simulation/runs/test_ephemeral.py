"""Ephemeral streams in the simulated world: virtual time, clocks that differ, a crash at every call, lost answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.ephemeral import EPHEMERAL
from anabranch.store import Store
from anabranch.streams.ephemeral.hold import HolderState
from anabranch.testing.faults import Action, FaultAt, Faults
from tests.simulation.clients import EPHEMERAL_STREAMS, checked
from tests.simulation.crashes.calls import crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, Simulation
from tests.simulation.world import Process, ProcessCrashed, World

pytestmark = pytest.mark.sim

LEASE_S = limits.EPHEMERAL_LEASE_US / 1e6
DIFFER_S = limits.CLOCKS_DIFFER_US / 1e6
OVER_S = LEASE_S + DIFFER_S + 1

Verb = Callable[[Store], object]


def play(story: Callable[[World], None]) -> None:
    with World(1, settings=SETTINGS) as world:
        world.run(lambda: story(world))


def begun(world: World, **options: object) -> Process:
    """A process that holds `s/tmp`, with an event in it."""

    def begin(store: Store) -> None:
        store.scopes.create("s")
        store.ephemeral.create("s/tmp")
        with store.writer("s/tmp") as writer:
            writer.write(b"1").result()

    process = world.process("first", **options)  # type: ignore[arg-type]
    process.call(begin)
    return process


def there(process: Process) -> bool:
    return process.call(lambda store: store.streams.exists("s/tmp"))


def sweep(process: Process) -> int:
    return process.call(lambda store: store.ephemeral.sweep())


# time


def test_who_lives_holds_for_as_long_as_it_likes() -> None:
    def story(world: World) -> None:
        first, sweeper = begun(world), world.process("sweeper")
        for _ in range(20):
            world.sleep(LEASE_S / 2)
            assert sweep(sweeper) == 0
        assert there(sweeper)
        first.close()
        assert not there(sweeper)

    play(story)


def test_a_killed_holders_stream_goes_when_its_lease_and_what_clocks_may_differ_are_over() -> None:
    def story(world: World) -> None:
        first, sweeper = begun(world), world.process("sweeper")
        world.sleep(10)
        first.crash()
        world.sleep(LEASE_S + DIFFER_S - 11)
        assert sweep(sweeper) == 0
        world.sleep(12)
        assert sweep(sweeper) == 1
        assert not there(sweeper)
        assert sweeper.call(checked) == []

    play(story)


@pytest.mark.parametrize("skew_s", [-DIFFER_S + 1, DIFFER_S - 1])
def test_clocks_that_differ_take_no_stream_from_who_lives(skew_s: float) -> None:
    def story(world: World) -> None:
        begun(world, skew_us=round(skew_s * 1e6))
        sweeper = world.process("sweeper")
        for _ in range(12):
            world.sleep(LEASE_S / 3)
            assert sweep(sweeper) == 0
        assert there(sweeper)

    play(story)


def test_who_is_taken_for_dead_hears_of_it() -> None:
    def story(world: World) -> None:
        first = begun(world)
        (held,) = first.store.ephemeral._holds._held.values()
        sweeper = world.process("sweeper", skew_us=round(2 * OVER_S * 1e6))
        assert sweep(sweeper) == 1
        world.sleep(LEASE_S)
        assert held.state is HolderState.GONE
        with pytest.raises(ab.errors.StreamNotFound):
            first.call(lambda store: store.writer("s/tmp"))
        first.close()

    play(story)


def test_who_is_taken_for_dead_beside_others_holds_on() -> None:
    def story(world: World) -> None:
        first, second = begun(world), world.process("second", skew_us=round(2 * OVER_S * 1e6))
        second.call(lambda store: store.ephemeral.hold("s/tmp"))
        sweeper = world.process("sweeper", skew_us=round(2 * OVER_S * 1e6))
        assert sweep(sweeper) == 0
        assert sweeper.call(lambda store: len(store.ephemeral.holders("s/tmp"))) == 1
        world.sleep(LEASE_S)
        assert sweeper.call(lambda store: len(store.ephemeral.holders("s/tmp"))) == 2
        first.close()
        assert there(sweeper)
        second.close()
        assert not there(sweeper)

    play(story)


def test_a_catalog_that_is_away_for_a_moment_costs_no_stream() -> None:
    class Away:
        """Keeps the catalog away while `now`."""

        now = False

        def decide(self, call: object) -> Action:
            return Action.UNCERTAIN_LOST if self.now and call.name == "catalog.writing" else Action.PASS  # type: ignore[attr-defined]

    def story(world: World) -> None:
        faults = Away()
        first, sweeper = begun(world, faults=faults), world.process("sweeper")
        for _ in range(5):
            faults.now = not faults.now
            world.sleep(LEASE_S * 0.7)
            assert sweep(sweeper) == 0
        faults.now = False
        first.close()
        assert not there(sweeper)

    play(story)


def test_keeping_a_stream_is_heard_by_its_holders() -> None:
    def story(world: World) -> None:
        first, other = begun(world), world.process("other")
        (held,) = first.store.ephemeral._holds._held.values()
        other.call(lambda store: store.ephemeral.keep("s/tmp"))
        world.sleep(LEASE_S)
        assert held.state is HolderState.PERMANENT
        first.close()
        world.sleep(OVER_S)
        assert sweep(other) == 0
        assert there(other)

    play(story)


# crashes and lost answers


def make(store: Store) -> None:
    with store.ephemeral.create("s/new", request="r") as stream, store.writer(stream.name) as writer:
        writer.write(b"1").result()


def nameless(store: Store) -> None:
    with store.ephemeral.create(request="r"):
        pass


def join(store: Store) -> None:
    with store.ephemeral.hold("s/tmp", request="r"):
        pass


def keep(store: Store) -> None:
    store.ephemeral.keep("s/tmp", request="r")


def clear(store: Store) -> None:
    store.collect()


VERBS: tuple[Verb, ...] = (make, nameless, join, keep, clear)


def crashed(verb: Verb, faults: Faults | None, *, again: bool = False) -> list[str]:
    """Another process holds `s/tmp` and one was killed that held `s/dead`; a process does the verb under faults, and
    perhaps once more. In the end all that nobody holds is gone. Returns the calls that the verb made."""
    calls: list[str] = []

    def story(world: World) -> None:
        first = begun(world)
        dead = world.process("dead")
        dead.call(lambda store: store.ephemeral.create("s/dead"))
        dead.crash()
        world.sleep(OVER_S)
        try:
            actor = world.process("actor", faults=faults)
            opened = len(actor.gate.calls)
            if again:
                with pytest.raises(ab.errors.AppendUncertain):
                    actor.call(verb)
            actor.call(verb)
            calls.extend(actor.gate.calls[opened:])
            if faults is not None and not again:
                actor.crash()
        except ProcessCrashed:
            pass
        assert there(first)
        world.sleep(OVER_S)
        survivor = world.process("survivor")
        survivor.call(lambda store: store.collect())
        kept = not survivor.call(lambda store: store.ephemeral.is_ephemeral("s/tmp"))
        assert survivor.call(names) == ["s/tmp"]
        assert survivor.call(checked) == []
        first.close()
        assert survivor.call(names) == (["s/tmp"] if kept else [])
        assert survivor.call(marks) == 0
        assert verb is keep or not kept
        assert survivor.call(checked) == []

    play(story)
    return calls


def names(store: Store) -> list[str]:
    return [str(info.name) for info in store.streams.list(internal=True)]


def marks(store: Store) -> int:
    with store.catalog.reading() as reading:
        return len(reading.states(EPHEMERAL))


@some_or_every_crash
@pytest.mark.parametrize("verb", VERBS, ids=lambda each: each.__name__)
def test_a_crash_at_any_call_leaves_nothing_that_nobody_holds(verb: Verb, every: bool) -> None:
    opened = len(_opening())
    calls = crashed(verb, None)
    assert "writing.commit" in calls
    for number, action in crashes(calls, every=every):
        crashed(verb, FaultAt(opened + number, action))


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
@pytest.mark.parametrize("verb", [make, nameless, join, keep], ids=lambda each: each.__name__)
def test_a_lost_answer_is_found_by_asking_again(verb: Verb, action: Action) -> None:
    opened = len(_opening())
    calls = crashed(verb, None)
    commits = [number for number, name in enumerate(calls, opened + 1) if name == "writing.commit"]
    # The last commit of those that hold is the leave, of which the block says nothing.
    for number in commits if verb is keep else commits[:1]:
        crashed(verb, FaultAt(number, action), again=True)


def _opening() -> list[str]:
    """The calls of opening a store."""
    calls: list[str] = []
    play(lambda world: calls.extend(world.process("one").gate.calls))
    return calls


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_ephemeral_streams_hold_under_all_that_may_happen(seed: int) -> None:
    outcome = Simulation(seed, steps=6_000, mixes=EPHEMERAL_STREAMS).run()
    assert outcome.sound, (outcome.violations, outcome.error)
    assert outcome.done["ephemeral stream held"] > 5
