"""Readers of whole streams, and followers that must receive everything that was acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.errors import StoreUnavailable, StreamNotFound, Truncated
from tests.simulation.clients.arena import PAUSE_S, Arena
from tests.simulation.ledger import Event, Ledger, Reading, Sighting

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["follow", "read"]


def read(arena: Arena, store: Store, name: str) -> None:
    """Reads whole streams repeatedly: as events or as batches, without or with pauses."""
    while not arena.stopping:
        ledger = arena.pick_any()
        reading = ledger.reading(f"{name}.{arena.serial()}")
        opened = False
        try:
            with arena.client(store, reading.name).read(ledger.stream) as reader:
                opened = True
                for event in reader:
                    reading.seen.append(Sighting(event.pointer, event.body))
                    if arena.chance(0.01):
                        store.runtime.tasks.sleep(arena.rng.random() * PAUSE_S)
            reading.finished = True
            arena.done["whole read"] += 1
        except StreamNotFound as exc:
            if opened:
                arena.bereft(ledger, f"reader {reading.name}", exc)
            arena.done["reader refused"] += 1
        except Truncated:
            arena.done["reader truncated"] += 1
        except StoreUnavailable:
            arena.done["reader cut off"] += 1
        store.runtime.tasks.sleep(arena.rng.random() * 5 * PAUSE_S)


def follow(arena: Arena, store: Store, name: str) -> None:
    """Follows one stream from its head until the run stops; then every acknowledged event must have arrived."""
    ledger = arena.pick()
    reading = ledger.reading(f"{name}.follower")
    try:
        open_reader = arena.client(store, reading.name).read(ledger.stream, follow=True)
    except (StreamNotFound, StoreUnavailable):  # it was renamed a moment ago, or the catalog is unavailable
        arena.done["reader refused"] += 1
        return
    with open_reader as reader:
        watch = store.runtime.tasks.spawn("stop", lambda: _stop(arena, store, ledger, reading, reader.close))
        try:
            for event in reader:
                reading.seen.append(Sighting(event.pointer, event.body))
                arena.done["event followed"] += 1
            reading.finished = arena.stopping
        except StreamNotFound as exc:
            arena.bereft(ledger, f"reader {reading.name}", exc)
        except Truncated:
            arena.done["reader truncated"] += 1
        except StoreUnavailable:
            arena.done["reader cut off"] += 1
    watch.join()


def _stop(arena: Arena, store: Store, ledger: Ledger, reading: Reading, close: Callable[[], None]) -> None:
    """Closes a follower once the run has stopped and it had time to catch up."""
    clock = store.runtime.clock
    while not arena.stopping:
        store.runtime.tasks.sleep(0.02)
    reading.owed = ledger.owed
    deadline = clock.monotonic() + 2
    while clock.monotonic() < deadline and _lacks(reading):
        store.runtime.tasks.sleep(0.02)
    store.runtime.tasks.sleep(0.1)
    close()


def _lacks(reading: Reading) -> bool:
    return not reading.owed <= {event for sighting in reading.seen if (event := Event.parse(sighting.payload))}
