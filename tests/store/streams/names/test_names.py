"""Aliases: further names of a stream, as good as its own; and scopes that are renamed or deleted with all they hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.former_names import FORMER_NAME, FORMER_NAMES, FORMER_SCOPE
from anabranch.catalog.state.lineage import COPIED
from anabranch.errors import (
    InvalidArgument,
    NotFound,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    ScopeRenamed,
    StreamExists,
    StreamNotFound,
    StreamRenamed,
)
from anabranch.store import Store
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import bodies_of, sound


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    url = "memory://" if request.param == "memory" else fresh_url()
    with ab.connect(url, blobs=None if request.param == "memory" else "memory://", create=True) as opened:
        opened.scopes.create("s", tags={"of": "s"})
        opened.scopes.create("t")
        opened.streams.create("s/a")
        yield opened
        assert sound(opened)
    if request.param == "postgres":
        drop(url)


def write(store: Store, stream: str, *bodies: bytes) -> list[ab.EventPointer]:
    with store.writer(stream) as writer:
        return [writer.write(body).result() for body in bodies]


def names(store: Store, scope: str | None = None) -> list[str]:
    return [str(info.name) for info in store.streams.list(scope, internal=True)]


def aliases(store: Store, stream: str | None = None) -> dict[str, str]:
    return {str(alias): str(name) for alias, name in store.aliases.of(stream).items()}


def left(store: Store) -> list[str]:
    """Rows of the catalog that are about names."""
    with store.catalog.reading() as reading:
        kinds = {kind.name for kind in (FORMER_NAME, FORMER_NAMES, FORMER_SCOPE, COPIED)}
        states = [f"{row[0]!s} {row[1]!s}" for row in reading.export("states") if row[0] in kinds]
        return [*(f"alias {row[0]!s}" for row in reading.export("aliases")), *states]


# aliases


def test_an_alias_works_like_the_name(store: Store) -> None:
    streams = store.streams
    store.aliases.add("s/a", "t/also")
    (pointer,) = write(store, "t/also", b"1")
    assert bodies_of(store, "t/also") == bodies_of(store, "s/a") == [b"1"]
    assert streams.get("t/also") == streams.get("s/a") and streams.exists("t/also")
    assert store.fetch(pointer).body == b"1"
    assert len(streams.scale("t/also", 2)) == 2
    assert streams.tag("t/also", {"x": "y"}).name == ab.StreamName("s", "a")
    streams.fence("t/also", 3)
    streams.truncate("t/also", store.cuts.tail("t/also"))
    assert store.cuts.distance("s/a", store.cuts.head("t/also"), store.cuts.tail("t/also")) == (0, 0)
    streams.copy("t/also", "s/copy")
    streams.append("t/also", "s/copy")
    streams.append("s/copy", "t/also")
    streams.stitch(["t/also", "s/a"], into="s/twice")
    streams.seal("t/also")
    assert streams.get("s/a").sealed
    streams.delete("t/also")
    assert names(store) == ["s/copy", "s/twice"]
    with pytest.raises(StreamNotFound):
        streams.get("t/also")


def test_aliases_are_listed_in_pages_of_one_scope_or_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CATALOG_PAGE_ROWS", 2)
    for name in ("s/x", "s/y", "t/x", "s/z", "t/w"):
        store.aliases.add("s/a", name)
    found = [(str(alias), str(name)) for alias, name in store.aliases.list()]
    assert found == [(name, "s/a") for name in ("s/x", "s/y", "s/z", "t/w", "t/x")]
    assert [str(alias) for alias, _ in store.aliases.list("t")] == ["t/w", "t/x"]
    assert store.aliases.of() == dict(store.aliases.list())
    with pytest.raises(ScopeNotFound):
        next(store.aliases.list("nowhere"))
    store.scopes.rename("t", "u")  # what is renamed and deleted lies on several pages too
    assert [str(alias) for alias, _ in store.aliases.list("u")] == ["u/w", "u/x"]
    store.scopes.delete("u", recursive=True)
    assert [str(alias) for alias, _ in store.aliases.list()] == ["s/x", "s/y", "s/z"]


def test_an_alias_follows_its_stream_and_is_deleted_with_it(store: Store) -> None:
    streams = store.streams
    store.aliases.add("s/a", "s/also")
    store.aliases.add("s/also", "t/more")
    streams.rename("s/also", "s/b")
    assert aliases(store) == {"s/also": "s/b", "t/more": "s/b"} == aliases(store, "t/more")
    assert streams.move("s/also", "t").name == ab.StreamName("t", "b")  # by its own name, not the alias's
    store.aliases.remove("s/also")
    assert aliases(store, "t/b") == {"t/more": "t/b"}
    with pytest.raises(StreamNotFound):
        streams.get("s/also")
    streams.delete("t/b")
    assert aliases(store) == {} and left(store) == []


def test_readers_and_writers_by_an_alias_survive_a_rename(store: Store) -> None:
    store.aliases.add("s/a", "s/also")
    with store.writer("s/also") as writer, store.reader("s/also", follow=True) as reader:
        events = iter(reader)
        writer.write(b"1").result()
        assert next(events).body == b"1"
        store.aliases.remove("s/also")
        store.streams.create("s/also")
        writer.write(b"2").result()
        assert next(events).body == b"2"
    assert bodies_of(store, "s/a") == [b"1", b"2"] and bodies_of(store, "s/also") == []


def test_an_alias_takes_its_name(store: Store) -> None:
    streams = store.streams
    streams.create("s/b")
    store.aliases.add("s/a", "s/also")
    store.aliases.add("s/a", "s/also")  # it is one already
    for make in (
        lambda: streams.create("s/also"),
        lambda: streams.copy("s/b", "s/also"),
        lambda: streams.stitch(["s/b"], into="s/also"),
        lambda: streams.rename("s/b", "s/also"),
        lambda: streams.rename("s/a", "s/also"),
        lambda: store.aliases.add("s/b", "s/also"),
    ):
        with pytest.raises(
            StreamExists, match="'s/also' is an alias of stream 's/a'; remove the alias with: anabranch"
        ) as caught:
            make()
        assert caught.value.alias_of == "s/a"
    for name in ("s/a", "s/b"):
        with pytest.raises(StreamExists, match="already exists"):
            store.aliases.add("s/a", name)
    assert streams.create("s/also", exist_ok=True).name == ab.StreamName("s", "a")


def test_a_copy_to_an_alias_is_refused(store: Store) -> None:
    store.streams.copy("s/a", "s/copy")
    store.aliases.add("s/copy", "s/also")
    with pytest.raises(StreamExists):
        store.streams.copy("s/a", "s/also")
    assert store.streams.copy("s/a", "s/copy").copy == store.streams.get("s/also").id


def test_a_stitch_may_reuse_the_name_of_a_source_or_its_alias(store: Store) -> None:
    write(store, "s/a", b"1")
    store.aliases.add("s/a", "s/also")
    store.streams.stitch(["s/a", "s/also"], into="s/also", keep_sources=False)
    assert names(store) == ["s/also"] and bodies_of(store, "s/also") == [b"1", b"1"]
    assert aliases(store) == {}


def test_a_former_name_can_become_an_alias_and_a_former_name_again(store: Store) -> None:
    store.streams.rename("s/a", "s/b")
    store.aliases.add("s/b", "s/a")
    assert store.streams.get("s/a").name == ab.StreamName("s", "b")
    store.aliases.remove("s/a")
    with pytest.raises(StreamRenamed, match="s/b"):
        store.streams.get("s/a")


def test_invalid_aliases_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScopeNotFound):
        store.aliases.add("s/a", "none/a")
    with pytest.raises(StreamNotFound):
        store.aliases.add("s/none", "s/b")
    with pytest.raises(NotFound, match="alias 's/none' not found"):
        store.aliases.remove("s/none")
    with pytest.raises(InvalidArgument, match="own name"):
        store.aliases.remove("s/a")
    monkeypatch.setattr(limits, "ALIASES_MAX", 1)
    store.aliases.add("s/a", "s/b")
    with pytest.raises(InvalidArgument, match="the maximum"):
        store.aliases.add("s/a", "s/c")


# scopes that get another name


def test_a_scope_is_renamed_with_its_streams(store: Store) -> None:
    streams = store.streams
    for name in ("s/b", "s/_own", "t/far"):
        streams.create(name)
    store.aliases.add("s/b", "s/also")
    store.aliases.add("t/far", "s/far")
    store.aliases.add("s/b", "t/outside")
    with store.writer("s/a") as writer, store.reader("s/a", follow=True) as reader:
        events = iter(reader)
        assert store.scopes.rename("s", "u").tags == {"of": "s"}
        writer.write(b"1").result()
        assert next(events).body == b"1"
        streams.scale("u/a", 2)
        writer.write(b"2").result()
        assert next(events).body == b"2"
    assert [scope.name for scope in store.scopes.list()] == ["t", "u"]
    assert names(store) == ["t/far", "u/_own", "u/a", "u/b"]
    assert aliases(store) == {"u/also": "u/b", "u/far": "t/far", "t/outside": "u/b"}
    for old, new in (("s/a", "u/a"), ("s/also", "u/b"), ("s/far", "t/far")):
        with pytest.raises(StreamRenamed) as caught:
            streams.get(old)
        assert caught.value.name == new
    with pytest.raises(ScopeRenamed, match="scope 's' was renamed to 'u'"):
        streams.get("s/never")
    with store.catalog.reading() as reading:
        told = [change.detail for change in reading.changes(0, 100) if change.kind == "scope renamed"]
    assert told == [{"from": "s", "to": "u"}]


def test_former_scope_names_resolve_until_they_are_reused(store: Store) -> None:
    streams = store.streams
    store.scopes.rename("s", "u")
    store.scopes.rename("u", "v")
    for old in "su":
        for use in (store.scopes.get, store.scopes.delete, lambda each: list(streams.list(each))):
            with pytest.raises(ScopeRenamed, match=f"'{old}' was renamed to 'v'"):
                use(old)
    store.scopes.create("u")
    assert store.scopes.get("u").tags == {}
    store.scopes.rename("v", "s")
    assert streams.get("s/a").name == ab.StreamName("s", "a")
    store.scopes.delete("s", recursive=True)
    with pytest.raises(ScopeNotFound) as caught:
        store.scopes.get("v")
    assert not isinstance(caught.value, ScopeRenamed)
    assert left(store) == []


def test_names_that_no_scope_can_get_are_refused(store: Store) -> None:
    with pytest.raises(ScopeExists):
        store.scopes.rename("s", "t")
    with pytest.raises(ScopeNotFound):
        store.scopes.rename("none", "u")
    with pytest.raises(InvalidArgument):
        store.scopes.rename("s", "no/scope")
    assert store.scopes.rename("s", "s").name == "s"
    assert names(store) == ["s/a"]


# scopes that are deleted, copied


def test_a_scope_is_deleted_with_its_streams(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    streams = store.streams
    for name in ("s/b", "s/c", "s/_own", "t/far"):
        streams.create(name)
    write(store, "s/a", b"1")
    streams.copy("s/a", "t/copy")
    store.aliases.add("s/b", "t/also")
    store.aliases.add("t/far", "s/far")
    with pytest.raises(ScopeNotEmpty):
        store.scopes.delete("s")
    seen: list[tuple[str, int, int]] = []
    store.scopes.delete("s", recursive=True, progress=lambda *told: seen.append(told))
    assert seen == [("deleting", 2, 4), ("deleting", 4, 4), ("deleting", 4, 4)]
    assert names(store) == ["t/copy", "t/far"] and aliases(store) == {}
    assert bodies_of(store, "t/copy") == [b"1"]
    with pytest.raises(ScopeNotFound):
        store.scopes.get("s")
    store.scopes.delete("t", recursive=True)
    assert left(store) == []


def test_deleting_a_scope_resumes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    for name in "bcde":
        store.streams.create(f"s/{name}")

    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.scopes.delete("s", recursive=True, progress=stop, request="r")
    assert names(store) == ["s/c", "s/d", "s/e"]
    store.scopes.delete("s", recursive=True, request="r")
    assert names(store) == []
    store.scopes.create("s")
    store.streams.create("s/new")
    store.scopes.delete("s", recursive=True, request="r")  # was done, and is not done again
    assert names(store) == ["s/new"]


def test_a_scope_copy_omits_internal_and_ephemeral_streams(store: Store) -> None:
    streams = store.streams
    streams.create("s/_own")
    with store.ephemeral.create("s/short"):
        store.scopes.copy("s", "u")
        store.scopes.copy("s", "v", internal=True)
        store.scopes.copy("s", "w", ephemeral=True)
    assert names(store, "u") == ["u/a"]
    assert names(store, "v") == ["v/_own", "v/a"]
    assert names(store, "w") == ["w/a", "w/short"]  # a copy lasts


def test_a_scope_copy_includes_aliases(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    streams = store.streams
    for name in ("s/b", "s/c", "s/_own", "t/far"):
        streams.create(name)
    for stream, name in (("s/b", "s/also"), ("s/_own", "s/own"), ("s/b", "t/outside"), ("t/far", "s/far")):
        store.aliases.add(stream, name)
    seen: list[tuple[str, int, int]] = []
    store.scopes.copy("s", "u", progress=lambda *told: seen.append(told))
    assert seen == [("copying", 1, 3), ("copying", 3, 3), ("copying", 3, 3)]
    assert {alias: name for alias, name in aliases(store).items() if alias.startswith("u/")} == {"u/also": "u/b"}
    store.scopes.copy("s", "u")
    store.aliases.remove("u/also")
    streams.create("u/also")
    with pytest.raises(StreamExists):
        store.scopes.copy("s", "u")
