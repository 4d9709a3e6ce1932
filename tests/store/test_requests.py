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

Ask = Callable[[Streams, str], Any]

COLUMNS: pa.Schema = pa.schema([("k", pa.string()), ("n", pa.int64())])

# Each acts on s/a (typed, two events), s/b or the scope s, under a request id.
CHANGES: dict[str, Ask] = {
    "create scope": lambda streams, r: streams.create_scope("made", tags={"x": "y"}, request=r),
    "delete scope": lambda streams, r: streams.delete_scope("empty", request=r),
    "delete scope with all": lambda streams, r: streams.delete_scope("s", recursive=True, request=r),
    "move scope": lambda streams, r: streams.move_scope("s", "moved", request=r),
    "copy scope": lambda streams, r: streams.copy_scope("s", "made", request=r),
    "create": lambda streams, r: streams.create("s/made", schema=COLUMNS, key="k", tags={"x": "y"}, request=r),
    "create raw": lambda streams, r: streams.create("s/made", scaling=2, request=r),
    "delete": lambda streams, r: streams.delete("s/a", request=r),
    "seal": lambda streams, r: streams.seal("s/a", request=r),
    "scale": lambda streams, r: streams.scale("s/a", 3, request=r),
    "fence": lambda streams, r: streams.fence("s/a", 7, request=r),
    "truncate": lambda streams, r: streams.truncate("s/a", TAIL[0], request=r),
    "evolve": lambda streams, r: streams.evolve("s/a", COLUMNS.append(pa.field("new", pa.int8())), request=r),
    "tag": lambda streams, r: streams.tag("s/a", {"x": "y"}, request=r),
    "copy": lambda streams, r: streams.copy("s/a", "s/made", request=r),
    "append": lambda streams, r: streams.append("s/a", "s/b", request=r),
    "stitch": lambda streams, r: streams.stitch(["s/a", "s/b", "s/a"], into="s/made", request=r),
    "stitch instead": lambda streams, r: streams.stitch(["s/a", "s/b"], into="s/a", keep_sources=False, request=r),
    "rename": lambda streams, r: streams.rename("s/a", "s/made", request=r),
    "move": lambda streams, r: streams.move("s/a", "empty", request=r),
    "alias": lambda streams, r: streams.alias("s/a", "s/made", request=r),
    "retention": lambda streams, r: streams.retention("s/a", ab.RetainFor("1h"), request=r),
    "scaling": lambda streams, r: streams.scaling("s/a", ab.ByEventRate(5), request=r),
    "keep": lambda streams, r: streams.keep("s/a", request=r),
    "unalias": lambda streams, r: streams.unalias("s/also", request=r),
}
TAIL: list[ab.StreamCut] = []


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest) -> Iterator[Store]:
    url = "memory://" if request.param == "memory" else fresh_url()
    with ab.connect(url, blobs=None if request.param == "memory" else "memory://") as store:
        yield store
    if request.param == "postgres":
        drop(url)


@pytest.fixture
def store(opened: Store) -> Iterator[Store]:
    for scope in ("s", "empty"):
        opened.streams.create_scope(scope)
    for name in ("s/a", "s/b"):
        opened.streams.create(name, schema=COLUMNS, key="k")
        with opened.writer(name) as writer:
            for n in range(2):
                writer.write({"k": "x", "n": n}).result()
    opened.streams.alias("s/b", "s/also")
    TAIL[:] = [opened.streams.tail("s/a")]
    yield opened
    assert sound(opened)
    for each in opened.streams.scopes():
        opened.streams.delete_scope(each.name, recursive=True)


def held(store: Store) -> dict[str, object]:
    """What can be seen of the catalog."""
    streams = store.streams
    views = {str(info.name): streams.view(info.id) for info in streams.list(internal=True)}
    return {"scopes": streams.scopes(), "aliases": streams.aliases(), "views": views}


def turn_over(store: Store) -> None:
    """Let every name that was there mean something else, or nothing."""
    streams = store.streams
    for scope in streams.scopes():
        streams.move_scope(scope.name, f"former-{scope.name}")
    for scope in streams.scopes():
        for info in streams.list(scope.name):
            streams.rename(info.name, f"{scope.name}/other-{info.name.name}")
    for name in ("s", "made", "empty"):
        streams.create_scope(name, tags={"taken": "again"})
    for name in ("s/a", "s/b", "s/made", "empty/a"):
        streams.create(name, tags={"taken": "again"})


# On PostgreSQL those that say which stream they are on, and some that do not.
FEW = ("create", "delete", "scale", "tag", "delete scope with all", "copy", "move")
CASES = [*(("memory", change) for change in CHANGES), *(("postgres", change) for change in FEW)]


