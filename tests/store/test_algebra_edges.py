"""Streams of streams at their edges: what comes of nothing, of one stream twice, of what is sealed; and one clear error for
what can't be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import anabranch as ab
from anabranch.errors import (
    AnabranchError,
    InvalidArgument,
    InvalidCut,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamRenamed,
    Truncated,
)
from anabranch.store import Store
from anabranch.streams.manager import Streams
from tests.store.helpers import bodies_of, sound

Act = Callable[[Streams], object]


@pytest.fixture
def store() -> Iterator[Store]:
    """s/a, s/sealed and s/cut (truncated) hold events, s/empty none; s/old was renamed to s/new, s/also is s/a."""
    with ab.connect("memory://") as opened:
        streams = opened.streams
        streams.create_scope("s")
        for name in ("s/a", "s/sealed", "s/cut", "s/empty", "s/old"):
            streams.create(name)
            if name != "s/empty":
                with opened.writer(name) as writer:
                    writer.write(f"{name} 1".encode(), key="k")
                    writer.write(f"{name} 2".encode(), key="k")
        streams.seal("s/sealed")
        HEAD[:] = [streams.head("s/cut")]
        streams.truncate("s/cut", streams.tail("s/cut"))
        streams.rename("s/old", "s/new")
        streams.alias("s/a", "s/also")
        yield opened
        assert sound(opened)


HEAD: list[ab.StreamCut] = []  # where s/cut once began
A, SEALED = [b"s/a 1", b"s/a 2"], [b"s/sealed 1", b"s/sealed 2"]

OUTCOMES: dict[str, tuple[Act, str, list[bytes]]] = {
    "append to itself": (lambda s: s.append("s/a", "s/a"), "s/a", A + A),
    "append to itself by an alias": (lambda s: s.append("s/also", "s/a"), "s/a", A + A),
    "append of nothing": (lambda s: s.append("s/empty", "s/a"), "s/a", A),
    "append to nothing": (lambda s: s.append("s/a", "s/empty"), "s/empty", A),
    "append of what is sealed": (lambda s: s.append("s/sealed", "s/a"), "s/a", A + SEALED),
    "append to what is sealed": (lambda s: s.append("s/a", "s/sealed"), "s/sealed", SEALED + A),
    "append of what was truncated": (lambda s: s.append("s/cut", "s/a"), "s/a", A),
    "copy of nothing": (lambda s: s.copy("s/empty", "s/x"), "s/x", []),
    "copy of what is sealed": (lambda s: s.copy("s/sealed", "s/x"), "s/x", SEALED),
    "copy by an alias": (lambda s: s.copy("s/also", "s/x"), "s/x", A),
    "copy of an empty range": (lambda s: s.copy(ab.StreamRange("s/a", ab.TAIL), "s/x"), "s/x", []),
    "stitch of one": (lambda s: s.stitch(["s/a"], into="s/x"), "s/x", A),
    "stitch with itself": (lambda s: s.stitch(["s/a", "s/also", "s/a"], into="s/x"), "s/x", A + A + A),
    "stitch of nothings": (lambda s: s.stitch(["s/empty", "s/empty"], into="s/x"), "s/x", []),
    "stitch over itself": (lambda s: s.stitch(["s/a", "s/a"], into="s/a", keep_sources=False), "s/a", A + A),
    "stitch of what is sealed": (lambda s: s.stitch(["s/sealed", "s/a"], into="s/x"), "s/x", SEALED + A),
    "truncated at its end": (lambda s: s.truncate("s/a", ab.TAIL), "s/a", []),
    "truncated at a cut's text": (lambda s: s.truncate("s/a", str(s.cut_after("s/a", events=1))), "s/a", A[1:]),
    "truncated where it begins": (lambda s: s.truncate("s/a", "head"), "s/a", A),
    "rename to itself": (lambda s: s.rename("s/a", "s/a"), "s/a", A),
    "move to where it is": (lambda s: s.move("s/also", "s"), "s/a", A),
}

REFUSALS: dict[str, tuple[Act, type[AnabranchError]]] = {
    "append of nobody": (lambda s: s.append("s/none", "s/a"), StreamNotFound),
    "append to nobody": (lambda s: s.append("s/a", "s/none"), StreamNotFound),
    "append of a former name": (lambda s: s.append("s/old", "s/a"), StreamRenamed),
    "append of what is gone": (lambda s: s.append(ab.StreamRange("s/cut", HEAD[0]), "s/a"), Truncated),
    "append of another's cut": (lambda s: s.append(ab.StreamRange("s/a", HEAD[0]), "s/a"), InvalidCut),
    "append of no place": (lambda s: s.append(ab.StreamRange("s/a", None), "s/a"), InvalidCut),  # type: ignore[arg-type]
    "append backwards": (lambda s: s.append(ab.StreamRange("s/a", ab.TAIL, ab.HEAD), "s/a"), InvalidCut),
    "copy onto itself": (lambda s: s.copy("s/a", "s/a"), StreamExists),
    "copy onto an alias": (lambda s: s.copy("s/a", "s/also"), StreamExists),
    "copy of a range onto an alias": (lambda s: s.copy(ab.StreamRange("s/a", ab.TAIL), "s/also"), StreamExists),
    "copy into no scope": (lambda s: s.copy("s/a", "none/a"), ScopeNotFound),
    "copy of a former name": (lambda s: s.copy("s/old", "s/x"), StreamRenamed),
    "stitch of no streams": (lambda s: s.stitch([], into="s/x"), InvalidArgument),
    "stitch of no list": (lambda s: s.stitch("s/a", into="s/x"), InvalidArgument),
    "stitch into no scope": (lambda s: s.stitch(["s/a"], into="none/a"), ScopeNotFound),
    "stitch onto a source": (lambda s: s.stitch(["s/a", "s/empty"], into="s/a"), StreamExists),
    "stitch onto another": (lambda s: s.stitch(["s/a"], into="s/new", keep_sources=False), StreamExists),
    "stitch of a former name": (lambda s: s.stitch(["s/a", "s/old"], into="s/x"), StreamRenamed),
    "rename onto another": (lambda s: s.rename("s/a", "s/new"), StreamExists),
    "rename into no scope": (lambda s: s.rename("s/a", "none/a"), ScopeNotFound),
    "rename of a former name": (lambda s: s.rename("s/old", "s/x"), StreamRenamed),
    "move to no scope": (lambda s: s.move("s/a", "none"), ScopeNotFound),
    "alias in no scope": (lambda s: s.alias("s/a", "none/a"), ScopeNotFound),
    "alias of a former name": (lambda s: s.alias("s/old", "s/x"), StreamRenamed),
    "copy of no scope": (lambda s: s.copy_scope("none", "t"), ScopeNotFound),
    "copy of a scope onto itself": (lambda s: s.copy_scope("s", "s"), InvalidArgument),
    "no scope moved": (lambda s: s.move_scope("none", "t"), ScopeNotFound),
    "truncated at no place": (lambda s: s.truncate("s/a", None), InvalidCut),  # type: ignore[arg-type]
    "truncated at a time": (lambda s: s.truncate("s/a", "2026-01-31"), InvalidCut),
    "truncated at another's cut": (lambda s: s.truncate("s/a", HEAD[0]), InvalidCut),
    "truncated before the head": (lambda s: s.truncate("s/cut", str(HEAD[0])), Truncated),
    "distance to no place": (lambda s: s.distance("s/a", 5), InvalidCut),  # type: ignore[arg-type]
    "kept for a word": (lambda s: s.retention("s/a", "7d"), InvalidArgument),  # type: ignore[arg-type]
    "made to be kept for a word": (lambda s: s.create("s/x", retention="7d"), InvalidArgument),  # type: ignore[arg-type]
    "scaled by a word": (lambda s: s.scaling("s/a", "3"), InvalidArgument),  # type: ignore[arg-type]
    "ephemeral by load": (lambda s: s.ephemeral("s/x", scaling=ab.ByEventRate(5)), InvalidArgument),  # type: ignore[arg-type]
    "tagged by a list": (lambda s: s.tag("s/a", ["x"]), InvalidArgument),  # type: ignore[arg-type]
    "no scope deleted": (lambda s: s.delete_scope("none", recursive=True), ScopeNotFound),
}


def seen(store: Store) -> dict[str, object]:
    streams = store.streams
    return {str(info.name): (streams.view(info.id), bodies_of(store, str(info.name))) for info in streams.list()}


@pytest.mark.parametrize("case", OUTCOMES)
def test_what_comes_of_it(store: Store, case: str) -> None:
    act, stream, expected = OUTCOMES[case]
    sealed = store.streams.get(stream).sealed if store.streams.exists(stream) else False
    act(store.streams)
    assert bodies_of(store, stream) == expected
    assert store.streams.get(stream).sealed == sealed
    if not sealed:
        with store.writer(stream) as writer:
            writer.write(b"more", key="k").result()
        assert bodies_of(store, stream) == [*expected, b"more"]


@pytest.mark.parametrize("case", REFUSALS)
def test_what_can_not_be_is_refused_and_changes_nothing(store: Store, case: str) -> None:
    act, error = REFUSALS[case]
    before = seen(store), store.streams.scopes(), store.streams.aliases()
    with pytest.raises(error) as caught:
        act(store.streams)
    assert type(caught.value) is error
    assert len(str(caught.value)) > 10
    assert (seen(store), store.streams.scopes(), store.streams.aliases()) == before
