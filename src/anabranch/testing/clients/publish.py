"""Publishing: what was staged apart is appended as one unit, and once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.errors import AppendUncertain
from anabranch.streams.publish import Publication
from anabranch.testing.clients.arena import EXPECTED, KEYS, Arena, named
from anabranch.testing.history import Kind
from anabranch.testing.ledger import Event, Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["publish"]


def publish(arena: Arena, store: Store, name: str) -> None:
    """Stage events, sometimes for longer than the lease lives, and publish them as one unit, sometimes twice."""
    for _ in arena.turns(store, 8):
        ledger = arena.pick()
        label = f"{name}.{arena.serial()}"
        stream = next(stream for stream, first in list(arena.names.items()) if first == ledger.label)
        events = [ledger.attempt(label, arena.rng.choice(KEYS)) for _ in range(arena.rng.randrange(1, 20))]
        ledger.unit(events)
        for event in events:
            arena.recorder.begin(label, Kind.APPEND, events=(named(stream, event.payload()),), unit=label)
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
