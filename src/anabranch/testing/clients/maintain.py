"""Upkeep: compaction, checks, and garbage for the collector, which is a client of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.model.cut import HEAD
from anabranch.testing.clients.arena import EXPECTED, Arena
from anabranch.testing.clients.judgement import checked

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["collect", "maintain"]


def maintain(arena: Arena, store: Store, name: str) -> None:
    """Compact, check, and make garbage by truncating and by deleting streams."""
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
    """Collect garbage."""
    for _ in arena.turns(store, 2):
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
