"""A crash at every port call of each verb that changes one stream or scope, and of those that move bytes within a store by
a job: it happened or it did not; asked again with its request id it happened once.

The verbs that make streams of streams by spans, and those of other stores, names, archives and holders, have tables of their own;
`test_crash_tables.py` sees to it that all of them together name every verb there is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import AppendUncertain
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.queries import CallersQueries
from anabranch.server.steps import run_steps
from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt
from anabranch.wire.values import to_json
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashes, some_or_every_crash
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import ProcessCrashed, World
from tests.wasm_modules import IS_HOT, SCORE, heat

pytestmark = pytest.mark.sim

Verb = Callable[[Store], object]
State = tuple[object, ...]
COLUMNS = pa.schema([("k", pa.string()), ("n", pa.int64())])


def create_scope(store: Store) -> object:
    return store.scopes.create("u", tags={"x": "y"}, request="r")


def create(store: Store) -> object:
    return store.streams.create("s/new", scaling=2, retention=ab.RetainFor("1d"), request="r")


def delete(store: Store) -> None:
    store.streams.delete("s/a", request="r")


def seal(store: Store) -> None:
    store.streams.seal("s/a", request="r")


def scale(store: Store) -> object:
    return store.streams.scale("s/a", 3, request="r")


def fence(store: Store) -> None:
    store.streams.fence("s/a", 7, request="r")


def truncate(store: Store) -> None:
    cut = ab.StreamCut(store.streams.get("s/a").id, tuple(TAIL))
    store.streams.truncate("s/a", cut, request="r")


def evolve(store: Store) -> object:
    return store.streams.evolve("s/a", COLUMNS.append(pa.field("new", pa.int8())), request="r")


def add_columns(store: Store) -> object:
    return store.streams.add_columns("s/a", pa.schema([("new", pa.int8())]), request="r")


def add_check(store: Store) -> object:
    return store.streams.add_check("s/a", "small", "n < 100", request="r")


def remove_check(store: Store) -> object:
    return store.streams.remove_check("s/a", "known", request="r")


def tag(store: Store) -> object:
    return store.streams.tag("s/a", {"x": "y"}, request="r")


def move(store: Store) -> object:
    return store.streams.move("s/a", "t", request="r")


def retention(store: Store) -> object:
    return store.policies.retention("s/a", ab.RetainFor("1h"), request="r")


def scaling(store: Store) -> object:
    return store.policies.scaling("s/a", ab.ByEventRate(5), request="r")


def load(store: Store) -> object:
    return store.policies.load("s/a", ab.RejectAbove(ab.Rate(100)), request="r")


def deploy_query(store: Store) -> object:
    return store.queries.deploy("q", "third", files={"model.json": b"{}"}, request="r")


def upgrade_query(store: Store) -> object:
    return store.queries.upgrade("q", "third", request="r")


def replay_query(store: Store) -> object:
    return store.queries.replay("q", "third", request="r")


def roll_back_query(store: Store) -> object:
    return store.queries.rollback("q", request="r")


def start_query(store: Store) -> object:
    return store.queries.start("q", request="r")


def stop_query(store: Store) -> object:
    return store.queries.stop("p", request="r")


def delete_query(store: Store) -> None:
    store.queries.delete("p", request="r")


def add_module(store: Store) -> object:
    return store.modules.add("heat", heat(), signatures=[SCORE, IS_HOT], request="r")


def remove_module(store: Store) -> None:
    store.modules.remove("heat", request="r")


def save_template(store: Store) -> object:
    return store.templates.save("hot", "second", request="r")


def remove_template(store: Store) -> None:
    store.templates.remove("hot", request="r")


def run_together(store: Store) -> object:
    steps = [
        ("streams.copy", {"source": "s/a", "target": "s/new"}),
        ("streams.delete", {"name": "s/a"}),
        ("streams.rename", {"stream": "s/new", "name": "s/a"}),
        ("streams.tag", {"name": "s/b", "tags": {"x": "y"}}),
    ]
    calls = [{"call": verb, "arguments": arguments} for verb, arguments in steps]
    asked = {"steps": calls, "transaction": True, "request": "r"}
    broker = Broker(store, OpenGuard())
    results = run_steps(broker, Principal("nobody"), asked, CallersQueries(broker))
    return [to_json(each) for each in results]


# These move bytes, by a job.


def deduplicate(store: Store) -> object:
    return store.streams.stitch(["s/a", "s/b"], into="s/new", deduplicate=["n"], window=1, request="r")


def append_what_is_new(store: Store) -> object:
    return store.streams.append("s/b", "s/a", deduplicate=["n"], window=1, request="r")


def stitch_instead(store: Store) -> object:
    return store.streams.stitch(["s/a", "s/b"], into="s/a", to=store, keep_sources=False, window=1, request="r")


JOBS: tuple[Verb, ...] = (append_what_is_new, stitch_instead, deduplicate)
AT_ONCE: tuple[Verb, ...] = (
    create_scope,
    create,
    delete,
    seal,
    scale,
    fence,
    truncate,
    evolve,
    add_columns,
    add_check,
    remove_check,
    tag,
    move,
    retention,
    scaling,
    load,
    deploy_query,
    upgrade_query,
    replay_query,
    roll_back_query,
    start_query,
    stop_query,
    delete_query,
    add_module,
    remove_module,
    save_template,
    remove_template,
    run_together,
)
TAIL: list[tuple[ab.SegmentId, int]] = []


def prepare(store: Store) -> None:
    """Two scopes, a typed stream of two segments, and one with an event that is in both."""
    for scope in "st":
        store.scopes.create(scope)
    for name, first, stop in (("s/a", 0, 4), ("s/b", 3, 5)):
        checks = {"known": "n >= 0"} if name == "s/a" else {}
        store.streams.create(name, schema=COLUMNS, key="k", scaling=2 if name == "s/a" else 1, checks=checks)
        with store.writer(name) as writer:
            for n in range(first, stop):
                writer.write({"k": "abc"[n % 3], "n": n}).result()
    TAIL[:] = store.cuts.tail("s/a").offsets
    store.queries.deploy("p", "first")
    store.modules.add("heat", heat(), signatures=[SCORE])
    store.templates.save("hot", "first")
    for text in ("first", "second"):
        store.queries.deploy("q", text, start=False)


def state(store: Store, *, internal: bool = False) -> State:
    """All that can be seen of the catalog, but for what differs from run to run: ids and times."""
    streams = store.streams
    found: list[object] = [sorted((scope.name, tuple(scope.tags.items())) for scope in store.scopes.list())]
    for info in streams.list(internal=internal):
        view = streams.view(info.id)
        fences = sorted(
            (str(segment), view.logs[log].fence) for segment in view.spans if (log := view.open_log(segment))
        )
        with store.reader(info.name) as reader:
            events = sorted(str((event.pointer.segment, event.pointer.offset, event.body)) for event in reader)
        policies = tuple(
            str(policy(info.name)) for policy in (store.policies.retention, store.policies.scaling, store.policies.load)
        )
        kind = (info.sealed, info.epoch, str(info.schema.columns), str(info.schema.checks), tuple(info.tags.items()))
        found.append((str(info.name), kind, policies, fences, events))
    for query in store.queries.list():
        texts = tuple(version.text for version in store.queries.versions(query.name))
        found.append((query.name, query.state, query.wanted, query.version, texts))
    found.extend((each.module, each.number, each.functions) for each in store.modules.list())
    found.extend((each.name, each.text) for each in store.templates.list() if each.saved_at is not None)
    return tuple(found)


def tell(verb: Verb, number: int, action: Action) -> tuple[list[str], State, State, State]:
    """Run the verb in a process that crashes at its `number`th call; with no number in one that does not. Its calls, and
    what is seen before it, behind the crash, and when it was asked again."""
    calls: list[str] = []
    seen: list[State] = []
    with World(1, settings=SETTINGS) as world, tight_limits():

        def survive(store: Store) -> None:
            seen.append(state(store))
            for row in store.jobs.list():
                if not row.state.ended:
                    store.jobs.resume(row.id, take_over=True).wait()
            answer = verb(store)
            assert verb(store) == answer
            seen.append(state(store))
            assert state(store, internal=True) == seen[-1]
            for _ in range(2):
                store.collect(horizon_us=0)
                store.runtime.tasks.sleep(1)
            assert state(store) == seen[-1]
            assert checked(store) == []

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            seen.append(first.call(state))
            first.close()
            actor = world.process("actor")
            opened = len(actor.gate.calls)
            if number:
                actor.gate.faults = FaultAt(opened + number, action)
                with pytest.raises(ProcessCrashed):
                    actor.call(verb)
            else:
                actor.call(verb)
                calls.extend(actor.gate.calls[opened:])
                actor.close()
            survivor = world.process("survivor")
            survivor.call(survive)
            survivor.close()

        world.run(play)
    before, between, after = seen
    return calls, before, between, after


@cache
def undisturbed(verb: Verb) -> tuple[list[str], State, State]:
    """The verb's calls, and what is seen before and after it. One verb's tests share it."""
    calls, before, _, after = tell(verb, 0, Action.PASS)
    return calls, before, after


@some_or_every_crash
@pytest.mark.parametrize("verb", AT_ONCE, ids=lambda each: each.__name__)
def test_a_crash_at_any_call_of_a_change_leaves_all_or_nothing(verb: Verb, every: bool) -> None:
    calls, before, whole = undisturbed(verb)
    assert before != whole
    (committed,) = [number for number, name in enumerate(calls, 1) if name == "writing.commit"]
    for number, action in crashes(calls, every=every):
        _, _, between, after = tell(verb, number, action)
        done = number > committed or (number == committed and action is Action.CRASH_AFTER)
        assert between == (whole if done else before), (number, calls[number - 1], action)
        assert after == whole, (number, calls[number - 1], action)


@some_or_every_crash
@pytest.mark.parametrize("verb", JOBS, ids=lambda each: each.__name__)
def test_a_crash_of_a_job_at_any_call_is_gone_on_from(verb: Verb, every: bool) -> None:
    calls, before, whole = undisturbed(verb)
    assert before != whole
    assert calls.count("writing.commit") > 3
    for number, action in crashes(calls, every=every):
        _, _, between, after = tell(verb, number, action)
        assert between in (before, whole), (number, calls[number - 1], action)
        assert after == whole, (number, calls[number - 1], action)


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
@pytest.mark.parametrize("verb", AT_ONCE, ids=lambda each: each.__name__)
def test_a_lost_answer_to_a_change_is_found_by_asking_again(verb: Verb, action: Action) -> None:
    calls, _, whole = undisturbed(verb)
    (number,) = (number for number, name in enumerate(calls, 1) if name == "writing.commit")
    with World(1, settings=SETTINGS) as world, tight_limits():

        def play() -> None:
            first = world.process("first")
            first.call(prepare)
            actor = world.process("actor")
            actor.gate.faults = FaultAt(len(actor.gate.calls) + number, action)
            with pytest.raises(AppendUncertain):
                actor.call(verb)
            actor.call(verb)
            assert first.call(state) == whole

        world.run(play)


def pause(store: Store) -> None:
    store.jobs.copy(store, "s/a", "s/new", follow=True, window=1, request="r").pause()


def cancel(store: Store) -> None:
    store.jobs.copy(store, "s/a", "s/new", follow=True, window=1, request="r").cancel()


@some_or_every_crash
@pytest.mark.parametrize("verb", [pause, cancel], ids=lambda each: each.__name__)
def test_a_crash_while_a_job_is_stopped_leaves_one_that_can_be_cancelled(verb: Verb, every: bool) -> None:
    """What it staged is gone then; what it has made is whole."""

    def run(number: int, action: Action) -> list[str]:
        calls: list[str] = []
        with World(1, settings=SETTINGS) as world, tight_limits():

            def survive(store: Store) -> None:
                for row in store.jobs.list():
                    if not row.state.ended:
                        store.jobs.resume(row.id, take_over=True).cancel()
                    assert store.jobs.get(row.id).row().state.ended
                events = {
                    info.name.name: [str(event.body) for event in store.reader(info.name)]
                    for info in store.streams.list(internal=True)
                }
                assert set(events) <= {"a", "b", "new"}, (number, action)
                assert events.get("new", events["a"]) == events["a"]
                assert checked(store) == []

            def play() -> None:
                first = world.process("first")
                first.call(prepare)
                first.close()
                actor = world.process("actor")
                opened = len(actor.gate.calls)
                if number:
                    actor.gate.faults = FaultAt(opened + number, action)
                with suppress(ProcessCrashed):
                    actor.call(verb)
                    calls.extend(actor.gate.calls[opened:])
                    actor.crash()
                survivor = world.process("survivor")
                survivor.call(survive)
                survivor.close()

            world.run(play)
        return calls

    calls = run(0, Action.PASS)
    assert calls.count("writing.commit") > 2
    for number, action in crashes(calls, every=every):
        run(number, action)
