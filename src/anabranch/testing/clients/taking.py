"""What the clients of the algebra share: sources, heirs, and what is noted of a taking over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.core.stitch import Moved
from anabranch.model.cut import HEAD
from anabranch.model.ids import SegmentId
from anabranch.model.stream_range import StreamRange
from anabranch.testing.clients.arena import Arena
from anabranch.testing.clients.write import Hand
from anabranch.testing.inheritance import Joint, Place
from anabranch.testing.ledger import Ledger, Part

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["STREAMS_MAX", "Source", "begin", "fresh", "known", "moved", "related", "some_range", "whole"]

STREAMS_MAX = 14  # so that the judgement stays short
Source = tuple[str | StreamRange, frozenset[Place] | None]


def whole(ledger: Ledger) -> Source:
    """All of a stream."""
    return ledger.stream, None


def some_range(arena: Arena, store: Store, ledger: Ledger) -> Source:
    """Some events of a stream between two cuts, and which they are."""
    name = ledger.stream
    with store.reader(name, start=HEAD) as reader:
        start = reader.position
        for _ in zip(range(arena.rng.randrange(0, 8)), reader, strict=False):
            start = reader.position
        places, end = [], start
        for _, event in zip(range(arena.rng.randrange(0, 12)), reader, strict=False):
            places.append((event.pointer.segment, event.pointer.offset))
            end = reader.position
    return StreamRange(name, start, end), frozenset(places)


def fresh(arena: Arena, store: Store, name: str) -> Ledger:
    """A new stream with a few events, which nobody else writes to."""
    ledger = arena.new_stream(store, active=False)
    with arena.client(store, name).writer(ledger.stream) as writer:
        hand = Hand(arena, store, ledger, writer, f"{name}.{arena.serial()}")
        hand.burst()
        hand.settle()
    return ledger


def begin(arena: Arena, name: str, source: Ledger, heir: Ledger, exact: frozenset[Place] | None) -> Joint:
    """A taking over that is about to be asked for."""
    joint = Joint(name, source, heir, arena.recorder.moment(), exact)
    joint.ask()
    return joint


def moved(joint: Joint, moves: tuple[Moved, ...]) -> Mapping[SegmentId, Part]:
    """What the answer to an append or a stitch says of one source."""
    return {move.new: Part(joint.source, move.old, move.start, move.stop) for move in moves}


def related(arena: Arena, one: Ledger, other: Ledger) -> bool:
    """True if both may hold an event of one origin: an event's name tells no two of them apart in one stream."""
    return not _origins(arena, one).isdisjoint(_origins(arena, other))


def known(arena: Arena, ledger: Ledger) -> bool:
    """True if no answer is awaited that says what it took over, or those from which it did."""
    origins = _origins(arena, ledger)
    awaited = [joint for group in list(arena.joints.values()) for joint in group if joint.completed is None]
    return origins.isdisjoint(joint.heir.label for joint in awaited)


def _origins(arena: Arena, ledger: Ledger) -> set[str]:
    """The streams whose events it may hold, by what was asked for, be it answered or not. The sources of a stitch that is
    not answered are among each other's: what one of them got from another before it was made would be in it twice."""
    found, todo = {ledger.label}, [ledger]
    while todo:
        each = todo.pop()
        for group in list(arena.joints.values()):
            sources = [joint.source for joint in group]
            if group[0].heir is each or (each in sources and group[0].completed is None):
                todo += [source for source in sources if source.label not in found]
                found |= {source.label for source in sources}
    return found
