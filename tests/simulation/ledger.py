"""The ledger: what clients of a store wrote, which answers they got and what they saw; and the judgement of the final
content.

Pure: it uses no store. An event's payload names it: `writer|key|number|padding`, numbered per writer and key, so that
what is found in a stream can be compared with what was written. No two ledgers share a writer's name. What a stream
took over from others is judged by `inheritance`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple

from anabranch.model.ids import SegmentId
from anabranch.model.pointer import EventPointer

__all__ = ["Event", "Fate", "Ledger", "Part", "Reading", "Sighting", "told"]

_SHOWN_MAX = 5  # examples of one kind of violation


class Event(NamedTuple):
    """One event's name; the numbers of a writer and key rise in the order of writing."""

    writer: str
    key: str
    number: int

    def payload(self, padding: int = 0) -> bytes:
        """Returns the event's bytes."""
        return f"{self.writer}|{self.key}|{self.number}|".encode() + b"x" * padding

    @classmethod
    def parse(cls, payload: bytes) -> Event | None:
        """Returns the event that the bytes name, or None if they name none."""
        parts = payload.split(b"|")
        if len(parts) != 4 or not parts[2].isdigit() or parts[3].strip(b"x"):
            return None
        return cls(parts[0].decode(errors="replace"), parts[1].decode(errors="replace"), int(parts[2]))

    def __str__(self) -> str:
        return f"{self.writer}/{self.key}:{self.number}"


class Fate(Enum):
    """What its writer knows of an event."""

    PENDING = "pending"  # written, no answer yet: it may be stored
    ACKED = "acked"  # it must be stored
    REFUSED = "refused"  # it must not be stored
    UNKNOWN = "unknown"  # the answer was lost: it may be stored


class Sighting(NamedTuple):
    """An event as a reader yielded it."""

    pointer: EventPointer
    payload: bytes


@dataclass
class Reading:
    """One reader's history. `owed`: events acknowledged before it began, which it must have seen if it `finished`."""

    name: str
    owed: frozenset[Event] = frozenset()
    whole: bool = True  # it began at the head
    finished: bool = False
    seen: list[Sighting] = field(default_factory=list)


class Part(NamedTuple):
    """The offsets `start <= offset < stop` of a segment were taken over from the source's segment `old`."""

    source: Ledger
    old: SegmentId
    start: int
    stop: int


