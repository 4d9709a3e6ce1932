"""What streams took over from each other by copies, appends and stitches, and what is wrong with it.

Pure, like the ledger. A `Joint` is one source taken over by one heir: recorded when it is requested, and answered when
the store returned where the source's events are now. It is judged at the end, by the content of all streams:

- At the returned places are the source's events and no others, each at its place, whatever happened to the source.
- What the source had acknowledged before the request is among them, up to the cut.
- Per key, they come after what the heir had acknowledged before, and before what was written to it afterwards.
- The sources of one stitch come in the order in which they were given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from anabranch.model.ids import SegmentId
from tests.simulation.ledger import Event, Fate, Ledger, Part, Sighting, told

__all__ = ["Holding", "Joint", "judge_joints", "strange"]

Place = tuple[SegmentId, int]


@dataclass(frozen=True)
class Holding:
    """What a stream holds at the end, in reading order, and the first readable offset of each segment."""

    stored: Sequence[Sighting]
    heads: Mapping[SegmentId, int]


@dataclass(eq=False)
class Joint:
    """One transfer from a source to an heir. `exact` has the requested places of the source, if that was not the
    whole stream. `invoked` and `completed` are moments of the recorder's clock."""

    name: str
    source: Ledger
    heir: Ledger
    invoked: int
    exact: frozenset[Place] | None = None
    completed: int | None = None
    owed: frozenset[Event] = frozenset()
    before: frozenset[Event] = frozenset()
    attempted: frozenset[Event] = frozenset()
    parts: dict[SegmentId, Part] = field(default_factory=dict)

    def ask(self) -> None:
        """Records that it is about to be requested."""
        self.owed = self.source.owed
        self.before = self.heir.owed

    def answer(self, parts: Mapping[SegmentId, Part], completed: int) -> None:
        """Records the answer: the heir's segments hold these parts. Later writes to the heir come after them."""
        self.completed = completed
        self.attempted = frozenset(self.heir.fates)
        self.parts = dict(parts)
        self.heir.parts |= parts


def judge_joints(joints: Sequence[Sequence[Joint]], holdings: Mapping[Ledger, Holding]) -> list[str]:
    """Returns what is wrong with what was taken over. Joints come by the request that made them, in the order of its
    sources; an heir without an entry in `holdings` is skipped."""
    found: list[str] = []
    for group in joints:
        for joint in group:
            if joint.completed is not None and joint.heir in holdings:
                found += [f"{joint.name}: {text}" for text in _judge(joint, holdings)]
        for first, second in pairwise(group):
            if second.completed is not None and second.heir in holdings:
                found += [f"{second.name}: {text}" for text in _crossed(first, second, holdings[second.heir])]
    return found


def _judge(joint: Joint, holdings: Mapping[Ledger, Holding]) -> Iterator[str]:
    heir = holdings[joint.heir]
    source = holdings.get(joint.source)
    content = {(s.pointer.segment, s.pointer.offset): s.payload for s in heir.stored}
    yield from told("not what the source held", _false(joint, content, source))
    yield from told("it ends too early", _short(joint, content, heir.heads))
    yield from told("the source had it, and it was not taken over", _forgotten(joint, source))
    if joint.exact is not None:
        yield from told("not between the cuts", _inexact(joint, joint.exact))
    yield from told("out of order with what the stream had", _misplaced(joint, heir.stored))


def _false(joint: Joint, content: Mapping[Place, bytes], source: Holding | None) -> Iterator[str]:
    """Yields events that the source did not hold at their place."""
    held = {} if source is None else {(s.pointer.segment, s.pointer.offset): s.payload for s in source.stored}
    for segment, part in joint.parts.items():
        for offset in range(part.start, part.stop):
            payload = content.get((segment, offset))
            if payload is None:
                continue
            other = held.get((part.old, offset), payload)
            wrong = strange(part.source, part.old, offset, payload)
            if wrong is not None or other != payload:
                yield f"{payload[:60]!r} at {segment} {offset}, {wrong or f'where the source has {other[:60]!r}'}"


