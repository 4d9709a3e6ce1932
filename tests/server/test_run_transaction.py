"""Runs of several verbs that are one transaction: all or nothing, once for a request id, on every catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    Conflict,
    InvalidArgument,
    PermissionDenied,
    RequestMismatch,
    ScopeExists,
    StreamExists,
    StreamNotFound,
    TooLarge,
)
from anabranch.model.stream import Scope
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.queries import CallersQueries
from anabranch.server.steps import run_steps
from anabranch.store import Store
from anabranch.wire.values import to_json
from anabranch.wire.verbs import VERBS
from anabranch.wire.verbs.transactional import TOGETHER
from tests.store.helpers import ANYWHERE, bodies_of, store_at
from tests.waiting import PATIENCE_S, until
from tests.wasm_modules import SCORE, heat

NOBODY = Principal("nobody")
COLUMNS = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        made.streams.create("s/a")
        made.streams.create("s/b")
        made.streams.create("s/typed", schema=COLUMNS, key="k")
        for name, number in (("s/a", 3), ("s/b", 2)):
            with made.writer(name) as writer:
                for n in range(number):
                    writer.write(b"%d" % n)
        yield made


def step(verb: str, called: str | None = None, /, **arguments: Any) -> dict[str, Any]:
    sent = {name: each if _is_ref(each) else to_json(each) for name, each in arguments.items()}
    return {"call": verb, "arguments": sent, **({} if called is None else {"name": called})}


def ref(path: str) -> dict[str, str]:
    return {"$ref": path}


def _is_ref(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"$ref"}


def run(
    store: Store, *steps: Any, request: str | None = None, guard: OpenGuard | None = None, transaction: bool = True
) -> list[Any]:
    arguments = {"steps": list(steps), "transaction": transaction, **({} if request is None else {"request": request})}
    broker = Broker(store, guard or OpenGuard())
    return run_steps(broker, NOBODY, arguments, CallersQueries(broker))


def names(store: Store) -> list[str]:
    return [str(info.name) for info in store.streams.list()]


def test_later_steps_read_what_earlier_ones_have_changed(store: Store) -> None:
    results = run(
        store,
        step("scopes.create", name="t"),
        step("streams.copy", source="s/a", target="t/copy"),
        step("streams.get", "made", name="t/copy"),
        step("streams.append", source="s/b", onto=ref("made.id")),
        step("cuts.distance", name="t/copy"),
        step("streams.rename", stream=ref("made.id"), name="t/all"),
        step("streams.delete", name="s/b"),
        step("streams.list", scope="s"),
        step("streams.exists", name="s/b"),
    )
    assert results[4].events == 5
    assert [str(info.name) for info in results[7]] == ["s/a", "s/typed"] and results[8] is False
    assert names(store) == ["s/a", "s/typed", "t/all"]
    assert bodies_of(store, "t/all") == [b"0", b"1", b"2", b"0", b"1"]
    assert list(store.check()) == []


def test_a_step_that_fails_leaves_nothing_done(store: Store) -> None:
    before = names(store)
    with pytest.raises(StreamNotFound, match=r"step 4, streams\.seal: stream 's/none' not found") as failed:
        run(
            store,
            step("scopes.create", name="t"),
            step("streams.stitch", sources=["s/a", "s/b"], into="t/both", keep_sources=False),
            step("streams.tag", name="s/typed", tags={"x": "y"}),
            step("streams.seal", name="s/none"),
        )
    assert vars(failed.value)["step"] == 4
    with pytest.raises(StreamExists):
        run(store, step("streams.delete", name="s/a"), step("streams.create", name="s/b"))
    with pytest.raises(ScopeExists):
        run(store, step("streams.delete", name="s/a"), step("scopes.create", name="s"))
    assert names(store) == before and store.streams.get("s/typed").tags == {}
    assert [scope.name for scope in store.scopes.list()] == ["s"]
    assert bodies_of(store, "s/a") == [b"0", b"1", b"2"]
    assert list(store.check()) == []


def test_nobody_else_sees_a_part_of_it(store: Store) -> None:
    """Two streams swap their names, again and again: whoever looks finds both."""
    seen: list[list[str]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.append(names(store))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        until(lambda: bool(seen), PATIENCE_S)
        for _ in range(20):
            run(
                store,
                step("streams.rename", stream="s/a", name="s/c"),
                step("streams.rename", stream="s/b", name="s/a"),
                step("streams.rename", stream="s/c", name="s/b"),
            )
    finally:
        ended.set()
        looking.join()
    assert {tuple(each) for each in seen} == {("s/a", "s/b", "s/typed")}


def test_events_take_part_by_transactions(store: Store) -> None:
    """What was written by a transaction appears with the other changes, or stays invisible."""
    steps = (
        step("cuts.tail", "tail", name="s/a"),
        step("streams.truncate", name="s/a", cut=ref("tail")),
    )
    transaction = store.transaction()
    transaction.writer("s/a").write(b"new")
    transaction.flush()
    commit = step("transactions.commit_together", idents=[transaction.id], stream="s/a", request="commit")
    with pytest.raises(StreamNotFound):
        run(store, *steps, commit, step("streams.get", name="s/none"))
    assert bodies_of(store, "s/a") == [b"0", b"1", b"2"]
    results = run(store, *steps, commit, step("cuts.distance", name="s/a"), request="r")
    assert results[3].events == 1
    assert bodies_of(store, "s/a") == [b"new"]
    assert run(store, *steps, commit, step("cuts.distance", name="s/a"), request="r") == results
    assert bodies_of(store, "s/a") == [b"new"]


def test_appends_go_on_beside_it_and_after_it(store: Store) -> None:
    """A step that looks at a stream holds up its appends until the end, so what it has read stays true."""
    with store.writer("s/a") as writer:
        stop = threading.Event()
        written = 0

        def write() -> None:
            nonlocal written
            while not stop.is_set():
                writer.write(b"x").result()
                written += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(10):
                before, after = run(
                    store,
                    step("cuts.tail", "before", name="s/a"),
                    step("streams.tag", name="s/b", tags={"seen": "yes"}),
                    step("cuts.tail", "after", name="s/a"),
                )[::2]
                assert before == after
        finally:
            stop.set()
            thread.join()
    assert store.cuts.distance("s/a").events == 3 + written


def test_a_repetition_does_nothing_and_returns_the_same(store: Store) -> None:
    steps = (
        step("cuts.tail", "tail", name="s/a"),
        step("streams.truncate", name="s/a", cut=ref("tail")),
        step("streams.rename", stream="s/b", name="s/c"),
        step("streams.create", name="s/b"),
    )
    first = run(store, *steps, request="once")
    with store.writer("s/a") as writer:
        writer.write(b"later")
    assert run(store, *steps, request="once") == first
    assert names(store) == ["s/a", "s/b", "s/c", "s/typed"]
    assert bodies_of(store, "s/a") == [b"later"], "later events are not truncated"
    with pytest.raises(RequestMismatch):
        run(store, *steps[:3], request="once")
    with pytest.raises(RequestMismatch):
        run(store, step("streams.tag", name="s/a", tags={"x": "y"}), request="failed") and run(
            store, step("streams.tag", name="s/a", tags={"x": "z"}), request="failed"
        )


def test_a_run_that_failed_may_be_tried_again_under_its_request_id(store: Store) -> None:
    steps = step("streams.create", name="t/new"), step("streams.seal", name="t/new")
    with pytest.raises(AnabranchError):
        run(store, *steps, request="r")
    store.scopes.create("t")
    run(store, *steps, request="r")
    assert store.streams.get("t/new").sealed


REFUSED = [
    (step("jobs.copy", source={"$type": "ThisStore"}, stream="s/a", target="s/c"), "jobs.copy can't be part of a"),
    (step("streams.replace", stream="s/a", between=[0, 1]), "streams.replace can't be part of a transaction, because"),
    (step("streams.copy", source="s/a", target="s/c", where="true"), "with the argument 'where'"),
    (step("streams.copy", source="s/a", target="s/c", where=ref("first")), "with the argument 'where'"),
    (step("streams.append", source="s/a", onto="s/b", deduplicate=["n"]), "with the argument 'deduplicate'"),
    (step("streams.truncate", name="s/a", by="groups"), "with the argument 'by'"),
    (step("cuts.at", name="s/a", time=0), "cuts.at can't be part of a transaction"),
    (step("collect"), "collect can't be part of a transaction"),
    (step("queries.start", name="q"), "queries.start can't be part of a transaction"),
]


@pytest.mark.parametrize(("bad", "said"), REFUSED, ids=lambda each: each["call"] if isinstance(each, dict) else "")
def test_what_can_not_take_part_is_refused_before_anything_is_done(tmp_path: Path, bad: Any, said: str) -> None:
    with store_at("memory", tmp_path) as store:
        store.streams.create("s/a")
        with pytest.raises(InvalidArgument, match="step 2: ") as refused:
            run(store, step("scopes.list", "first"), bad)
        assert said in str(refused.value)
        with pytest.raises(InvalidArgument, match="step 2: "):
            run(store, step("scopes.create", "first", name="t"), bad)
        assert [scope.name for scope in store.scopes.list()] == ["s"]


class _Only(OpenGuard):
    """Allows `allowed` alone, and keeps what is recorded."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.recorded: list[tuple[str, str | None, str | None]] = []

    def authorize(self, principal: Principal, operation: str, resource: str | None, *, verb: str = "") -> None:
        if operation not in self._allowed:
            raise PermissionDenied(f"may not {operation} {resource}")

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        self.recorded.append((verb, resource, None if error is None else type(error).__name__))


