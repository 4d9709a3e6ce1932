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
from tests.store.helpers import bodies_of, sound

Act = Callable[[Store], object]


@pytest.fixture
def store() -> Iterator[Store]:
    """s/a, s/sealed and s/cut (truncated) hold events, s/empty none; s/old was renamed to s/new, s/also is s/a."""
    with ab.connect("memory://") as opened:
        streams = opened.streams
        opened.scopes.create("s")
        for name in ("s/a", "s/sealed", "s/cut", "s/empty", "s/old"):
            streams.create(name)
            if name != "s/empty":
                with opened.writer(name) as writer:
                    writer.write(f"{name} 1".encode(), key="k")
                    writer.write(f"{name} 2".encode(), key="k")
        streams.seal("s/sealed")
        HEAD[:] = [opened.cuts.head("s/cut")]
        streams.truncate("s/cut", opened.cuts.tail("s/cut"))
        streams.rename("s/old", "s/new")
        opened.aliases.add("s/a", "s/also")
        yield opened
        assert sound(opened)


HEAD: list[ab.StreamCut] = []  # where s/cut once began
A, SEALED = [b"s/a 1", b"s/a 2"], [b"s/sealed 1", b"s/sealed 2"]

OUTCOMES: dict[str, tuple[Act, str, list[bytes]]] = {
    "append to itself": (lambda s: s.streams.append("s/a", "s/a"), "s/a", A + A),
    "append to itself by an alias": (lambda s: s.streams.append("s/also", "s/a"), "s/a", A + A),
    "append of nothing": (lambda s: s.streams.append("s/empty", "s/a"), "s/a", A),
    "append to nothing": (lambda s: s.streams.append("s/a", "s/empty"), "s/empty", A),
    "append of what is sealed": (lambda s: s.streams.append("s/sealed", "s/a"), "s/a", A + SEALED),
    "append to what is sealed": (lambda s: s.streams.append("s/a", "s/sealed"), "s/sealed", SEALED + A),
    "append of what was truncated": (lambda s: s.streams.append("s/cut", "s/a"), "s/a", A),
    "copy of nothing": (lambda s: s.streams.copy("s/empty", "s/x"), "s/x", []),
    "copy of what is sealed": (lambda s: s.streams.copy("s/sealed", "s/x"), "s/x", SEALED),
    "copy by an alias": (lambda s: s.streams.copy("s/also", "s/x"), "s/x", A),
    "copy of an empty range": (lambda s: s.streams.copy(ab.StreamRange("s/a", ab.TAIL), "s/x"), "s/x", []),
    "stitch of one": (lambda s: s.streams.stitch(["s/a"], into="s/x"), "s/x", A),
    "stitch with itself": (lambda s: s.streams.stitch(["s/a", "s/also", "s/a"], into="s/x"), "s/x", A + A + A),
    "stitch of nothings": (lambda s: s.streams.stitch(["s/empty", "s/empty"], into="s/x"), "s/x", []),
    "stitch over itself": (lambda s: s.streams.stitch(["s/a", "s/a"], into="s/a", keep_sources=False), "s/a", A + A),
    "stitch of what is sealed": (lambda s: s.streams.stitch(["s/sealed", "s/a"], into="s/x"), "s/x", SEALED + A),
    "truncated at its end": (lambda s: s.streams.truncate("s/a", ab.TAIL), "s/a", []),
    "truncated at a cut's text": (
        lambda s: s.streams.truncate("s/a", str(s.cuts.after("s/a", events=1))),
        "s/a",
        A[1:],
    ),
    "truncated where it begins": (lambda s: s.streams.truncate("s/a", "head"), "s/a", A),
    "rename to itself": (lambda s: s.streams.rename("s/a", "s/a"), "s/a", A),
    "move to where it is": (lambda s: s.streams.move("s/also", "s"), "s/a", A),
}