class Ledger:
    """The history of one stream. `stream` is its present name, `label` its first one. `gone`: it was merged into
    another stream, and is no longer read. `parts` has what its segments took over, at most one part each."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.label = stream
        self.gone = False
        self.parts: dict[SegmentId, Part] = {}
        self.places: dict[tuple[SegmentId, int], Event] = {}
        self.fates: dict[Event, Fate] = {}
        self.pointers: dict[Event, EventPointer] = {}
        self.units: list[tuple[Event, ...]] = []
        self.readings: list[Reading] = []
        self._numbers: dict[tuple[str, str], Iterator[int]] = {}
        self._acked: set[Event] = set()

    # history

    def attempt(self, writer: str, key: str) -> Event:
        """Records a new event that is about to be written."""
        event = Event(writer, key, next(self._numbers.setdefault((writer, key), count())))
        self.fates[event] = Fate.PENDING
        return event

    def acked(self, event: Event, pointer: EventPointer | None) -> None:
        """The store acknowledged the event as durable, at `pointer` if the answer contained it."""
        self.fates[event] = Fate.ACKED
        self._acked.add(event)
        if pointer is not None:
            self.pointers[event] = pointer
            self.places[pointer.segment, pointer.offset] = event

    def refused(self, event: Event) -> None:
        """The store refused the event."""
        self.fates[event] = Fate.REFUSED

    def unknown(self, event: Event) -> None:
        """The store reported an unknown outcome."""
        self.fates[event] = Fate.UNKNOWN

    def unit(self, events: Iterable[Event]) -> None:
        """These events must all be stored at the end, or none."""
        self.units.append(tuple(events))

    def reading(self, name: str, *, whole: bool = True) -> Reading:
        """Records that a reader begins; `whole` if at the head."""
        reading = Reading(name, self.owed if whole else frozenset(), whole)
        self.readings.append(reading)
        return reading

    @property
    def owed(self) -> frozenset[Event]:
        """Returns the events that were acknowledged so far."""
        return frozenset(self._acked)

    def inherits(self, segment: SegmentId, offset: int) -> Part | None:
        """Returns what was taken over at this place."""
        part = self.parts.get(segment)
        return part if part is not None and part.start <= offset < part.stop else None

    def count(self, fate: Fate) -> int:
        """Returns how many events have this fate."""
        return sum(each is fate for each in self.fates.values())

    # judgement

    def judge(self, stored: Sequence[Sighting], heads: Mapping[SegmentId, int] | None = None) -> list[str]:
        """Returns violations, given the whole stream as read from head to tail. Empty if there are none.

        `heads`: the first readable offset of each segment. Earlier events may be missing.
        """
        born = {segment: part.start for segment, part in self.parts.items()}
        first = {**born, **(heads or {})}
        heads = {segment: head for segment, head in (heads or {}).items() if head > born.get(segment, 0)}
        events = [(sighting, Event.parse(sighting.payload)) for sighting in stored]
        own = [(s, event) for s, event in events if not self.inherits(s.pointer.segment, s.pointer.offset)]
        found = [
            *self._unknown_or_doubled(own),
            *self._lost(own, heads),
            *self._disordered("the stream", [event for _, event in events if event]),
            *_holes("the stream", [sighting.pointer for sighting in stored], first),
            *([] if heads else self._torn({event for _, event in own if event})),
        ]
        content = {sighting.pointer: sighting.payload for sighting in stored}
        for reading in self.readings:
            found += self._misread(reading, content, heads, born)
        return [f"{self.stream}: {text}" for text in found]

    def _unknown_or_doubled(self, events: Sequence[tuple[Sighting, Event | None]]) -> list[str]:
        strange = [f"{s.pointer} holds {s.payload[:60]!r}" for s, e in events if e is None or e not in self.fates]
        refused = [f"{e} at {s.pointer}" for s, e in events if e and self.fates.get(e) is Fate.REFUSED]
        places: dict[Event, list[str]] = defaultdict(list)
        for sighting, event in events:
            if event:
                places[event].append(str(sighting.pointer))
        doubled = [f"{event} at {', '.join(at)}" for event, at in places.items() if len(at) > 1]
        return [
            *told("nobody wrote it", strange),
            *told("refused, and yet there", refused),
            *told("stored more than once", doubled),
        ]

    def _lost(self, events: Sequence[tuple[Sighting, Event | None]], heads: Mapping[SegmentId, int]) -> list[str]:
        where = {event: sighting.pointer for sighting, event in events if event}
        lost = [
            f"{event} at {self.pointers.get(event, 'a place unknown')}"
            for event, fate in self.fates.items()
            if fate is Fate.ACKED and event not in where and not self._gone(event, heads)
        ]
        moved = [
            f"{event}: acknowledged at {pointer}, found at {where[event]}"
            for event, pointer in self.pointers.items()
            if event in where and where[event] != pointer
        ]
        return [*told("acknowledged, and not there", lost), *told("not where it was acknowledged", moved)]

    def _gone(self, event: Event, heads: Mapping[SegmentId, int]) -> bool:
        """True if the event may have been truncated."""
        pointer = self.pointers.get(event)
        return bool(heads) if pointer is None else _before(pointer, heads)

    def _disordered(self, where: str, events: Iterable[Event]) -> list[str]:
        last: dict[tuple[str, str], int] = {}
        wrong = []
        for event in events:
            before = last.get((event.writer, event.key), -1)
            if event.number < before:
                wrong.append(f"{event} behind number {before}")
            last[event.writer, event.key] = max(before, event.number)
        return told(f"out of order in {where}", wrong)

    def _torn(self, there: set[Event]) -> list[str]:
        torn = []
        for unit in self.units:
            have = sum(event in there for event in unit)
            if have not in (0, len(unit)):
                torn.append(f"{have} of the {len(unit)} events from {unit[0]} on")
        return told("torn atomic unit", torn)

    def _misread(
        self,
        reading: Reading,
        content: Mapping[EventPointer, bytes],
        heads: Mapping[SegmentId, int],
        born: Mapping[SegmentId, int],
    ) -> list[str]:
        name = f"reader {reading.name}"
        events = [event for sighting in reading.seen if (event := Event.parse(sighting.payload))]
        wrong = [
            f"{s.payload[:60]!r} at {s.pointer}"
            for s in reading.seen
            if content.get(s.pointer) != s.payload and not _before(s.pointer, heads)
        ]
        unseen = sorted(reading.owed - set(events)) if reading.finished else []
        missed = [str(event) for event in unseen if not self._gone(event, heads)]
        return [
            *told(f"{name} saw what is not stored there", wrong),
            *self._disordered(name, events),
            *_holes(name, [s.pointer for s in reading.seen], born if reading.whole and not heads else None),
            *told(f"{name} began after these were acknowledged and did not see them", missed),
        ]


def _before(pointer: EventPointer, heads: Mapping[SegmentId, int]) -> bool:
    return pointer.offset < heads.get(pointer.segment, 0)


def _holes(where: str, pointers: Iterable[EventPointer], heads: Mapping[SegmentId, int] | None) -> list[str]:
    """Offsets of a segment rise by one, from its head, or from any offset if `heads` is None."""
    expected: dict[SegmentId, int] = {}
    wrong = []
    for pointer in pointers:
        first = pointer.offset if heads is None else heads.get(pointer.segment, 0)
        wanted = expected.get(pointer.segment, first)
        if pointer.offset != wanted:
            wrong.append(f"segment {pointer.segment} goes on at {pointer.offset}, not {wanted}")
        expected[pointer.segment] = pointer.offset + 1
    return told(f"offsets are not contiguous in {where}", wrong)


def told(what: str, cases: Iterable[str]) -> list[str]:
    """Yields one line for a kind of violation, with its first examples; nothing if there are none."""
    listed = list(cases)
    if not listed:
        return []
    more = f" and {len(listed) - _SHOWN_MAX} more" if len(listed) > _SHOWN_MAX else ""
    return [f"{what}: {'; '.join(listed[:_SHOWN_MAX])}{more}"]