def test_each_step_needs_its_own_rights_on_what_it_finds(store: Store) -> None:
    guard = _Only("create", "read")
    with pytest.raises(PermissionDenied, match=r"step 3, streams\.delete: may not manage s/a"):
        run(
            store,
            step("streams.create", name="s/new"),
            step("streams.get", "old", name="s/a"),
            step("streams.delete", name=ref("old.id")),
            guard=guard,
        )
    assert not store.streams.exists("s/new") and store.streams.exists("s/a")
    steps = (
        step("streams.create", "made", name="s/new"),
        step("streams.rename", stream=ref("made.id"), name="s/renamed"),
        step("streams.tag", name="s/new", tags={}),
    )
    with pytest.raises(PermissionDenied, match=r"step 2, streams\.rename: may not manage s/new"):
        run(store, *steps, guard=guard)


def test_a_repetition_needs_the_rights_of_all_steps(store: Store) -> None:
    steps = step("streams.get", "a", name="s/a"), step("streams.tag", name=ref("a.id"), tags={"x": "y"})
    run(store, *steps, request="once")
    for allowed in (("read",), ("manage",)):
        with pytest.raises(PermissionDenied):
            run(store, *steps, request="once", guard=_Only(*allowed))
    assert run(store, *steps, request="once", guard=_Only("read", "manage"))


