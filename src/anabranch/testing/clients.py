"""The simulation's clients: each a loop over the real store that draws what to do next, and keeps the ledger."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.core.routing import point_of
from anabranch.errors import (
    AnabranchError,
    AppendRefused,
    AppendUncertain,
    Conflict,
    InvalidArgument,
    LeaseExpired,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
from anabranch.log.check import Severity
from anabranch.model.cut import HEAD
from anabranch.model.ids import SegmentId
from anabranch.model.pointer import EventPointer
from anabranch.streams.publish import Publication
from anabranch.testing.history import Kind, Stored
from anabranch.testing.ledger import Event, Ledger, Reading, Sighting
from anabranch.testing.record import RecordedStore, RecordedWriter, Recorder, place_of

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["CASTS", "HARVEST", "STORM", "Arena", "Cast", "Client", "checked", "faithful", "judged", "stored"]

KEYS: Final = ("a", "b", "c", "d", "e")
NAMED: Final = ("named-1", "named-2")  # writers that several processes open under one name
# What may happen to a client of a store whose other clients scale, seal and take over, and whose network fails.
EXPECTED: Final = (
    AppendRefused,
    AppendUncertain,
    Conflict,
    LeaseExpired,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
_PAUSE_S: Final = 0.004

Client = Callable[["Arena", "Store", str], None]


@dataclass
class Arena:
    """What all clients share: chance, the streams' ledgers, and the sign to stop."""

    rng: random.Random
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    copies: dict[str, list[Sighting]] = field(default_factory=dict)
    stopping: bool = False
    recorder: Recorder = field(default_factory=lambda: Recorder(count().__next__))
    _serial: int = 0

    def serial(self) -> int:
        """A fresh number."""
        self._serial += 1
        return self._serial

    def client(self, store: Store, name: str) -> RecordedStore:
        """The store as this client uses it."""
        return RecordedStore(store, self.recorder, name, name_of=named)

    def pick(self) -> Ledger:
        """One of the streams that are written to."""
        return self.ledgers[self.rng.choice(self.active)]

    def new_stream(self, store: Store) -> str:
        """Create a stream, and have it written to from now on."""
        name = f"sim/stream{self.serial()}"
        store.streams.create(name, scaling=self.rng.randrange(1, 4))
        self.ledgers[name] = Ledger(name)
        self.active.append(name)
        return name

    def chance(self, part: float) -> bool:
        """True in about this part of all cases."""
        return self.rng.random() < part


def stored(store: Store, stream: str) -> list[Sighting]:
    """The whole stream, from head to tail."""
    with store.reader(stream, start=HEAD) as reader:
        return [Sighting(event.pointer, event.body) for event in reader]


def judged(store: Store, ledger: Ledger) -> list[str]:
    """What is wrong with one stream by its ledger."""
    heads = {segment.id: segment.head for segment in store.streams.view(ledger.stream).ordered}
    return ledger.judge(stored(store, ledger.stream), heads)


def named(stream: str, payload: bytes) -> str:
    """An event's name in a history: writers number their events anew in each stream."""
    return f"{stream} {Event.parse(payload)}"


def kept(store: Store, stream: str) -> dict[str, Stored]:
    """What each segment of the stream holds, as a history has it."""
    heads = {segment.id: segment.head for segment in store.streams.view(stream).ordered}
    events: dict[SegmentId, list[str]] = {segment: [] for segment in heads}
    for sighting in stored(store, stream):
        events[sighting.pointer.segment].append(named(stream, sighting.payload))
    return {place_of(stream, each): Stored(head, tuple(events[each])) for each, head in heads.items()}


def checked(store: Store) -> list[str]:
    """What is wrong with the store by its own account."""
    errors = [finding for finding in store.check() if finding.severity is Severity.ERROR]
    # Clocks differ here: what ran out for the collector may live on for the process that looks. Its holder is told.
    return [f"check: {finding}" for finding in errors if not finding.where.startswith("lease ")]


# ---------------------------------------------------------------------- writing


def write(arena: Arena, store: Store, name: str) -> None:
    """Open writers one after another, some under a name that others use too, and write in bursts."""
    while not arena.stopping:
        ledger = arena.pick()
        owner = arena.rng.choice(NAMED) if arena.chance(0.2) else None
        try:
            fence = arena.serial() if arena.chance(0.25) else None
            with arena.client(store, name).writer(ledger.stream, writer_id=owner, fence=fence) as writer:
                hand = _Hand(arena, store, ledger, writer, owner or f"{name}.{arena.serial()}")
                for _ in range(arena.rng.randrange(1, 6)):
                    hand.burst()
                hand.settle()
        except EXPECTED:
            arena.done["writer refused"] += 1
        store.runtime.tasks.sleep(arena.rng.random() * _PAUSE_S)


