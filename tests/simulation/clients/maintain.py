"""Upkeep: compaction, checks, and garbage for the collector, which is a client of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.model.cut import HEAD
from tests.simulation.clients.arena import EXPECTED, Arena
from tests.simulation.clients.judgement import checked

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["collect", "collect_ahead", "maintain"]

_AHEAD_US: Final = 300_000  # how far a collector's clock may be ahead


def maintain(arena: Arena, store: Store, name: str) -> None:
    """Compacts, checks, and makes garbage by truncating and deleting streams."""
    rng = arena.rng
    for _ in arena.turns(store, 4):
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
    """Collects garbage."""
    for _ in arena.turns(store, 2):
        try:
            store.collect()
            arena.done["collect"] += 1
        except EXPECTED:
            arena.done["maintenance refused"] += 1


def collect_ahead(arena: Arena, store: Store, name: str) -> None:
    """Collects garbage like a process whose clock is far ahead: the horizon overtakes the clocks of all others."""
    for _ in arena.turns(store, 1):
        try:
            store.collect(horizon_us=-_AHEAD_US)
            arena.done["collect ahead"] += 1
        except EXPECTED:
            arena.done["maintenance refused"] += 1


def _truncate(arena: Arena, store: Store) -> None:
    """Truncates a stream at the position of a reader after a few events."""
    ledger = arena.pick()
    with store.reader(ledger.stream, start=HEAD) as reader:
        for _ in zip(range(arena.rng.randrange(1, 30)), reader, strict=False):
            pass
        store.streams.truncate(ledger.stream, reader.position)
    arena.done["truncate"] += 1


def _scratch(arena: Arena, store: Store) -> None:
    """Creates a stream and deletes it."""
    name = f"sim/scratch{arena.serial()}"
    store.streams.create(name)
    with store.writer(name) as writer:
        writer.write_batch(pa.table({"key": ["k"] * 5, "payload": [b"x" * 300] * 5})).result()
    store.streams.delete(name)
