"""A crash at every port call of each verb that makes streams of streams: it happened or it did not, nothing in between;
asked again with its request id it happened once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

import anabranch as ab
from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashed_at, crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim

Verb = Callable[[Store], object]
State = dict[str, list[bytes]]


def copy(store: Store) -> object:
    return store.streams.copy("s/a", "t/copy", request="r")


def append(store: Store) -> object:
    return store.streams.append("s/a", "s/b", request="r")


def stitch(store: Store) -> object:
    return store.streams.stitch(["s/b", "s/a", "s/b"], into="s/b", keep_sources=False, request="r")


def rename(store: Store) -> object:
    return store.streams.rename("s/a", "t/a", request="r").id


def replace(store: Store) -> object:
    return store.streams.replace("s/a", between=(0, 1 << 52), with_="s/b", by="append", request="r")


VERBS: tuple[Verb, ...] = (copy, append, stitch, rename, replace)
INSISTENT = (replace,)  # some of its transactions ask again by themselves where an answer is lost


def prepare(store: Store) -> None:
    """Two streams of several epochs, with inlined commits and blobs, and a truncated head."""
    store.scopes.create("s")
    store.scopes.create("t")
    for name, segments in (("s/a", 2), ("s/b", 1)):
        store.streams.create(name, scaling=segments)
        with store.writer(name) as writer:
            for n in range(4):
                writer.write(f"{name} {n}".encode() + b" " * 300 * (n % 2), key="abc"[n % 3]).result()
            store.streams.truncate(name, store.cuts.tail(name))
            store.streams.scale(name, 3 - segments)
            for n in range(4, 8):
                writer.write(f"{name} {n}".encode() + b" " * 300 * (n % 2), key="abc"[n % 3]).result()


def state(store: Store) -> State:
    """What every stream holds."""
    found = {}
    for info in store.streams.list():
        with store.reader(info.name) as reader:
            found[str(info.name)] = sorted(event.body for event in reader)
    return found


def tell(verb: Verb, number: int, action: Action, allowed: list[State]) -> Process | None:
    """Prepare, run the verb in a process that crashes at a call, and judge: what is seen then is one of `allowed`, and
    the verb asked again leads to the last of them. With no crash the two are found out."""
    actors: list[Process | None] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            seen = state(store)
            assert not allowed or seen in allowed, (verb.__name__, number, action)
            answer = verb(store)
            assert verb(store) == answer
            assert not allowed or state(store) == allowed[-1]
            assert checked(store) == []
            for _ in range(3):
                store.compact(force=True)
                store.collect()
                store.runtime.tasks.sleep(1)
            assert not allowed or state(store) == allowed[-1]
            assert checked(store) == []
            for name in [*state(store)]:
                with store.writer(name) as writer:
                    writer.write(b"late", key="a").result()

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            before = first.call(state)
            first.close()
            actors.append(crashed_at(world, number, action, verb))
            survivor = world.process("survivor")
            if action is Action.PASS:
                allowed.extend([before, survivor.call(state)])
            survivor.call(survive)
            survivor.close()

        world.run(play)
    return actors[0]


@some_or_every_crash
@pytest.mark.parametrize("verb", VERBS, ids=lambda each: each.__name__)
def test_a_crash_at_any_call_leaves_all_or_nothing(verb: Verb, every: bool) -> None:
    allowed: list[State] = []
    actor = tell(verb, 0, Action.PASS, allowed)
    assert actor is not None
    assert allowed[0] != allowed[-1]
    calls = list(actor.gate.calls)
    for number, action in crashes(calls, every=every):
        crashed = tell(verb, number, action, allowed)
        assert crashed is None or not crashed.alive


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
@pytest.mark.parametrize("verb", VERBS, ids=lambda each: each.__name__)
def test_a_lost_answer_is_found_by_asking_again(verb: Verb, action: Action) -> None:
    allowed: list[State] = []
    whole = tell(verb, 0, Action.PASS, allowed)
    assert whole is not None
    commits = [number for number, name in enumerate(whole.gate.calls, 1) if name == "writing.commit"]
    assert commits
    for number in commits:
        uncertain(verb, number, action, allowed)


def uncertain(verb: Verb, number: int, action: Action, allowed: list[State]) -> None:
    with World(1, settings=SETTINGS) as world, tight_limits():

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            actor = world.process("actor", faults=FaultAt(number, action))
            with suppress(ab.errors.AppendUncertain) if verb in INSISTENT else pytest.raises(ab.errors.AppendUncertain):
                actor.call(verb)
            actor.call(verb)
            assert first.call(state) == allowed[-1]
            assert first.call(checked) == []

        world.run(play)
