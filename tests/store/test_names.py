"""Aliases: further names of a stream, as good as its own; and scopes that are renamed or deleted with all they hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import anabranch as ab
from anabranch import limits
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
    with ab.connect(url, blobs=None if request.param == "memory" else "memory://") as opened:
        opened.streams.create_scope("s", tags={"of": "s"})
        opened.streams.create_scope("t")
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
    return {str(alias): str(name) for alias, name in store.streams.aliases(stream).items()}


def left(store: Store) -> list[str]:
    """Pieces of the catalog that are about names."""
    with store.catalog.reading() as reading:
        kinds = ("alias", "aliases", "renamed", "former names", "renamed scope", "copied")
        return [f"{kind} {piece.name}" for kind in kinds for piece in reading.pieces(kind)]


# aliases


def test_an_alias_is_as_good_as_the_name(store: Store) -> None:
    streams = store.streams
    streams.alias("s/a", "t/also")
    (pointer,) = write(store, "t/also", b"1")
    assert bodies_of(store, "t/also") == bodies_of(store, "s/a") == [b"1"]
    assert streams.get("t/also") == streams.get("s/a") and streams.exists("t/also")
    assert store.fetch(pointer).body == b"1"
    assert len(streams.scale("t/also", 2)) == 2
    assert streams.tag("t/also", {"x": "y"}).name == ab.StreamName("s", "a")
    streams.fence("t/also", 3)
    streams.truncate("t/also", streams.tail("t/also"))
    assert streams.distance("s/a", streams.head("t/also"), streams.tail("t/also")) == (0, 0)
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
    streams = store.streams
    for name in ("s/x", "s/y", "t/x", "s/z", "t/w"):
        streams.alias("s/a", name)
    found = [(str(alias), str(name)) for alias, name in streams.list_aliases()]
    assert found == [(name, "s/a") for name in ("s/x", "s/y", "s/z", "t/w", "t/x")]
    assert [str(alias) for alias, _ in streams.list_aliases("t")] == ["t/w", "t/x"]
    assert streams.aliases() == dict(streams.list_aliases())
    with pytest.raises(ScopeNotFound):
        next(streams.list_aliases("nowhere"))
    streams.move_scope("t", "u")  # what is renamed and deleted lies on several pages too
    assert [str(alias) for alias, _ in streams.list_aliases("u")] == ["u/w", "u/x"]
    streams.delete_scope("u", recursive=True)
    assert [str(alias) for alias, _ in streams.list_aliases()] == ["s/x", "s/y", "s/z"]


def test_an_alias_follows_its_stream_and_goes_with_it(store: Store) -> None:
    streams = store.streams
    streams.alias("s/a", "s/also")
    streams.alias("s/also", "t/more")
    streams.rename("s/also", "s/b")
    assert aliases(store) == {"s/also": "s/b", "t/more": "s/b"} == aliases(store, "t/more")
    assert streams.move("s/also", "t").name == ab.StreamName("t", "b")  # by its own name, not the alias's
    streams.unalias("s/also")
    assert aliases(store, "t/b") == {"t/more": "t/b"}
    with pytest.raises(StreamNotFound):
        streams.get("s/also")
    streams.delete("t/b")
    assert aliases(store) == {} and left(store) == []


def test_readers_and_writers_by_an_alias_survive_it(store: Store) -> None:
    store.streams.alias("s/a", "s/also")
    with store.writer("s/also") as writer, store.reader("s/also", follow=True) as reader:
        events = iter(reader)
        writer.write(b"1").result()
        assert next(events).body == b"1"
        store.streams.unalias("s/also")
        store.streams.create("s/also")
        writer.write(b"2").result()
        assert next(events).body == b"2"
    assert bodies_of(store, "s/a") == [b"1", b"2"] and bodies_of(store, "s/also") == []


def test_an_alias_takes_its_name(store: Store) -> None:
    streams = store.streams
    streams.create("s/b")
    streams.alias("s/a", "s/also")
    streams.alias("s/a", "s/also")  # it is one already
    for make in (
        lambda: streams.create("s/also"),
        lambda: streams.copy("s/b", "s/also"),
        lambda: streams.stitch(["s/b"], into="s/also"),
        lambda: streams.rename("s/b", "s/also"),
        lambda: streams.rename("s/a", "s/also"),
        lambda: streams.alias("s/b", "s/also"),
    ):
        with pytest.raises(
            StreamExists, match="'s/also' is an alias of stream 's/a'; free it with: anabranch"
        ) as caught:
            make()
        assert caught.value.alias_of == "s/a"
    for name in ("s/a", "s/b"):
        with pytest.raises(StreamExists, match="exists already"):
            streams.alias("s/a", name)
    assert streams.create("s/also", exist_ok=True).name == ab.StreamName("s", "a")


def test_a_copy_is_not_taken_for_its_alias(store: Store) -> None:
    store.streams.copy("s/a", "s/copy")
    store.streams.alias("s/copy", "s/also")
    with pytest.raises(StreamExists):
        store.streams.copy("s/a", "s/also")
    assert store.streams.copy("s/a", "s/copy").copy == store.streams.get("s/also").id


def test_a_stitch_may_take_the_place_of_a_source_and_of_its_alias(store: Store) -> None:
    write(store, "s/a", b"1")
    store.streams.alias("s/a", "s/also")
    store.streams.stitch(["s/a", "s/also"], into="s/also", keep_sources=False)
    assert names(store) == ["s/also"] and bodies_of(store, "s/also") == [b"1", b"1"]
    assert aliases(store) == {}


def test_a_former_name_can_become_an_alias_and_a_former_name_again(store: Store) -> None:
    store.streams.rename("s/a", "s/b")
    store.streams.alias("s/b", "s/a")
    assert store.streams.get("s/a").name == ab.StreamName("s", "b")
    store.streams.unalias("s/a")
    with pytest.raises(StreamRenamed, match="s/b"):
        store.streams.get("s/a")


def test_aliases_that_can_not_be_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScopeNotFound):
        store.streams.alias("s/a", "none/a")
    with pytest.raises(StreamNotFound):
        store.streams.alias("s/none", "s/b")
    with pytest.raises(NotFound, match="no alias 's/none'"):
        store.streams.unalias("s/none")
    with pytest.raises(InvalidArgument, match="own name"):
        store.streams.unalias("s/a")
    monkeypatch.setattr(limits, "ALIASES_MAX", 1)
    store.streams.alias("s/a", "s/b")
    with pytest.raises(InvalidArgument, match="no more"):
        store.streams.alias("s/a", "s/c")


# scopes that get another name


def test_a_scope_gets_another_name_with_all_it_holds(store: Store) -> None:
    streams = store.streams
    for name in ("s/b", "s/_own", "t/far"):
        streams.create(name)
    streams.alias("s/b", "s/also")
    streams.alias("t/far", "s/far")
    streams.alias("s/b", "t/outside")
    with store.writer("s/a") as writer, store.reader("s/a", follow=True) as reader:
        events = iter(reader)
        assert streams.move_scope("s", "u").tags == {"of": "s"}
        writer.write(b"1").result()
        assert next(events).body == b"1"
        streams.scale("u/a", 2)
        writer.write(b"2").result()
        assert next(events).body == b"2"
    assert [scope.name for scope in streams.scopes()] == ["t", "u"]
    assert names(store) == ["t/far", "u/_own", "u/a", "u/b"]
    assert aliases(store) == {"u/also": "u/b", "u/far": "t/far", "t/outside": "u/b"}
    for old, new in (("s/a", "u/a"), ("s/also", "u/b"), ("s/far", "t/far")):
        with pytest.raises(StreamRenamed) as caught:
            streams.get(old)
        assert caught.value.name == new
    with pytest.raises(ScopeRenamed, match="scope 's' is called 'u' now"):
        streams.get("s/never")
    with store.catalog.reading() as reading:
        told = [change.detail for change in reading.changes(0, 100) if change.kind == "scope renamed"]
    assert told == [{"from": "s", "to": "u"}]


def test_a_scopes_former_names_lead_on_until_they_are_taken_again(store: Store) -> None:
    streams = store.streams
    streams.move_scope("s", "u")
    streams.move_scope("u", "v")
    for old in "su":
        for use in (streams.scope, streams.delete_scope, lambda each: list(streams.list(each))):
            with pytest.raises(ScopeRenamed, match=f"'{old}' is called 'v' now"):
                use(old)
    streams.create_scope("u")
    assert streams.scope("u").tags == {}
    streams.move_scope("v", "s")
    assert streams.get("s/a").name == ab.StreamName("s", "a")
    streams.delete_scope("s", recursive=True)
    with pytest.raises(ScopeNotFound) as caught:
        streams.scope("v")
    assert not isinstance(caught.value, ScopeRenamed)
    assert left(store) == []


def test_names_that_no_scope_can_get_are_refused(store: Store) -> None:
    with pytest.raises(ScopeExists):
        store.streams.move_scope("s", "t")
    with pytest.raises(ScopeNotFound):
        store.streams.move_scope("none", "u")
    with pytest.raises(InvalidArgument):
        store.streams.move_scope("s", "no/scope")
    assert store.streams.move_scope("s", "s").name == "s"
    assert names(store) == ["s/a"]


# scopes that are deleted, copied


def test_a_scope_is_deleted_with_all_it_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    streams = store.streams
    for name in ("s/b", "s/c", "s/_own", "t/far"):
        streams.create(name)
    write(store, "s/a", b"1")
    streams.copy("s/a", "t/copy")
    streams.alias("s/b", "t/also")
    streams.alias("t/far", "s/far")
    with pytest.raises(ScopeNotEmpty):
        streams.delete_scope("s")
    seen: list[tuple[str, int, int]] = []
    streams.delete_scope("s", recursive=True, progress=lambda *told: seen.append(told))
    assert seen == [("deleting", 2, 4), ("deleting", 4, 4), ("deleting", 4, 4)]
    assert names(store) == ["t/copy", "t/far"] and aliases(store) == {}
    assert bodies_of(store, "t/copy") == [b"1"]
    with pytest.raises(ScopeNotFound):
        streams.scope("s")
    streams.delete_scope("t", recursive=True)
    assert left(store) == []


def test_deleting_a_scope_goes_on_where_it_was_interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    for name in "bcde":
        store.streams.create(f"s/{name}")

    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.streams.delete_scope("s", recursive=True, progress=stop, request="r")
    assert names(store) == ["s/c", "s/d", "s/e"]
    store.streams.delete_scope("s", recursive=True, request="r")
    assert names(store) == []
    store.streams.create_scope("s")
    store.streams.create("s/new")
    store.streams.delete_scope("s", recursive=True, request="r")  # was done, and is not done again
    assert names(store) == ["s/new"]


def test_a_scope_copy_leaves_out_what_nobody_asked_for(store: Store) -> None:
    streams = store.streams
    streams.create("s/_own")
    with streams.ephemeral("s/short"):
        streams.copy_scope("s", "u")
        streams.copy_scope("s", "v", internal=True)
        streams.copy_scope("s", "w", ephemeral=True)
    assert names(store, "u") == ["u/a"]
    assert names(store, "v") == ["v/_own", "v/a"]
    assert names(store, "w") == ["w/a", "w/short"]  # a copy lasts


def test_a_scope_copy_takes_along_the_aliases_of_its_streams(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    streams = store.streams
    for name in ("s/b", "s/c", "s/_own", "t/far"):
        streams.create(name)
    for stream, name in (("s/b", "s/also"), ("s/_own", "s/own"), ("s/b", "t/outside"), ("t/far", "s/far")):
        streams.alias(stream, name)
    seen: list[tuple[str, int, int]] = []
    streams.copy_scope("s", "u", progress=lambda *told: seen.append(told))
    assert seen == [("copying", 1, 3), ("copying", 3, 3), ("copying", 3, 3)]
    assert {alias: name for alias, name in aliases(store).items() if alias.startswith("u/")} == {"u/also": "u/b"}
    streams.copy_scope("s", "u")
    streams.unalias("u/also")
    streams.create("u/also")
    with pytest.raises(StreamExists):
        streams.copy_scope("s", "u")
