"""From what the processes told, and what the store holds in the end, to the list of violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import anabranch as ab
from anabranch.log.check import Severity
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.testing.ledger import Event, Ledger, Reading, Sighting
from torture.child import Child


@dataclass
class Told:
    """The writers and followers of one stream; `followers` in the order in which each went on behind the last."""

    stream: str
    writers: list[Child] = field(default_factory=list)
    followers: list[Child] = field(default_factory=list)


def event_of(text: str) -> Event:
    """The event that a line names."""
    writer, key, number = text.split("|")
    return Event(writer, key, int(number))


def ledger_of(told: Told, ident: StreamId, counts: Counter[str]) -> Ledger:
    """What the stream's writers attempted and were told. `counts` gets the answers by kind."""
    ledger = Ledger(told.stream)
    for child in told.writers:
        for word, *rest in child.lines():
            if word in ("try", "unit"):
                events = [_attempted(ledger, text) for text in rest]
                if word == "unit":
                    ledger.unit(events)
            elif word == "acked":
                ledger.acked(event_of(rest[0]), EventPointer.parse(rest[1]))
                counts["acknowledged events"] += 1
            elif word == "refused":
                counts[f"refused: {rest[0]}"] += len(rest) - 1
                for text in rest[1:]:
                    ledger.refused(event_of(text))
            elif word == "unknown":
                counts["outcome unknown"] += len(rest)
                for text in rest:
                    ledger.unknown(event_of(text))
    ledger.readings.append(_followed(told, ident))
    return ledger


def _attempted(ledger: Ledger, text: str) -> Event:
    event = event_of(text)
    made = ledger.attempt(event.writer, event.key)
    assert made == event, f"the writer skipped a number: {text}"
    return made


def _followed(told: Told, ident: StreamId) -> Reading:
    """All that the followers saw one after the other: what a killed one saw behind its last position was seen again by
    the next."""
    reading = Reading("follower")
    for child in told.followers:
        fresh: list[Sighting] = []
        for word, *rest in child.lines():
            if word == "saw":
                fresh += (_sighting(ident, text) for text in rest)
            elif word == "at":
                reading.seen += fresh
                fresh = []
    return reading


def _sighting(ident: StreamId, text: str) -> Sighting:
    segment, offset, payload = text.split(":", 2)
    return Sighting(EventPointer(ident, SegmentId.unpack(int(segment)), int(offset)), payload.encode())


def violations(store: ab.Store, streams: Iterable[Told], counts: Counter[str]) -> list[str]:
    """Everything that must not be. Reads the whole store; nobody else may be at work on it."""
    found: list[str] = []
    for told in streams:
        ledger = ledger_of(told, store.streams.get(told.stream).id, counts)
        with store.reader(told.stream) as reader:
            stored = [Sighting(event.pointer, event.body.rstrip(b"x")) for event in reader]
        counts["events in the store"] += len(stored)
        counts["events followed"] += len(ledger.readings[0].seen)
        ledger.readings[0].owed = frozenset(event for event in ledger.pointers)
        ledger.readings[0].finished = True
        found += ledger.judge(stored)
    # Clocks that jump leave a horizon ahead of the time, of which `check` warns by right.
    found += [f"check: {finding}" for finding in store.check() if finding.severity is Severity.ERROR]
    return found


def complaints(children: Sequence[Child]) -> tuple[list[str], Counter[str]]:
    """What ended a process that should not have, and which errors they met and went on from."""
    raised: list[str] = []
    met = Counter[str]()
    for child in children:
        for word, *rest in child.lines():
            if word == "raised":
                raised.append(f"{child.name}: {' '.join(rest)}")
            elif word == "met":
                met[rest[0]] += 1
            elif word == "did":
                met[f"done: {rest[0]}"] += 1
    return raised, met