def test_calls_are_recorded_with_how_the_transaction_ended(store: Store) -> None:
    guard = _Only("create", "read", "manage")
    run(store, step("streams.create", name="s/new"), step("streams.tag", name="s/new", tags={"x": "y"}), guard=guard)
    assert guard.recorded == [("streams.create", "s/new", None), ("streams.tag", "s/new", None)]
    guard.recorded.clear()
    with pytest.raises(StreamExists):
        run(store, step("streams.tag", name="s/a", tags={}), step("streams.create", name="s/new"), guard=guard)
    assert guard.recorded == [("streams.tag", "s/a", "StreamExists"), ("streams.create", "s/new", "StreamExists")]


def test_it_has_a_time_and_an_answer_of_limited_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create = step("scopes.create", name="t")
    with monkeypatch.context() as patched:
        patched.setattr(limits, "RUN_TRANSACTION_KEPT_BYTES_MAX", 200)
        with pytest.raises(TooLarge, match=r"step 2, streams\.list"):
            run(store, create, step("streams.list"), request="r")
        patched.setattr(limits, "RUN_TRANSACTION_S_MAX", 0.0)
        with pytest.raises(TimeoutError, match=r"step 1, scopes\.create: the run was stopped before this step"):
            run(store, create)
    assert [scope.name for scope in store.scopes.list()] == ["s"]
    run(store, create, step("streams.list"), request="r")


def test_a_verb_that_hides_the_error_of_a_change_does_not_commit_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a change can't be undone alone, so nothing of the run stays."""

    def tag(self: object, name: str, tags: dict[str, str], *, request: str | None = None) -> None:
        changes: Any = vars(self)["_changes"]

        def half(txn: Any, now: Any) -> dict[str, Any]:
            txn.put_scope(Scope("half", {}, now))
            raise Conflict("something else was there")

        with pytest.raises(Conflict):
            changes.apply("half", request, half)

    monkeypatch.setattr(type(store.streams), "tag", tag)
    with pytest.raises(Conflict, match="an earlier change of the transaction failed: something else was there"):
        run(store, step("scopes.create", name="t"), step("streams.tag", name="s/a", tags={}))
    with pytest.raises(Conflict, match=r"step 2, scopes\.create: an earlier change"):
        run(store, step("streams.tag", name="s/a", tags={}), step("scopes.create", name="t"))
    assert [scope.name for scope in store.scopes.list()] == ["s"]