def rival(arena: Arena, store: Store, name: str) -> None:
    """Hold on to a writer's name that others want too, and go on under it though it was taken over."""
    while not arena.stopping:
        ledger, owner = arena.pick(), arena.rng.choice(NAMED)
        with suppress(*EXPECTED), arena.client(store, name).writer(ledger.stream, writer_id=owner) as writer:
            hand = _Hand(arena, store, ledger, writer, owner)
            for _ in range(8):
                hand.burst()
                hand.settle()
                store.runtime.tasks.sleep(arena.rng.random() * 4 * _PAUSE_S)
        arena.done["rival"] += 1


class _Hand:
    """One writer at work. `label` is the name its events carry."""

    def __init__(self, arena: Arena, store: Store, ledger: Ledger, writer: RecordedWriter, label: str) -> None:
        self._arena = arena
        self._store = store
        self._ledger = ledger
        self._writer = writer
        self._label = label
        self._open: list[tuple[Event, Callable[[], EventPointer]]] = []

    def burst(self) -> None:
        """Some pipelined events, a batch, or a conditional append; then perhaps wait for the answers."""
        draw = self._arena.rng.random()
        if draw < 0.6:
            for _ in range(self._arena.rng.randrange(1, 12)):
                self._single()
        elif draw < 0.85:
            self._batch(atomic=self._arena.chance(0.5))
        else:
            self._conditional()
        if self._arena.chance(0.5):
            self.settle()

    def settle(self) -> None:
        """Wait for all answers, and note them."""
        pending, self._open = self._open, []
        for event, pointer in pending:
            self._note(event, pointer)

    def _note(self, event: Event, pointer: Callable[[], EventPointer]) -> EventPointer | None:
        try:
            place = pointer()
        except (AppendRefused, StreamSealed, StreamNotFound):
            self._ledger.refused(event)
            self._arena.done["event refused"] += 1
        except AnabranchError:
            self._ledger.unknown(event)
            self._arena.done["event uncertain"] += 1
        else:
            self._ledger.acked(event, place)
            self._arena.done["event acknowledged"] += 1
            return place
        return None

    def _attempt(self) -> Event:
        return self._ledger.attempt(self._label, self._arena.rng.choice(KEYS))

    def _payload(self, event: Event) -> bytes:
        return event.payload(self._arena.rng.choice((0, 0, 20, 200)))

    def _single(self) -> None:
        event = self._attempt()
        try:
            answer = self._writer.write(self._payload(event), key=event.key)
        except EXPECTED:
            self._ledger.refused(event)
            raise
        self._open.append((event, answer))

    def _batch(self, *, atomic: bool) -> None:
        events = [self._attempt() for _ in range(self._arena.rng.randrange(1, 9))]
        columns = {"key": [event.key for event in events], "payload": [self._payload(event) for event in events]}
        if atomic:
            self._ledger.unit(events)
        try:
            answers = self._writer.write_batch(pa.table(columns), atomic=atomic)
        except EXPECTED:
            # Of a batch that is not atomic, the first pieces may have been accepted.
            for event in events:
                self._ledger.refused(event) if atomic else self._ledger.unknown(event)
            raise
        self._open += zip(events, answers, strict=True)

    def _conditional(self) -> None:
        """Append one event on condition of its segment's length, which may be wrong by then, or from the start."""
        self.settle()
        key = self._arena.rng.choice(KEYS)
        view = self._arena.client(self._store, f"{self._label}.look").look(self._ledger.stream)
        point = point_of(key)
        segment = next(segment.id for segment in view.current if point in segment.range)
        expected = view.length(segment) + self._arena.chance(0.1)
        event = self._ledger.attempt(self._label, key)
        try:
            answer = self._writer.write(self._payload(event), key=key, expected=expected)
        except EXPECTED:
            self._ledger.refused(event)
            raise
        place = self._note(event, answer)
        if place is not None and self._arena.chance(0.5):
            self._fetch(event, place)
        if place is not None and place.offset != expected:
            self._arena.violations.append(f"{event} was to be appended at {expected} only, and is at {place}")
        self._arena.done["conditional append"] += 1

    def _fetch(self, event: Event, place: EventPointer) -> None:
        found = self._store.fetch(place).body
        if Event.parse(found) != event:
            self._arena.violations.append(f"{event} was acknowledged at {place}, where {found[:60]!r} is")
        self._arena.done["fetch"] += 1