REFUSALS: dict[str, tuple[Act, type[AnabranchError]]] = {
    "append of nobody": (lambda s: s.streams.append("s/none", "s/a"), StreamNotFound),
    "append to nobody": (lambda s: s.streams.append("s/a", "s/none"), StreamNotFound),
    "append of a former name": (lambda s: s.streams.append("s/old", "s/a"), StreamRenamed),
    "append of what is gone": (lambda s: s.streams.append(ab.StreamRange("s/cut", HEAD[0]), "s/a"), Truncated),
    "append of another's cut": (lambda s: s.streams.append(ab.StreamRange("s/a", HEAD[0]), "s/a"), InvalidCut),
    "append of no place": (lambda s: s.streams.append(ab.StreamRange("s/a", None), "s/a"), InvalidCut),  # type: ignore[arg-type]
    "append backwards": (lambda s: s.streams.append(ab.StreamRange("s/a", ab.TAIL, ab.HEAD), "s/a"), InvalidCut),
    "copy onto itself": (lambda s: s.streams.copy("s/a", "s/a"), StreamExists),
    "copy onto an alias": (lambda s: s.streams.copy("s/a", "s/also"), StreamExists),
    "copy of a range onto an alias": (lambda s: s.streams.copy(ab.StreamRange("s/a", ab.TAIL), "s/also"), StreamExists),
    "copy into no scope": (lambda s: s.streams.copy("s/a", "none/a"), ScopeNotFound),
    "copy of a former name": (lambda s: s.streams.copy("s/old", "s/x"), StreamRenamed),
    "stitch of no streams": (lambda s: s.streams.stitch([], into="s/x"), InvalidArgument),
    "stitch of no list": (lambda s: s.streams.stitch("s/a", into="s/x"), InvalidArgument),
    "stitch into no scope": (lambda s: s.streams.stitch(["s/a"], into="none/a"), ScopeNotFound),
    "stitch onto a source": (lambda s: s.streams.stitch(["s/a", "s/empty"], into="s/a"), StreamExists),
    "stitch onto another": (lambda s: s.streams.stitch(["s/a"], into="s/new", keep_sources=False), StreamExists),
    "stitch of a former name": (lambda s: s.streams.stitch(["s/a", "s/old"], into="s/x"), StreamRenamed),
    "rename onto another": (lambda s: s.streams.rename("s/a", "s/new"), StreamExists),
    "rename into no scope": (lambda s: s.streams.rename("s/a", "none/a"), ScopeNotFound),
    "rename of a former name": (lambda s: s.streams.rename("s/old", "s/x"), StreamRenamed),
    "move to no scope": (lambda s: s.streams.move("s/a", "none"), ScopeNotFound),
    "alias in no scope": (lambda s: s.aliases.add("s/a", "none/a"), ScopeNotFound),
    "alias of a former name": (lambda s: s.aliases.add("s/old", "s/x"), StreamRenamed),
    "copy of no scope": (lambda s: s.scopes.copy("none", "t"), ScopeNotFound),
    "copy of a scope onto itself": (lambda s: s.scopes.copy("s", "s"), InvalidArgument),
    "no scope moved": (lambda s: s.scopes.rename("none", "t"), ScopeNotFound),
    "truncated at no place": (lambda s: s.streams.truncate("s/a", None), InvalidCut),  # type: ignore[arg-type]
    "truncated at a time": (lambda s: s.streams.truncate("s/a", "2026-01-31"), InvalidCut),
    "truncated at another's cut": (lambda s: s.streams.truncate("s/a", HEAD[0]), InvalidCut),
    "truncated before the head": (lambda s: s.streams.truncate("s/cut", str(HEAD[0])), Truncated),
    "distance to no place": (lambda s: s.cuts.distance("s/a", 5), InvalidCut),  # type: ignore[arg-type]
    "kept for a word": (lambda s: s.policies.retention("s/a", "7d"), InvalidArgument),  # type: ignore[arg-type]
    "made to be kept for a word": (lambda s: s.streams.create("s/x", retention="7d"), InvalidArgument),  # type: ignore[arg-type]
    "scaled by a word": (lambda s: s.policies.scaling("s/a", "3"), InvalidArgument),  # type: ignore[arg-type]
    "ephemeral by load": (lambda s: s.ephemeral.create("s/x", scaling=ab.ByEventRate(5)), InvalidArgument),  # type: ignore[arg-type]
    "tagged by a list": (lambda s: s.streams.tag("s/a", ["x"]), InvalidArgument),  # type: ignore[arg-type]
    "no scope deleted": (lambda s: s.scopes.delete("none", recursive=True), ScopeNotFound),
}


def seen(store: Store) -> dict[str, object]:
    streams = store.streams
    return {str(info.name): (streams.view(info.id), bodies_of(store, str(info.name))) for info in streams.list()}


@pytest.mark.parametrize("case", OUTCOMES)
def test_operations_have_the_expected_result(store: Store, case: str) -> None:
    act, stream, expected = OUTCOMES[case]
    sealed = store.streams.get(stream).sealed if store.streams.exists(stream) else False
    act(store)
    assert bodies_of(store, stream) == expected
    assert store.streams.get(stream).sealed == sealed
    if not sealed:
        with store.writer(stream) as writer:
            writer.write(b"more", key="k").result()
        assert bodies_of(store, stream) == [*expected, b"more"]


@pytest.mark.parametrize("case", REFUSALS)
def test_invalid_calls_are_refused_and_change_nothing(store: Store, case: str) -> None:
    act, error = REFUSALS[case]
    before = seen(store), store.scopes.list(), store.aliases.of()
    with pytest.raises(error) as caught:
        act(store)
    assert type(caught.value) is error
    assert len(str(caught.value)) > 10
    assert (seen(store), store.scopes.list(), store.aliases.of()) == before
