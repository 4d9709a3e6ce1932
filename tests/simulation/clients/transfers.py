"""Shared by the clients that copy, append and stitch: sources, heirs, and the record of each transfer (`Joint`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.model.cut import HEAD
from anabranch.model.stream_range import StreamRange
from tests.simulation.clients.arena import Arena
from tests.simulation.clients.write import Hand
from tests.simulation.inheritance import Joint, Place
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["STREAMS_MAX", "Source", "begin", "fresh", "known", "related", "some_range", "whole"]

STREAMS_MAX = 14  # so that judging stays fast
Source = tuple[str | StreamRange, frozenset[Place] | None]


def whole(ledger: Ledger) -> Source:
    """Returns the range of a whole stream."""
    return ledger.stream, None


def some_range(arena: Arena, store: Store, ledger: Ledger) -> Source:
    """Returns a range of a stream between two cuts, and its events."""
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
    """Creates a stream with a few events, which no other client writes to."""
    ledger = arena.new_stream(store, active=False)
    with arena.client(store, name).writer(ledger.stream) as writer:
        hand = Hand(arena, store, ledger, writer, f"{name}.{arena.serial()}")
        hand.burst()
        hand.settle()
    return ledger


def begin(arena: Arena, name: str, source: Ledger, heir: Ledger, exact: frozenset[Place] | None) -> Joint:
    """Returns the joint of a transfer that is about to be requested."""
    joint = Joint(name, source, heir, arena.recorder.moment(), exact)
    joint.ask()
    return joint


def related(arena: Arena, one: Ledger, other: Ledger) -> bool:
    """True if both streams may hold an event of the same origin: events in one stream must have different names."""
    return not _origins(arena, one).isdisjoint(_origins(arena, other))


def known(arena: Arena, ledger: Ledger) -> bool:
    """True if no answer is pending that decides what the stream, or a stream it took over from, took over."""
    origins = _origins(arena, ledger)
    awaited = [joint for group in list(arena.joints.values()) for joint in group if joint.completed is None]
    return origins.isdisjoint(joint.heir.label for joint in awaited)


def _origins(arena: Arena, ledger: Ledger) -> set[str]:
    """Returns the streams whose events it may hold, by all requests, answered or not. The sources of an unanswered
    stitch count as each other's origins: what one of them took from another before the stitch would be in the result
    twice."""
    found, todo = {ledger.label}, [ledger]
    while todo:
        each = todo.pop()
        for group in list(arena.joints.values()):
            sources = [joint.source for joint in group]
            if group[0].heir is each or (each in sources and group[0].completed is None):
                todo += [source for source in sources if source.label not in found]
                found |= {source.label for source in sources}
    return found