def all_verbs(store: Store) -> list[dict[str, Any]]:
    """Each verb that can take part, once."""
    policy = ab.RetainFor("1d")
    transaction = store.transaction()
    transaction.writer("s/b").write(b"x")
    transaction.flush()
    store.producer("s/b", "p").close()
    held = store.ephemeral.create("s/held")
    assert held.name
    return [
        step("scopes.create", name="t"),
        step("scopes.get", name="t"),
        step("scopes.list"),
        step("scopes.rename", scope="t", to="u"),
        step("scopes.copy", source="u", target="v"),
        step("scopes.delete", name="v"),
        step("streams.create", "made", name="u/made", schema=COLUMNS, key="k", retention=policy),
        step("streams.add_check", name="u/made", check="small", condition="n < 5", violations="u/bad"),
        step("streams.remove_check", name="u/made", check="small"),
        step("streams.add_columns", name="u/made", columns={"m": "int64"}),
        step("streams.evolve", name="u/made", schema={"k": "string", "n": "int64", "m": "int64", "o": "int64"}),
        step("streams.copy", source="s/a", target="u/copy"),
        step("streams.append", source="s/b", onto="u/copy"),
        step("streams.stitch", sources=["u/copy", "s/a"], into="u/all"),
        step("streams.exists", name="u/all"),
        step("streams.find", name="u/all"),
        step("streams.get", "all", name="u/all"),
        step("streams.list", scope="u"),
        step("streams.view", name="u/all"),
        step("streams.fence", name="u/all", fence=3),
        step("streams.scale", name="u/all", segments=2),
        step("streams.tag", name="u/all", tags={"x": "y"}),
        step("streams.move", stream="u/bad", scope="s"),
        step("streams.rename", stream="u/made", name="u/typed"),
        step("aliases.add", stream="u/all", name="u/alias"),
        step("aliases.list"),
        step("aliases.of", stream="u/all"),
        step("aliases.remove", name="u/alias"),
        step("cuts.head", "head", name="u/all"),
        step("cuts.tail", "tail", name="u/all"),
        step("cuts.after", "one", name="u/all", cut=ref("head"), events=1),
        step("cuts.between", name="u/all"),
        step("cuts.distance", name="u/all"),
        step("cuts.compare", name="u/all", first=ref("head"), second=ref("one")),
        step("cuts.contains", part="u/all", place=ref("one")),
        step("streams.truncate", name="u/all", cut=ref("one")),
        step("streams.seal", name="u/all"),
        step("lineage.diff", first="u/all", second="s/a"),
        step("lineage.origins", name="u/all"),
        step("policies.load", name="s/typed", policy=ab.RejectAbove(ab.Rate(100))),
        step("policies.retention", name="s/typed", policy=policy),
        step("policies.scaling", name="s/typed", policy=ab.ByEventRate(5)),
        step("ephemeral.holders", name="s/held"),
        step("ephemeral.is_ephemeral", name="s/held"),
        step("ephemeral.keep", name="s/held"),
        step("producers.list", stream="s/b"),
        step("producers.drop", stream="s/b", name="p"),
        step("subscribers.list"),
        step("watermarks.idle", stream="s/a", idle_s=2.0),
        step("watermarks.get", stream="s/a"),
        step("watermarks.end", stream=store.streams.get("s/a").id, writer="w"),
        step("group.open", "group", group="s/g", streams=["s/a"]),
        step("group.readers", group="s/g"),
        step("group.streams", group="s/g"),
        step("group.checkpoints", group="s/g"),
        step("group.cut", group="s/g"),
        step("group.reset", group="s/g", to="tail", streams=["s/a", "s/b"]),
        step("group.rewind", group="s/g"),
        step("group.open", group="s/gone", streams=["s/a"]),
        step("group.delete", group="s/gone"),
        step("groups.list"),
        step("revisioned.open", "state", name="s/_mine"),
        step("revisioned.append", stream=ref("state"), value=b"1", writer="w", number=0),
        step("revisioned.append", stream=ref("state"), value=b"2", writer="w", number=1, expected=1),
        step("revisioned.last", "last", stream=ref("state")),
        step("revisioned.latest", stream=ref("state")),
        step("revisioned.oldest", stream=ref("state")),
        step("revisioned.read", stream=ref("state")),
        step("revisioned.truncate", stream=ref("state"), revision=1),
        step("transactions.list"),
        step("transactions.commit_together", idents=[transaction.id], stream="s/b", request="t"),
        step("modules.add", name="heat", code=heat(), signatures=[SCORE]),
        step("modules.get", name="heat"),
        step("modules.code", name="heat"),
        step("modules.list"),
        step("modules.versions", name="heat"),
        step("modules.remove", name="heat"),
        step("templates.save", name="hot", text="CREATE STREAM s.x AS SELECT * FROM STREAM s.a"),
        step("templates.get", name="hot"),
        step("templates.list"),
        step("templates.remove", name="hot"),
        step("streams.delete", name="u/copy"),
    ]