@pytest.mark.parametrize(("opened", "change"), CASES, indirect=["opened"])
def test_a_change_asked_for_again_tells_its_first_result(store: Store, change: str) -> None:
    ask, request = CHANGES[change], f"{store.runtime.ids.bits(64)}"
    first = ask(store.streams, request)
    after = held(store)
    assert ask(store.streams, request) == first
    assert held(store) == after
    turn_over(store)
    after = held(store)
    assert ask(store.streams, request) == first
    assert held(store) == after
    for scope in store.streams.scopes():
        store.streams.delete_scope(scope.name, recursive=True)
    assert ask(store.streams, request) == first
    assert store.streams.scopes() == []
    with pytest.raises(RequestMismatch):
        store.streams.create_scope("else", request=request)
    with pytest.raises(ScopeNotFound):
        store.streams.scope("else")


@pytest.mark.parametrize("opened", ["memory", "postgres"], indirect=True)
def test_a_stream_named_by_its_id_is_the_same_one_whatever_it_is_called(store: Store) -> None:
    """A change whose answer was lost, which had not taken place, is asked for again when other streams have the names."""
    streams, ident, other = store.streams, store.streams.get("s/a").id, store.streams.get("s/b").id
    turn_over(store)
    streams.copy(ab.StreamRange(ident), "s/copy")
    streams.append(ab.StreamRange(ident), onto=streams.get("s/copy").id)
    joined = streams.append(ab.StreamRange(ident), onto=streams.get("s/copy").id, deduplicate=["n"])
    assert (joined.repeats, streams.distance("s/copy").events) == (2, 4)
    streams.tag(ident, {"x": "y"})
    streams.retention(ident, ab.RetainFor("1h"))
    streams.scaling(ident, ab.ByEventRate(5))
    streams.scale(ident, 2)
    streams.fence(ident, 7)
    streams.evolve(ident, COLUMNS.append(pa.field("new", pa.int8())))
    assert streams.cut_at(ident, 1 << 60) == streams.tail(ident)
    assert streams.compare(ident, streams.cut_after(ident, TAIL[0], events=1), ab.TAIL) is ab.Order.SAME
    assert streams.distance(ident, TAIL[0]).events == streams.diff(ident, other).shared_distance.events == 0
    streams.truncate(ident, TAIL[0])
    streams.seal(ident)
    streams.alias(ident, "s/known")
    assert [streams.keep(ident).id, streams.move(ident, "s").id, streams.rename(ident, "s/now").id] == [ident] * 3
    assert (streams.holders(ident), streams.is_ephemeral(ident), streams.lineage(ident)) == ((), False, ())
    found = streams.get(ident)
    assert (str(found.name), found.sealed, found.tags, len(streams.view(ident).current)) == (
        "s/now",
        True,
        {"x": "y"},
        2,
    )
    assert found.schema.columns.names == ["k", "n", "new"]
    assert streams.distance(ident).events == 0
    assert [str(name) for name in streams.aliases(ident)] == ["s/known"]
    streams.delete(ident, request="gone")
    streams.delete(ident, request="gone")
    with pytest.raises(StreamNotFound):
        streams.get(ident)
    with pytest.raises(InvalidName):
        streams.get(StreamId(1 << 63))
    streams.get("s/a")
    with streams.ephemeral("s/held") as held, streams.hold(held.id) as again:
        assert (again.id, str(again.name)) == (held.id, "s/held")


@pytest.mark.parametrize("opened", ["memory"], indirect=True)
@pytest.mark.parametrize("request_id", ["", "x" * (limits.REQUEST_CHARS_MAX + 1), "\0", "\ud800", 5, b"r"])
def test_what_can_be_no_request_id_is_refused_and_changes_nothing(
    store: Store, request_id: Any, tmp_path: Path
) -> None:
    after, jobs = held(store), [*store.jobs.list()]
    for change in ("seal", "copy scope", "delete scope with all"):
        with pytest.raises(InvalidArgument, match="request id"):
            CHANGES[change](store.streams, request_id)
    with pytest.raises(InvalidArgument, match="request id"):
        store.jobs.copy(store, "s/a", "s/made", request=request_id)
    with pytest.raises(InvalidArgument, match="request id"):
        store.streams.archive("s/a", tmp_path / "archive", request=request_id)
    assert (held(store), [*store.jobs.list()], [*tmp_path.iterdir()]) == (after, jobs, [])


@pytest.mark.parametrize("opened", ["memory", "postgres"], indirect=True)
def test_the_further_transactions_of_a_change_are_nobodys_request(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 1)
    streams = store.streams
    streams.tag("s/a", {"x": "y"}, request="first/1")
    assert len(streams.copy_scope("s", "made", request="first")) == 2
    assert len(streams.copy_scope("s", "made", request="first")) == 2
    for request in ("second", "second/1", "second/2", "second/3"):
        streams.copy_scope("s", "again")
        streams.delete_scope("again", recursive=True, request=request)
        assert "again" not in [scope.name for scope in streams.scopes()]


def test_every_change_is_asked_for_again_here() -> None:
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
