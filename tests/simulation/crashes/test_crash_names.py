"""A crash at every port call of each verb that changes names: it happened or it did not, or where it takes several
transactions, whole streams at a time; asked again with its request id it goes on and has happened once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from anabranch import limits
from anabranch.errors import AppendUncertain
from anabranch.store import Store
from anabranch.streams.ephemeral.api import UNNAMED_SCOPE
from anabranch.testing.faults import Action, FaultAt
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashed_at, crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim

Verb = Callable[[Store], object]
State = tuple[dict[str, list[bytes]], dict[str, str], list[str]]


def alias(store: Store) -> None:
    store.aliases.add("s/a", "t/also", request="r")


def unalias(store: Store) -> None:
    store.aliases.remove("t/there", request="r")


def move_scope(store: Store) -> object:
    return store.scopes.rename("s", "u", request="r")


def delete_scope(store: Store) -> None:
    store.scopes.delete("s", recursive=True, request="r")


def copy_scope(store: Store) -> object:
    return store.scopes.copy("s", "u", request="r")


def build(store: Store) -> object:
    with store.streams.builder("t/built", request="r") as parts:
        parts.add("s/a")
        parts.writer().write(b"between", key="a")
    return parts.joined


AT_ONCE: tuple[Verb, ...] = (alias, unalias, move_scope, build)
IN_PAGES: tuple[Verb, ...] = (delete_scope, copy_scope)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)


def prepare(store: Store) -> None:
    """Three streams, one of which another scope copied; an alias within the scope, and one from outside."""
    for scope in "st":
        store.scopes.create(scope)
    for name in ("s/a", "s/b", "s/c"):
        store.streams.create(name)
        with store.writer(name) as writer:
            for n in range(2):
                writer.write(f"{name} {n}".encode(), key="a").result()
    store.streams.copy("s/a", "t/copy")
    store.aliases.add("s/b", "s/also")
    store.aliases.add("s/b", "t/there")


def state(store: Store) -> State:
    """What every stream holds, what leads to it, and the scopes; but for parts that nobody sees."""
    found = {}
    for info in store.streams.list(internal=True):
        if info.name.scope == UNNAMED_SCOPE:
            continue
        with store.reader(info.name) as reader:
            found[str(info.name)] = [event.body for event in reader]
    aliases = {str(alias): str(name) for alias, name in store.aliases.of().items()}
    return found, aliases, [scope.name for scope in store.scopes.list() if scope.name != UNNAMED_SCOPE]


def play(verb: Verb, number: int, action: Action, expected: State | None) -> tuple[Process | None, State, State, State]:
    """Run the verb in a process that crashes at a call, and again in another. The process, and what was seen before,
    after the crash, and in the end."""
    actors: list[Process | None] = []
    seen: list[State] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            answer = verb(store)
            assert verb(store) == answer
            seen.append(state(store))
            assert expected is None or seen[-1] == expected, (verb.__name__, number, action)
            assert checked(store) == []
            store.runtime.tasks.sleep((limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US) / 1_000_000 + 1)
            store.ephemeral.sweep()
            assert not [info for info in store.streams.list(internal=True) if info.name.scope == UNNAMED_SCOPE]

        def run() -> None:
            first = world.process("first")
            first.call(prepare)
            seen.append(first.call(state))
            first.close()
            actors.append(crashed_at(world, number, action, verb))
            survivor = world.process("survivor")
            seen.append(survivor.call(state))
            survivor.call(survive)
            survivor.close()

        world.run(run)
    before, between, after = seen
    return actors[0], before, between, after


def partly(between: State, before: State, after: State) -> bool:
    """True if every stream is as it was or as it will be."""
    return all(name in before[0] or name in after[0] for name in between[0]) and all(
        body in (before[0].get(name), after[0].get(name)) for name, body in between[0].items()
    )


@some_or_every_crash
@pytest.mark.parametrize("verb", [*AT_ONCE, *IN_PAGES], ids=lambda each: each.__name__)
def test_a_crash_at_any_call_leaves_nothing_half_done(verb: Verb, every: bool) -> None:
    actor, before, _, after = play(verb, 0, Action.PASS, None)
    assert actor is not None and before != after
    for number, action in crashes(list(actor.gate.calls), every=every):
        crashed, _, between, _ = play(verb, number, action, after)
        if verb in AT_ONCE:
            assert between in (before, after), (verb.__name__, number, action)
        else:
            assert partly(between, before, after), (verb.__name__, number, action)
        assert crashed is None or not crashed.alive


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
@pytest.mark.parametrize("verb", [*AT_ONCE, *IN_PAGES], ids=lambda each: each.__name__)
def test_a_lost_answer_is_found_by_asking_again(verb: Verb, action: Action) -> None:
    whole, _, _, after = play(verb, 0, Action.PASS, None)
    assert whole is not None
    commits = list(whole.gate.calls).count("writing.commit")
    assert commits
    for number in range(1, commits + 1):
        with World(1, settings=SETTINGS) as world, tight_limits():

            def run(number: int = number) -> None:
                first = world.process("first")
                first.call(prepare)
                faults = FaultAt(number, action, "writing.commit")
                actor = world.process("actor", faults=faults)
                told: AbstractContextManager[object] = (
                    suppress(AppendUncertain) if verb is build else pytest.raises(AppendUncertain)
                )
                with told:  # a builder asks again by itself where it stitches
                    actor.call(verb)
                if faults.seen < number:  # a commit of those who hold the parts, behind the build
                    assert verb is build
                    return
                actor.call(verb)
                assert first.call(state) == after
                assert first.call(checked) == []

            world.run(run)