def publish(arena: Arena, store: Store, name: str) -> None:
    """Stage events, sometimes for longer than the lease lives, and publish them as one unit, sometimes twice."""
    while not arena.stopping:
        store.runtime.tasks.sleep(arena.rng.random() * 8 * _PAUSE_S)
        ledger = arena.pick()
        label = f"{name}.{arena.serial()}"
        events = [ledger.attempt(label, arena.rng.choice(KEYS)) for _ in range(arena.rng.randrange(1, 20))]
        ledger.unit(events)
        for event in events:
            arena.recorder.begin(label, Kind.APPEND, events=(named(ledger.stream, event.payload()),), unit=label)
        try:
            with store.hold("sim", label):
                _publish(arena, store, ledger, label, events)
        except EXPECTED:
            arena.done["publication refused"] += 1


def _publish(arena: Arena, store: Store, ledger: Ledger, label: str, events: Sequence[Event]) -> None:
    padding = arena.rng.choice((0, 500))
    try:
        stager = store.stager(ledger.stream)
        stager.write(pa.table({"key": [e.key for e in events], "payload": [e.payload(padding) for e in events]}))
        publication = Publication(store.streams.get(ledger.stream).id, stager.finish())
        if arena.chance(0.3):
            store.runtime.tasks.sleep(arena.rng.random())
        store.publish([publication], request=label)
    except AppendUncertain:
        for event in events:
            ledger.unknown(event)
        raise
    except EXPECTED:
        for event in events:
            ledger.refused(event)
        raise
    for event in events:
        ledger.acked(event, None)
    arena.done["publication"] += 1
    if arena.chance(0.3) and store.publish([publication], request=label):
        arena.violations.append(f"request {label} was published twice")


# ---------------------------------------------------------------------- reading


def read(arena: Arena, store: Store, name: str) -> None:
    """Read whole streams again and again: as events or as batches, all at once or with pauses."""
    while not arena.stopping:
        ledger = arena.ledgers[arena.rng.choice(sorted(arena.ledgers))]
        reading = ledger.reading(f"{name}.{arena.serial()}")
        try:
            with arena.client(store, reading.name).read(ledger.stream) as reader:
                for event in reader:
                    reading.seen.append(Sighting(event.pointer, event.body))
                    if arena.chance(0.01):
                        store.runtime.tasks.sleep(arena.rng.random() * _PAUSE_S)
            reading.finished = True
            arena.done["whole read"] += 1
        except Truncated:
            arena.done["reader truncated"] += 1
        except StoreUnavailable:
            arena.done["reader cut off"] += 1
        store.runtime.tasks.sleep(arena.rng.random() * 5 * _PAUSE_S)


def follow(arena: Arena, store: Store, name: str) -> None:
    """Follow one stream from its head until all stops; then everything acknowledged must have come."""
    ledger = arena.pick()
    reading = ledger.reading(f"{name}.follower")
    with arena.client(store, reading.name).read(ledger.stream, follow=True) as reader:
        watch = store.runtime.tasks.spawn("stop", lambda: _stop(arena, store, ledger, reading, reader.close))
        try:
            for event in reader:
                reading.seen.append(Sighting(event.pointer, event.body))
                arena.done["event followed"] += 1
            reading.finished = arena.stopping
        except Truncated:
            arena.done["reader truncated"] += 1
        except StoreUnavailable:
            arena.done["reader cut off"] += 1
    watch.join()


def _stop(arena: Arena, store: Store, ledger: Ledger, reading: Reading, close: Callable[[], None]) -> None:
    """Close a follower once all has stopped and it had time to catch up."""
    clock = store.runtime.clock
    while not arena.stopping:
        store.runtime.tasks.sleep(0.02)
    reading.owed = ledger.reading("nobody").owed
    deadline = clock.monotonic() + 2
    while clock.monotonic() < deadline and len(reading.seen) < len(reading.owed):
        store.runtime.tasks.sleep(0.02)
    store.runtime.tasks.sleep(0.1)
    close()


# ---------------------------------------------------------------------- everything else


def scale(arena: Arena, store: Store, name: str) -> None:
    """Split, merge and re-cut segments; now and then seal a stream and begin another."""
    rng, client = arena.rng, arena.client(store, name)
    while not arena.stopping:
        store.runtime.tasks.sleep(rng.random() * 4 * _PAUSE_S)
        ledger = arena.pick()
        try:
            if arena.chance(0.05):
                arena.new_stream(store)
                arena.active = [name for name in arena.active if name != ledger.stream]
                store.streams.seal(ledger.stream)
                arena.done["seal"] += 1
                continue
            current = client.look(ledger.stream).current
            draw = rng.random()
            if arena.chance(0.2):
                client.fence(ledger.stream, arena.serial())
                arena.done["fence"] += 1
            if draw < 0.4 and len(current) < 6:
                store.streams.scale(ledger.stream, split=rng.choice(current).id, into=rng.randrange(2, 4))
            elif draw < 0.8 and len(current) > 1:
                first = rng.randrange(len(current) - 1)
                store.streams.scale(ledger.stream, merge=[segment.id for segment in current[first : first + 2]])
            else:
                store.streams.scale(ledger.stream, rng.randrange(1, 4))
            client.look(ledger.stream)
            arena.done["scale"] += 1
        except (*EXPECTED, InvalidArgument):  # another one scaled first
            arena.done["scale refused"] += 1


