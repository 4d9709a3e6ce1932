"""Streams that are built of parts: seen whole or not at all, and nothing is left of what was not finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import anabranch as ab
from anabranch.core.stitch import JoinResult
from anabranch.errors import AppendUncertain, Closed, InvalidArgument, LeaseExpired, StreamExists, StreamNotFound
from anabranch.store import Store
from anabranch.streams.builder import StreamBuilder
from anabranch.streams.ephemeral.keep_alive import Held
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import SCHEMA, bodies_of, sound


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    url = "memory://" if request.param == "memory" else fresh_url()
    with ab.connect(url, blobs=None if request.param == "memory" else "memory://", create=True) as opened:
        opened.scopes.create("s")
        for name in ("s/a", "s/b"):
            opened.streams.create(name)
            write(opened, name, b"1", b"2")
        yield opened
        assert sound(opened)
        assert [info.name for info in opened.streams.list(internal=True) if info.name.scope != "s"] == []
    if request.param == "postgres":
        drop(url)


def write(store: Store, stream: str, *bodies: bytes) -> list[ab.EventPointer]:
    with store.writer(stream) as writer:
        return [writer.write(body, key="k").result() for body in bodies]


def test_parts_are_stitched_in_their_order_at_the_end(store: Store) -> None:
    (pointer,) = write(store, "s/b", b"3")
    middle = store.cuts.tail("s/a")
    write(store, "s/a", b"late")
    with store.streams.builder("s/all") as parts:
        parts.add("s/b")
        with parts.writer() as writer:
            writer.write(b"written", key="k")
        parts.add(ab.StreamRange("s/a", start=middle))
        open_still = parts.writer(scaling=2)
        open_still.write(b"again", key="k")
        store.streams.rename("s/b", "s/c")  # is known by its id
        write(store, "s/a", b"later")  # the tail is where it is at the end
        parts.add("s/c")
        assert not store.streams.exists("s/all")
        with pytest.raises(InvalidArgument, match="does not exist yet"):
            _ = parts.joined
    expected = [b"1", b"2", b"3", b"written", b"late", b"later", b"again", b"1", b"2", b"3"]
    assert bodies_of(store, "s/all") == expected
    assert [store.fetch(each).body for each in parts.joined.pointers(pointer)] == [b"3", b"3"]
    assert bodies_of(store, "s/c") == [b"1", b"2", b"3"]
    write(store, "s/all", b"new")
    assert bodies_of(store, "s/all")[-1] == b"new"
    with pytest.raises(Closed):
        parts.add("s/a")


def test_written_parts_have_the_columns_of_the_first(store: Store) -> None:
    store.streams.create("s/typed", schema=SCHEMA, key="device", time="at")
    with store.streams.builder("s/all") as parts:
        parts.add("s/typed")
        parts.writer().write({"device": "a", "n": 1})
    assert store.streams.get("s/all").schema == store.streams.get("s/typed").schema
    assert [body["n"] for body in bodies_of(store, "s/all")] == [1]
    with store.streams.builder("s/own") as parts:
        parts.writer(schema=SCHEMA, key="device").write({"device": "a", "n": 2})
    assert [body["n"] for body in bodies_of(store, "s/own")] == [2]


def test_written_parts_are_deleted_by_the_stitch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "leave", lambda held: None)  # as where the process is killed behind it
    with store.streams.builder("s/all") as parts:
        parts.writer().write(b"written", key="k")
    assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/a", "s/all", "s/b"]


def test_an_abandoned_build_leaves_nothing(store: Store) -> None:
    def give_up(parts: StreamBuilder) -> None:
        parts.add("s/a")
        parts.writer().write(b"never")
        raise ZeroDivisionError

    def name_nobody(parts: StreamBuilder) -> None:
        parts.add("s/none")

    def lose(parts: StreamBuilder) -> None:
        parts.add("s/a")
        store.streams.delete("s/a")

    cases: list[tuple[str, type[Exception], Callable[[StreamBuilder], None]]] = [
        ("s/all", ZeroDivisionError, give_up),
        ("s/all", InvalidArgument, lambda parts: None),
        ("s/a", StreamExists, lambda parts: None),
        ("s/all", StreamNotFound, name_nobody),
        ("s/all", StreamNotFound, lose),
    ]
    for into, error, act in cases:
        with pytest.raises(error), store.streams.builder(into) as parts:
            act(parts)
        assert not store.streams.exists("s/all")


def test_a_swept_part_raises_lease_expired(store: Store) -> None:
    def let_it_be_swept(parts: StreamBuilder) -> None:
        parts.writer()
        (swept,) = [info.name for info in store.streams.list(internal=True) if info.name.scope != "s"]
        store.streams.delete(swept)

    with pytest.raises(LeaseExpired, match="did not renew its hold"), store.streams.builder("s/all") as parts:
        let_it_be_swept(parts)


def test_a_repeated_build_request_is_applied_once(store: Store) -> None:
    def build() -> JoinResult:
        with store.streams.builder("s/all", request="r") as parts:
            parts.add("s/a")
            parts.writer().write(b"written", key="k")
        return parts.joined

    first = build()
    assert build() == first
    assert bodies_of(store, "s/all") == [b"1", b"2", b"written"]
    store.streams.delete("s/all")
    assert build() == first and not store.streams.exists("s/all")


def test_an_unknown_outcome_loses_no_written_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.streams import builder
    from anabranch.streams.algebra import stitch

    lost = [1]

    def stitch_and_lose(*arguments: object, **how: object) -> object:
        result = whole(*arguments, **how)  # type: ignore[arg-type]
        if lost[0]:
            lost[0] -= 1
            raise AppendUncertain("it was undone, in fact")
        return result

    whole = stitch.stitch_streams
    monkeypatch.setattr(builder, "stitch_streams", stitch_and_lose)
    with store.streams.builder("s/all") as parts:
        parts.writer().write(b"written", key="k")
    assert lost == [0]
    assert bodies_of(store, "s/all") == [b"written"]
