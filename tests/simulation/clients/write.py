"""Writers: bursts of single events, batches and conditional appends, some under writer names that several processes
use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.core.routing import point_of
from anabranch.errors import AnabranchError, AppendRefused, StreamNotFound, StreamSealed
from anabranch.model.pointer import EventPointer
from tests.simulation.clients.arena import EXPECTED, KEYS, PAUSE_S, Arena
from tests.simulation.ledger import Event, Ledger
from tests.simulation.record import RecordedWriter

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["Hand", "rival", "write"]

_LARGE: Final = 8_100  # above `event_bytes_max` of simulations
_NAMED: Final = ("named-1", "named-2")  # writer names that several processes use


def write(arena: Arena, store: Store, name: str) -> None:
    """Opens writers one after another, some under a name that others use too, and writes in bursts."""
    while not arena.stopping:
        ledger = arena.pick()
        owner = arena.rng.choice(_NAMED) if arena.chance(0.2) else None
        try:
            fence = arena.serial() if arena.chance(0.25) else None
            with arena.client(store, name).writer(ledger.stream, writer_id=owner, fence=fence) as writer:
                hand = Hand(
                    arena, store, ledger, writer, _label(ledger, owner) if owner else f"{name}.{arena.serial()}"
                )
                for _ in range(arena.rng.randrange(1, 6)):
                    hand.burst()
                hand.settle()
        except EXPECTED:
            arena.done["writer refused"] += 1
        store.runtime.tasks.sleep(arena.rng.random() * PAUSE_S)


def rival(arena: Arena, store: Store, name: str) -> None:
    """Keeps using a writer's name that others use too, and continues under it after it was taken over."""
    while not arena.stopping:
        ledger, owner = arena.pick(), arena.rng.choice(_NAMED)
        with suppress(*EXPECTED), arena.client(store, name).writer(ledger.stream, writer_id=owner) as writer:
            hand = Hand(arena, store, ledger, writer, _label(ledger, owner))
            for _ in range(8):
                hand.burst()
                hand.settle()
                store.runtime.tasks.sleep(arena.rng.random() * 4 * PAUSE_S)
        arena.done["rival"] += 1


def _label(ledger: Ledger, owner: str) -> str:
    """Returns a label for the events of a named writer: each stream numbers them separately."""
    return f"{owner}@{ledger.label}"


class Hand:
    """One writer in use. `label` is in the names of its events."""

    def __init__(self, arena: Arena, store: Store, ledger: Ledger, writer: RecordedWriter, label: str) -> None:
        self._arena = arena
        self._store = store
        self._ledger = ledger
        self._writer = writer
        self._label = label
        self._open: list[tuple[Event, Callable[[], EventPointer]]] = []

    def burst(self) -> None:
        """Writes some pipelined events, a batch, or a conditional append; then perhaps waits for the answers."""
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
        """Waits for all answers, and records them."""
        pending, self._open = self._open, []
        for event, pointer in pending:
            self._note(event, pointer)

    def _note(self, event: Event, pointer: Callable[[], EventPointer]) -> EventPointer | None:
        try:
            place = pointer()
        except (AppendRefused, StreamSealed, StreamNotFound) as exc:
            self._ledger.refused(event)
            self._arena.done["event refused"] += 1
            if isinstance(exc, StreamNotFound):
                self._arena.bereft(self._ledger, f"writer {self._label}", exc)
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
        padding = self._arena.rng.choice((0, 0, 20, 200))
        return event.payload(_LARGE if self._arena.chance(0.04) else padding)

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
            # The first pieces of a batch that is not atomic may have been accepted.
            for event in events:
                self._ledger.refused(event) if atomic else self._ledger.unknown(event)
            raise
        self._open += zip(events, answers, strict=True)

    def _conditional(self) -> None:
        """Appends one event on condition of its segment's length, which may be outdated by then, or wrong on
        purpose."""
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