def strange(ledger: Ledger, segment: SegmentId, offset: int, payload: bytes) -> str | None:
    """Returns why the stream can't have held this event there."""
    part = ledger.inherits(segment, offset)
    if part is not None:
        return strange(part.source, part.old, offset, payload)
    event = Event.parse(payload)
    if event is None or event not in ledger.fates:
        return f"which nobody wrote to {ledger.label}"
    if ledger.fates[event] is Fate.REFUSED:
        return "which was refused"
    place = ledger.pointers.get(event)
    if place is not None and (place.segment, place.offset) != (segment, offset):
        return f"which was acknowledged at {place}"
    there = ledger.places.get((segment, offset))
    return None if there in (None, event) else f"where {there} was acknowledged"


def _short(joint: Joint, content: Mapping[Place, bytes], heads: Mapping[SegmentId, int]) -> Iterator[str]:
    for segment, part in joint.parts.items():
        first = max(part.start, heads.get(segment, 0))
        missing = [offset for offset in range(first, part.stop) if (segment, offset) not in content]
        if missing:
            yield f"segment {segment} lacks {missing[0]} of {part.start} to {part.stop}"


def _forgotten(joint: Joint, source: Holding | None) -> Iterator[str]:
    """Yields events that were acknowledged before the request and are missing. Events that can no longer be read in
    the source may have been truncated before."""
    if joint.exact is not None:
        return
    stops = {part.old: part.stop for part in joint.parts.values()}
    heads = {} if source is None else source.heads
    for event in sorted(joint.owed):
        place = joint.source.pointers.get(event)
        if place is None or place.offset < heads.get(place.segment, 0):
            continue
        if place.offset >= stops.get(place.segment, 0):
            yield f"{event} at {place}"


def _inexact(joint: Joint, exact: frozenset[Place]) -> Iterator[str]:
    have = {(part.old, offset) for part in joint.parts.values() for offset in range(part.start, part.stop)}
    yield from (f"{segment} {offset} is there" for segment, offset in sorted(have - exact))
    yield from (f"{segment} {offset} is not there" for segment, offset in sorted(exact - have))


def _spread(joint: Joint, stored: Sequence[Sighting]) -> dict[str, tuple[int, int]]:
    """Returns for each key where in the stream the first and the last event lie that were taken over."""
    spread: dict[str, tuple[int, int]] = {}
    for place, (pointer, payload) in enumerate(stored):
        part = joint.parts.get(pointer.segment)
        event = Event.parse(payload)
        if part is not None and event is not None and part.start <= pointer.offset < part.stop:
            spread[event.key] = spread.get(event.key, (place, place))[0], place
    return spread


def _misplaced(joint: Joint, stored: Sequence[Sighting]) -> Iterator[str]:
    spread = _spread(joint, stored)
    own: dict[str, list[tuple[int, Event]]] = defaultdict(list)
    for place, (pointer, payload) in enumerate(stored):
        event = Event.parse(payload)
        if event is not None and joint.heir.inherits(pointer.segment, pointer.offset) is None:
            own[event.key].append((place, event))
    for key, (first, last) in spread.items():
        for place, event in own[key]:
            if place > first and event in joint.before:
                yield f"{event} was there before, and lies behind"
            if place < last and event not in joint.attempted:
                yield f"{event} came afterwards, and lies before"


def _crossed(first: Joint, second: Joint, heir: Holding) -> list[str]:
    """Yields keys for which the second source's events begin before the end of the first one's."""
    early, late = _spread(first, heir.stored), _spread(second, heir.stored)
    wrong = [f"key {key}" for key in early if key in late and late[key][0] < early[key][1]]
    return told(f"{second.source.label} begins before {first.source.label} ends", wrong)
