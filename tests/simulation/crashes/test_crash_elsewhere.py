"""A crash at every port call of each verb that moves bytes from one store to another, the calls of either store among them:
whoever goes on with its job makes what an undisturbed run makes, and nothing is lost where the sources are given up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from anabranch import limits
from anabranch.errors import AppendUncertain
from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.sources import InStore
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, ProcessCrashed, World

pytestmark = pytest.mark.sim

Verb = Callable[[Store, Store], object]
State = dict[str, list[tuple[str, int, bytes]]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOB_RANGE_BYTES", 800)
    monkeypatch.setattr(limits, "JOB_BLOB_BYTES", 400)
    monkeypatch.setattr(limits, "JOB_BUNDLE_RANGES_MAX", 2)


def copy(one: Store, other: Store) -> object:
    return one.streams.copy("s/a", "t/new", to=other, window=1, request="r")


def append(one: Store, other: Store) -> object:
    return one.streams.append("s/a", "t/c", to=other, window=1, request="r")


def stitch(one: Store, other: Store) -> object:
    return one.streams.stitch(["s/b", "s/a"], into="t/new", to=other, keep_sources=False, window=1, request="r")


def copy_scope(one: Store, other: Store) -> object:
    return sorted(str(each.source) for each in one.scopes.copy("s", "t", to=other, window=1, request="r"))


def follow(one: Store, other: Store) -> None:
    """While it follows, more is written, and the source is scaled."""
    job = other.jobs.copy(one, "s/a", "t/new", follow=Until(idle_s=0.5), window=1, request="r")
    with one.writer("s/a") as writer:
        writer.write(b"more", key="a").result()
        one.streams.scale("s/a", 2)
        writer.write(b"and more", key="b").result()
    job.wait()


def stitch_of_both(one: Store, other: Store) -> object:
    first, last = (InStore(one, name) for name in ("s/b", "s/a"))
    return other.streams.stitch([first, "t/c", last], into="t/new", keep_sources=False, window=1, request="r")


VERBS: tuple[Verb, ...] = (copy, append, stitch, stitch_of_both, copy_scope, follow)


def prepare(one: Store, other: Store) -> None:
    """Two sources, one of two epochs, of inlined events, blobs and a file; and a stream to append to."""
    one.scopes.create("s")
    for name, segments in (("s/a", 2), ("s/b", 1)):
        one.streams.create(name, scaling=segments)
        with one.writer(name) as writer:
            for n in range(3):
                writer.write(b"%d" % n + b" " * 300 * (n % 2), key="abc"[n]).result()
    one.compact("s/a", force=True)
    one.streams.scale("s/a", 1)
    with one.writer("s/a") as writer:
        writer.write(b"3" + b" " * 300, key="a").result()
    other.scopes.create("t")
    other.streams.create("t/c")
    with other.writer("t/c") as writer:
        writer.write(b"there", key="a").result()


def state(store: Store) -> State:
    """What every stream holds, the internal ones too."""
    found = {}
    for info in store.streams.list(internal=True):
        with store.reader(info.name) as reader:
            found[str(info.name)] = sorted((str(e.pointer.segment), e.pointer.offset, e.body) for e in reader)
    return found


@dataclass
class Seen:
    """What the two stores hold before a verb, and after it."""

    before: tuple[State, State] | None = None
    whole: tuple[State, State] | None = None


def judge(verb: Verb, seen: Seen, one: Store, other: Store) -> None:
    """Whatever was left: go on, ask again, and all is as if nothing had happened."""
    assert seen.before is not None
    source, target = state(one), state(other)
    made = set(target) - set(seen.before[1]) - {name for name in target if name.rpartition("/")[2].startswith("_")}
    if not {"s/a", "s/b"} <= set(source):
        assert verb in (stitch, stitch_of_both), "a source is gone"
        assert set(source) == set(), "one of two sources is gone"
    if set(source) != set(seen.before[0]) or "t/c" not in target:
        assert made == {"t/new"}, "sources are gone, and what was made of them is not there"
    for store in (one, other):
        store.collect(horizon_us=0)  # what a job holds is spared
        assert checked(store) == []
    for row in other.jobs.list():
        if not row.state.ended:
            other.jobs.resume(row.id, source=one, take_over=True).wait()
    if verb is not follow:
        answer = verb(one, other)
        assert verb(one, other) == answer
    assert len(other.jobs.list()) == 1 or verb is follow
    if verb is follow:  # what was written meanwhile depends on when it crashed
        assert not other.jobs.list() or state(other)["t/new"] == state(one)["s/a"]
    elif seen.whole is not None:
        assert (state(one), state(other)) == seen.whole
    for store in (one, other):
        store.collect(horizon_us=0)
        assert checked(store) == []


def tell(verb: Verb, number: int, action: Action, seen: Seen) -> list[str]:
    """Run the verb in a process that suffers a fault at its `number`th call, and judge. With no number the calls of one
    that suffers none, and `seen` is filled in."""
    calls: list[str] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def within(process: Process, act: Callable[[Store, Store], None]) -> None:
            def work(one: Store) -> None:
                other = process.beside("other")
                act(one, other)
                other.close()

            process.call(work)

        def act(process: Process) -> None:
            def work(one: Store) -> None:
                other = process.beside("other")
                opened = len(process.gate.calls)
                if number:
                    process.gate.faults = FaultAt(opened + number, action)
                with suppress(*((AppendUncertain,) if "uncertain" in action.value else ())):
                    verb(one, other)
                calls.extend(process.gate.calls[opened:])

            if "crash" in action.value:
                with pytest.raises(ProcessCrashed):
                    process.call(work)
            else:
                process.call(work)
                process.crash()

        def look(one: Store, other: Store) -> None:
            found = state(one), state(other)
            if seen.before is None:
                seen.before = found
            elif seen.whole is None and not number:
                seen.whole = found

        def play() -> None:
            first = world.process("first")
            within(first, prepare)
            within(first, look)
            first.close()
            act(world.process("actor"))
            survivor = world.process("survivor")
            within(survivor, look)
            within(survivor, lambda one, other: judge(verb, seen, one, other))
            survivor.close()

        world.run(play)
    return calls


@some_or_every_crash
@pytest.mark.parametrize("verb", VERBS, ids=lambda each: each.__name__)
def test_a_crash_at_any_call_of_either_store_is_gone_on_from(verb: Verb, every: bool) -> None:
    seen = Seen()
    calls = tell(verb, 0, Action.PASS, seen)
    assert seen.before != seen.whole
    for number, action in crashes(calls, every=every):
        tell(verb, number, action, seen)


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
def test_a_lost_answer_while_sources_are_given_up_loses_nothing(action: Action) -> None:
    seen = Seen()
    for number, name in enumerate(tell(stitch, 0, Action.PASS, seen), 1):
        if name == "writing.commit":
            tell(stitch, number, action, seen)