def maintain(arena: Arena, store: Store, name: str) -> None:
    """Compact, check, and make garbage by truncating and by deleting streams."""
    rng = arena.rng
    while not arena.stopping:
        store.runtime.tasks.sleep(rng.random() * 4 * _PAUSE_S)
        draw = rng.random()
        try:
            if draw < 0.3:
                report = store.compact(force=arena.chance(0.7))
                arena.violations += [f"compact skipped {text}" for text in report.skipped]
                arena.done["compact"] += 1
            elif draw < 0.6:
                arena.violations += checked(store)
                arena.done["check"] += 1
            elif draw < 0.75:
                _truncate(arena, store)
            else:
                _scratch(arena, store)
                arena.done["delete"] += 1
        except EXPECTED:
            arena.done["maintenance refused"] += 1


def collect(arena: Arena, store: Store, name: str) -> None:
    """Collect garbage."""
    while not arena.stopping:
        store.runtime.tasks.sleep(arena.rng.random() * 2 * _PAUSE_S)
        try:
            store.collect()
            arena.done["collect"] += 1
        except EXPECTED:
            arena.done["maintenance refused"] += 1


def _truncate(arena: Arena, store: Store) -> None:
    """Cut a stream's head off where a reader stands after a few events."""
    ledger = arena.pick()
    with store.reader(ledger.stream, start=HEAD) as reader:
        for _ in zip(range(arena.rng.randrange(1, 30)), reader, strict=False):
            pass
        store.streams.truncate(ledger.stream, reader.position)
    arena.done["truncate"] += 1


def _scratch(arena: Arena, store: Store) -> None:
    """A stream that nobody keeps."""
    name = f"sim/scratch{arena.serial()}"
    store.streams.create(name)
    with store.writer(name) as writer:
        writer.write_batch(pa.table({"key": ["k"] * 5, "payload": [b"x" * 300] * 5})).result()
    store.streams.delete(name)


def copy(arena: Arena, store: Store, name: str) -> None:
    """Copy streams that are written to. A copy holds all that was acknowledged before, and never changes."""
    while not arena.stopping:
        store.runtime.tasks.sleep(arena.rng.random() * 8 * _PAUSE_S)
        ledger, target = arena.pick(), f"sim/copy{arena.serial()}"
        owed = ledger.reading("nobody").owed
        with suppress(*EXPECTED):
            store.streams.copy(ledger.stream, target, request=target)
            seen = stored(store, target)
            arena.copies[target] = seen
            missing = owed - {Event.parse(sighting.payload) for sighting in seen}
            if missing and not any(segment.head for segment in store.streams.view(ledger.stream).ordered):
                arena.violations.append(f"{target} lacks {min(missing)}, which {ledger.stream} had before")
            arena.done["copy"] += 1
            if arena.chance(0.3):
                del arena.copies[target]
                store.streams.delete(target)


def faithful(store: Store, target: str, seen: Sequence[Sighting]) -> list[str]:
    """What is wrong with a copy, by what it held when it was made."""
    same = dict(stored(store, target)) == dict(seen)  # segments side by side may be read in any order
    return [] if same else [f"{target} is not what it was when it was made"]


# What a process may be made of. Readers alone must hear of everything from other processes.
Cast = Sequence[tuple[str, Client]]
CASTS: Final[Sequence[Cast]] = (
    (
        ("write", write),
        ("write", write),
        ("read", read),
        ("scale", scale),
        ("maintain", maintain),
        ("collect", collect),
    ),
    (("write", write), ("rival", rival), ("publish", publish), ("follow", follow), ("copy", copy)),
    (("read", read), ("follow", follow), ("collect", collect)),
    (("rival", rival), ("scale", scale), ("maintain", maintain), ("collect", collect)),
)
# Nothing but writing under scales and takeovers.
STORM: Final[Sequence[Cast]] = ((("write", write), ("write", write), ("rival", rival), ("scale", scale)),)
# Copies of streams that are truncated and collected.
HARVEST: Final[Sequence[Cast]] = ((("write", write), ("copy", copy), ("maintain", maintain), ("collect", collect)),)
