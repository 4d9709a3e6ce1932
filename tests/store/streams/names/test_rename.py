"""Names: a stream may change its name and scope under open readers and writers; whole scopes are copied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.former_names import FORMER_NAME, FORMER_NAMES
from anabranch.catalog.state.lineage import COPIED
from anabranch.errors import (
    InvalidArgument,
    InvalidName,
    RequestMismatch,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamRenamed,
)
from anabranch.store import Store
from tests.store.helpers import bodies_of, sound


@pytest.fixture
def store() -> Iterator[Store]:
    with ab.connect("memory://") as opened:
        opened.scopes.create("s", tags={"of": "s"})
        opened.scopes.create("t")
        opened.streams.create("s/a")
        yield opened
        assert sound(opened)


def write(store: Store, stream: str, *bodies: bytes) -> list[ab.EventPointer]:
    with store.writer(stream) as writer:
        return [writer.write(body).result() for body in bodies]


def states(store: Store) -> int:
    with store.catalog.reading() as reading:
        return len(reading.states(FORMER_NAME)) + len(reading.states(FORMER_NAMES)) + len(reading.states(COPIED))


def test_a_stream_keeps_everything_but_its_name(store: Store) -> None:
    (pointer,) = write(store, "s/a", b"1")
    before = store.streams.get("s/a")
    info = store.streams.rename("s/a", "s/b")
    assert (str(info.name), info.id, info.created_at) == ("s/b", before.id, before.created_at)
    assert store.fetch(pointer).body == b"1" and bodies_of(store, "s/b") == [b"1"]
    assert store.streams.move("s/b", "t").name == ab.StreamName("t", "b")
    assert bodies_of(store, "t/b") == [b"1"]
    with store.catalog.reading() as reading:
        told = [change.detail for change in reading.changes(0, 100) if change.kind == "renamed"]
    assert told == [{"from": "s/a", "to": "s/b"}, {"from": "s/b", "to": "t/b"}]


def test_open_readers_and_writers_continue(store: Store) -> None:
    with store.writer("s/a") as writer, store.reader("s/a", follow=True) as reader:
        events = iter(reader)
        for n, name in enumerate(("s/b", "t/c", "s/a", "s/d")):
            writer.write(f"{n}".encode()).result()
            store.streams.rename(str(store.streams.view(reader.position.stream).info.name), name)
            assert next(events).body == f"{n}".encode()
        store.streams.scale("s/d", 2)
        writer.write(b"9").result()
        assert next(events).body == b"9"
    assert len(bodies_of(store, "s/d")) == 5


def test_a_former_name_raises_with_the_new_one(store: Store) -> None:
    store.streams.rename("s/a", "s/b")
    store.streams.rename("s/b", "t/c")
    for old in ("s/a", "s/b"):
        for use in (store.streams.get, store.streams.seal, store.writer, store.reader, store.streams.delete):
            with pytest.raises(StreamRenamed, match=f"'{old}' was renamed to 't/c'") as caught:
                use(old)
            assert (caught.value.stream, caught.value.name) == (old, "t/c")
    assert not store.streams.exists("s/a")


def test_a_reused_name_refers_to_the_new_stream(store: Store) -> None:
    first = store.streams.rename("s/a", "s/b").id
    second = store.streams.create("s/a").id
    assert store.streams.get("s/a").id == second
    store.streams.rename("s/a", "s/c")
    with pytest.raises(StreamRenamed, match="s/c"):
        store.streams.get("s/a")
    store.streams.rename("s/b", "s/d")  # must not take over what leads to the second
    with pytest.raises(StreamRenamed, match="s/c"):
        store.streams.get("s/a")
    store.streams.rename("s/d", "s/b")
    assert store.streams.get("s/b").id == first
    store.streams.rename("s/c", "s/a")
    assert store.streams.get("s/a").id == second
    with pytest.raises(StreamRenamed, match="s/b"):
        store.streams.get("s/d")


def test_former_names_are_deleted_with_their_stream(store: Store) -> None:
    store.streams.rename("s/a", "s/b")
    store.streams.copy("s/b", "s/c")
    store.streams.delete("s/b")
    with pytest.raises(StreamNotFound) as caught:
        store.streams.get("s/a")
    assert not isinstance(caught.value, StreamRenamed)
    store.streams.delete("s/c")
    assert states(store) == 0


def test_the_number_of_former_names_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORMER_NAMES_MAX", 2)
    for old, new in ("ab", "bc", "cd"):
        store.streams.rename(f"s/{old}", f"s/{new}")
    with pytest.raises(StreamNotFound) as caught:
        store.streams.get("s/a")
    assert not isinstance(caught.value, StreamRenamed)
    for old in ("s/b", "s/c"):
        with pytest.raises(StreamRenamed, match="s/d"):
            store.streams.get(old)


def test_taken_or_unknown_names_are_refused(store: Store) -> None:
    store.streams.create("s/b")
    with pytest.raises(StreamExists):
        store.streams.rename("s/a", "s/b")
    with pytest.raises(ScopeNotFound):
        store.streams.move("s/a", "none")
    with pytest.raises(StreamNotFound):
        store.streams.rename("s/none", "s/c")
    with pytest.raises(InvalidName):
        store.streams.move("s/a", "no/scope")
    assert store.streams.rename("s/a", "s/a").name == ab.StreamName("s", "a")


def test_a_repeated_rename_returns_its_first_result(store: Store) -> None:
    first = store.streams.rename("s/a", "s/b", request="r")
    assert store.streams.rename("s/a", "s/b", request="r") == first
    with pytest.raises(RequestMismatch):
        store.streams.rename("s/a", "s/c", request="r")


# whole scopes


def test_a_scope_is_copied_with_its_streams_and_tags(store: Store) -> None:
    write(store, "s/a", b"1")
    store.streams.create("s/b")
    store.streams.create("s/_own")
    copies = store.scopes.copy("s", "u", request="r")
    assert [str(info.name) for info in store.streams.list("u", internal=True)] == ["u/a", "u/b"]
    assert store.scopes.get("u").tags == {"of": "s"}
    write(store, "s/a", b"2")
    assert bodies_of(store, "u/a") == [b"1"]
    assert store.scopes.copy("s", "u", request="r") == copies == store.scopes.copy("s", "u")
    assert len(store.scopes.copy("s", "u", internal=True)) == 3


def test_a_refused_scope_copy_continues_when_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCOPE_PAGE", 2)
    for name in "bcdef":
        store.streams.create(f"s/{name}")
    write(store, "s/a", b"1")
    store.streams.create("t/d")
    with pytest.raises(StreamExists):
        store.scopes.copy("s", "t")
    assert [info.name.name for info in store.streams.list("t")] == ["a", "b", "d"]
    first = store.streams.get("t/a").id
    store.streams.delete("t/d")
    assert len(store.scopes.copy("s", "t")) == 6
    assert [info.name.name for info in store.streams.list("t")] == [*"abcdef"]
    assert store.streams.get("t/a").id == first


def test_unknown_or_equal_scopes_are_refused(store: Store) -> None:
    with pytest.raises(ScopeNotFound):
        store.scopes.copy("none", "u")
    with pytest.raises(InvalidArgument):
        store.scopes.copy("s", "s")
    with pytest.raises(InvalidName):
        store.scopes.copy("s", "no/scope")