def test_every_verb_that_can_take_part_does(store: Store) -> None:
    steps = all_verbs(store)
    untried = {"group.reader_offline"}  # it needs a reader
    assert {each["call"] for each in steps} == set(TOGETHER) - untried
    before = names(store)
    with pytest.raises(StreamNotFound):
        run(store, *steps, step("streams.get", name="s/none"))
    assert names(store) == before and store.streams.get("s/typed").tags == {}
    assert store.groups.list() == [] and not store.shared._streams.exists("s/_mine")
    results = run(store, *steps, request="all")
    by_verb = {each["call"]: result for each, result in zip(steps, results, strict=True)}
    assert by_verb["group.cut"].keys() == {"s/a"} and by_verb["groups.list"] == ["s/g"]
    assert by_verb["revisioned.last"] == (2, b"2") or by_verb["revisioned.last"] == [2, b"2"]
    assert by_verb["lineage.diff"].shared
    assert store.groups.open("s/g").streams == ["s/a", "s/b"]
    revisioned = store.shared.revisioned("s/_mine")
    assert [(entry.revision, entry.value) for entry in revisioned.read(1)] == [(2, b"2")]
    assert revisioned.append(b"3", expected=2) == 3
    assert bodies_of(store, "s/b") == [b"0", b"1", b"x"]
    assert store.policies.retention("u/typed") == ab.RetainFor("1d")
    assert not store.ephemeral.is_ephemeral("s/held")
    assert list(store.check()) == []
    assert run(store, *steps, request="all") == results


def test_the_table_names_verbs_and_their_arguments() -> None:
    for name, without in TOGETHER.items():
        assert without <= set(VERBS[name].parameters), name


STREAMS = st.sampled_from(["s/a", "s/b", "s/c", "s/d"])
STEPS = st.lists(
    st.one_of(
        st.builds(lambda name: step("streams.create", name=name), STREAMS),
        st.builds(lambda name: step("streams.delete", name=name), STREAMS),
        st.builds(lambda name: step("streams.seal", name=name), STREAMS),
        st.builds(lambda name, n: step("streams.scale", name=name, segments=n), STREAMS, st.integers(1, 3)),
        st.builds(lambda name: step("streams.truncate", name=name, cut="tail"), STREAMS),
        st.builds(lambda one, two: step("streams.rename", stream=one, name=two), STREAMS, STREAMS),
        st.builds(lambda one, two: step("streams.copy", source=one, target=two), STREAMS, STREAMS),
        st.builds(lambda one, two: step("streams.append", source=one, onto=two), STREAMS, STREAMS),
        st.builds(lambda ones, two: step("streams.stitch", sources=ones, into=two), st.lists(STREAMS, min_size=1, max_size=3), STREAMS),
        st.builds(lambda one, two: step("aliases.add", stream=one, name=two), STREAMS, STREAMS),
        st.builds(lambda name: step("cuts.distance", name=name), STREAMS),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def seen_of(store: Store) -> list[Any]:
    return [
        (str(info.name), info.sealed, info.epoch, len(store.streams.view(info.id).current), bodies_of(store, str(info.name)))
        for info in store.streams.list()
    ] + [sorted(str(name) for name in store.aliases.of())]  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_a_transaction_does_what_the_steps_do_one_after_another_or_nothing(steps: list[Any]) -> None:
    with ab.connect("memory://") as together, ab.connect("memory://") as alone:
        for store in (together, alone):
            store.scopes.create("s")
            for name in ("s/a", "s/b"):
                store.streams.create(name)
                with store.writer(name) as writer:
                    writer.write(name.encode()).result()
        before = seen_of(together)
        failed: AnabranchError | None = None
        try:
            run(alone, *steps, transaction=False)
        except AnabranchError as exc:
            failed = exc
        if failed is None:
            run(together, *steps)
            assert seen_of(together) == seen_of(alone)
        else:
            with pytest.raises(type(failed)) as raised:
                run(together, *steps)
            assert vars(raised.value)["step"] == vars(failed)["step"]
            assert seen_of(together) == before
        assert list(together.check()) == []
