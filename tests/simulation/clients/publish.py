"""Publishing: staged events are appended as one unit, and once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Lease
from anabranch.errors import AppendUncertain, LeaseExpired
from anabranch.streams.publish import Publication
from tests.simulation.clients.arena import EXPECTED, KEYS, Arena, named
from tests.simulation.history import Kind
from tests.simulation.ledger import Event, Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["publish"]


def publish(arena: Arena, store: Store, name: str) -> None:
    """Stages events, sometimes for longer than the lease lasts, and publishes them as one unit, sometimes twice."""
    for _ in arena.turns(store, 8):
        ledger = arena.pick()
        label = f"{name}.{arena.serial()}"
        stream = next(stream for stream, first in list(arena.names.items()) if first == ledger.label)
        events = [ledger.attempt(label, arena.rng.choice(KEYS)) for _ in range(arena.rng.randrange(1, 20))]
        ledger.unit(events)
        for event in events:
            arena.recorder.begin(label, Kind.APPEND, events=(named(stream, event.payload()),), unit=label)
        try:
            with store.hold("sim", label) as hold:
                try:
                    _publish(arena, store, ledger, label, events, hold.lease)
                except LeaseExpired:
                    _judge_expiry(arena, store, label, hold.lease)
                    raise
        except EXPECTED:
            arena.done["publication refused"] += 1


def _judge_expiry(arena: Arena, store: Store, label: str, lease: Lease) -> None:
    """A publication may expire only if its lease ran out, and the horizon has passed it since."""
    left_us = lease.expires_at - store.runtime.clock.now()
    if left_us > limits.CLOCKS_DIFFER_US:
        arena.violations.append(f"publication {label} expired {left_us / 1e3:.0f} ms before its lease")
    with store.catalog.reading() as reading:
        horizon = reading.horizon()
    if horizon <= lease.begun_at:  # the horizon never decreases, so it was no later then
        arena.violations.append(f"publication {label} expired, though its lease held the horizon")


def _publish(arena: Arena, store: Store, ledger: Ledger, label: str, events: Sequence[Event], lease: Lease) -> None:
    padding = arena.rng.choice((0, 500))
    try:
        stager = store.stager(ledger.stream, lease=lease)
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
