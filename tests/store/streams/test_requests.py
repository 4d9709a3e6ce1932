"""Every change of the stream manager, asked for again under its request id: it does nothing and tells its first result,
whatever became of the names meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidName, RequestMismatch, ScopeNotFound, StreamNotFound
from anabranch.model.ids import StreamId
from anabranch.store import Store
from anabranch.streams.manager import Streams
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import sound

Ask = Callable[[Store, str], Any]

COLUMNS: pa.Schema = pa.schema([("k", pa.string()), ("n", pa.int64())])

# Each acts on s/a (typed, two events), s/b or the scope s, under a request id.
CHANGES: dict[str, Ask] = {
    "create scope": lambda store, r: store.scopes.create("made", tags={"x": "y"}, request=r),
    "delete scope": lambda store, r: store.scopes.delete("empty", request=r),
    "delete scope with all": lambda store, r: store.scopes.delete("s", recursive=True, request=r),
    "move scope": lambda store, r: store.scopes.rename("s", "moved", request=r),
    "copy scope": lambda store, r: store.scopes.copy("s", "made", request=r),
    "create": lambda store, r: store.streams.create("s/made", schema=COLUMNS, key="k", tags={"x": "y"}, request=r),
    "create raw": lambda store, r: store.streams.create("s/made", scaling=2, request=r),
    "delete": lambda store, r: store.streams.delete("s/a", request=r),
    "seal": lambda store, r: store.streams.seal("s/a", request=r),
    "scale": lambda store, r: store.streams.scale("s/a", 3, request=r),
    "fence": lambda store, r: store.streams.fence("s/a", 7, request=r),
    "truncate": lambda store, r: store.streams.truncate("s/a", TAIL[0], request=r),
    "evolve": lambda store, r: store.streams.evolve("s/a", COLUMNS.append(pa.field("new", pa.int8())), request=r),
    "add columns": lambda store, r: store.streams.add_columns("s/a", {"new": pa.int8()}, request=r),
    "tag": lambda store, r: store.streams.tag("s/a", {"x": "y"}, request=r),
    "add check": lambda store, r: store.streams.add_check("s/a", "new", "n > 0", request=r),
    "remove check": lambda store, r: store.streams.remove_check("s/a", "known", request=r),
    "copy": lambda store, r: store.streams.copy("s/a", "s/made", request=r),
    "append": lambda store, r: store.streams.append("s/a", "s/b", request=r),
    "stitch": lambda store, r: store.streams.stitch(["s/a", "s/b", "s/a"], into="s/made", request=r),
    "stitch instead": lambda store, r: store.streams.stitch(["s/a", "s/b"], into="s/a", keep_sources=False, request=r),
    "rename": lambda store, r: store.streams.rename("s/a", "s/made", request=r),
    "move": lambda store, r: store.streams.move("s/a", "empty", request=r),
    "alias": lambda store, r: store.aliases.add("s/a", "s/made", request=r),
    "retention": lambda store, r: store.policies.retention("s/a", ab.RetainFor("1h"), request=r),
    "load": lambda store, r: store.policies.load("s/a", ab.RejectAbove(ab.Rate(100)), request=r),
    "scaling": lambda store, r: store.policies.scaling("s/a", ab.ByEventRate(5), request=r),
    "keep": lambda store, r: store.ephemeral.keep("s/a", request=r),
    "unalias": lambda store, r: store.aliases.remove("s/also", request=r),
}
TAIL: list[ab.StreamCut] = []


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest) -> Iterator[Store]:
    url = "memory://" if request.param == "memory" else fresh_url()
    with ab.connect(url, blobs=None if request.param == "memory" else "memory://", create=True) as store:
        yield store
    if request.param == "postgres":
        drop(url)


@pytest.fixture
def store(opened: Store) -> Iterator[Store]:
    for scope in ("s", "empty"):
        opened.scopes.create(scope)
    for name in ("s/a", "s/b"):
        opened.streams.create(name, schema=COLUMNS, key="k", checks={"known": "n < 1000"})
        with opened.writer(name) as writer:
            for n in range(2):
                writer.write({"k": "x", "n": n}).result()
    opened.aliases.add("s/b", "s/also")
    TAIL[:] = [opened.cuts.tail("s/a")]
    yield opened
    assert sound(opened)
    for each in opened.scopes.list():
        opened.scopes.delete(each.name, recursive=True)


def held(store: Store) -> dict[str, object]:
    """What can be seen of the catalog."""
    streams = store.streams
    views = {str(info.name): streams.view(info.id) for info in streams.list(internal=True)}
    return {"scopes": store.scopes.list(), "aliases": store.aliases.of(), "views": views}


def turn_over(store: Store) -> None:
    """Let every name that was there mean something else, or nothing."""
    streams = store.streams
    for scope in store.scopes.list():
        store.scopes.rename(scope.name, f"former-{scope.name}")
    for scope in store.scopes.list():
        for info in streams.list(scope.name):
            streams.rename(info.name, f"{scope.name}/other-{info.name.name}")
    for name in ("s", "made", "empty"):
        store.scopes.create(name, tags={"taken": "again"})
    for name in ("s/a", "s/b", "s/made", "empty/a"):
        streams.create(name, tags={"taken": "again"})


# On PostgreSQL those that say which stream they are on, and some that do not.
FEW = ("create", "delete", "scale", "tag", "delete scope with all", "copy", "move")
CASES = [*(("memory", change) for change in CHANGES), *(("postgres", change) for change in FEW)]


@pytest.mark.parametrize(("opened", "change"), CASES, indirect=["opened"])
def test_a_repeated_change_returns_its_first_result(store: Store, change: str) -> None:
    ask, request = CHANGES[change], f"{store.runtime.ids.bits(64)}"
    first = ask(store, request)
    after = held(store)
    assert ask(store, request) == first
    assert held(store) == after
    turn_over(store)
    after = held(store)
    assert ask(store, request) == first
    assert held(store) == after
    for scope in store.scopes.list():
        store.scopes.delete(scope.name, recursive=True)
    assert ask(store, request) == first
    assert store.scopes.list() == []
    with pytest.raises(RequestMismatch):
        store.scopes.create("else", request=request)
    with pytest.raises(ScopeNotFound):
        store.scopes.get("else")


@pytest.mark.parametrize("opened", ["memory", "postgres"], indirect=True)
def test_a_stream_id_is_stable_across_renames(store: Store) -> None:
    """A change whose answer was lost, which had not taken place, is asked for again when other streams have the names."""
    ident, other = store.streams.get("s/a").id, store.streams.get("s/b").id
    turn_over(store)
    store.streams.copy(ab.StreamRange(ident), "s/copy")
    store.streams.append(ab.StreamRange(ident), onto=store.streams.get("s/copy").id)
    joined = store.streams.append(ab.StreamRange(ident), onto=store.streams.get("s/copy").id, deduplicate=["n"])
    assert (joined.repeats, store.cuts.distance("s/copy").events) == (2, 4)
    store.streams.tag(ident, {"x": "y"})
    store.policies.retention(ident, ab.RetainFor("1h"))
    store.policies.scaling(ident, ab.ByEventRate(5))
    store.streams.scale(ident, 2)
    store.streams.fence(ident, 7)
    store.streams.evolve(ident, COLUMNS.append(pa.field("new", pa.int8())))
    assert store.cuts.at(ident, "2200-01-01T00:00:00Z") == store.cuts.tail(ident)
    assert store.cuts.compare(ident, store.cuts.after(ident, TAIL[0], events=1), ab.TAIL) is ab.Order.SAME
    assert store.cuts.distance(ident, TAIL[0]).events == store.lineage.diff(ident, other).shared_distance.events == 0
    store.streams.truncate(ident, TAIL[0])
    store.streams.seal(ident)
    store.aliases.add(ident, "s/known")
    assert [
        store.ephemeral.keep(ident).id,
        store.streams.move(ident, "s").id,
        store.streams.rename(ident, "s/now").id,
    ] == [ident] * 3
    assert (store.ephemeral.holders(ident), store.ephemeral.is_ephemeral(ident), store.lineage.origins(ident)) == (
        (),
        False,
        (),
    )
    found = store.streams.get(ident)
    assert (str(found.name), found.sealed, found.tags, len(store.streams.view(ident).current)) == (
        "s/now",
        True,
        {"x": "y"},
        2,
    )
    assert found.schema.columns.names == ["k", "n", "new"]
    assert store.cuts.distance(ident).events == 0
    assert [str(name) for name in store.aliases.of(ident)] == ["s/known"]
    store.streams.delete(ident, request="gone")
    store.streams.delete(ident, request="gone")
    with pytest.raises(StreamNotFound):
        store.streams.get(ident)
    with pytest.raises(InvalidName):
        store.streams.get(StreamId(1 << 63))
    store.streams.get("s/a")
    with store.ephemeral.create("s/held") as held, store.ephemeral.hold(held.id) as again:
        assert (again.id, str(again.name)) == (held.id, "s/held")


@pytest.mark.parametrize("opened", ["memory"], indirect=True)
@pytest.mark.parametrize("request_id", ["", "x" * (limits.REQUEST_CHARS_MAX + 1), "\0", "\ud800", 5, b"r"])
def test_invalid_request_ids_are_refused(store: Store, request_id: Any, tmp_path: Path) -> None:
    after, jobs = held(store), [*store.jobs.list()]
    for change in ("seal", "copy scope", "delete scope with all"):
        with pytest.raises(InvalidArgument, match="request id"):
            CHANGES[change](store, request_id)
    with pytest.raises(InvalidArgument, match="request id"):
        store.jobs.copy(store, "s/a", "s/made", request=request_id)
    with pytest.raises(InvalidArgument, match="request id"):
        store.archives.create("s/a", tmp_path / "archive", request=request_id)
    assert (held(store), [*store.jobs.list()], [*tmp_path.iterdir()]) == (after, jobs, [])


@pytest.mark.parametrize("opened", ["memory", "postgres"], indirect=True)
def test_request_ids_of_later_transactions_can_not_be_passed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 1)
    streams = store.streams
    streams.tag("s/a", {"x": "y"}, request="first/1")
    assert len(store.scopes.copy("s", "made", request="first")) == 2
    assert len(store.scopes.copy("s", "made", request="first")) == 2
    for request in ("second", "second/1", "second/2", "second/3"):
        store.scopes.copy("s", "again")
        store.scopes.delete("again", recursive=True, request=request)
        assert "again" not in [scope.name for scope in store.scopes.list()]


def test_every_change_is_repeated_here() -> None:
    """A verb that takes a request id stands in the table above."""
    import inspect

    verbs = {name for name, verb in vars_of(Streams).items() if "request" in inspect.signature(verb).parameters}
    asked: set[str] = set()
    for ask in CHANGES.values():
        asked.update(ask.__code__.co_names)
    elsewhere = {"ephemeral", "hold"}  # tests of ephemeral streams ask for these again
    assert verbs - elsewhere - asked == set(), "say in CHANGES how these are asked for"


def vars_of(kind: type) -> dict[str, Any]:
    return {
        name: value for each in kind.__mro__ for name, value in vars(each).items() if callable(value) and name[0] != "_"
    }
