"""Retention: policies are set on streams that are written to, and applied beside everything else."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from anabranch.streams.retention.policy import RetainBytes, RetainFor
from tests.simulation.clients.arena import EXPECTED, Arena

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["retain"]

SIZE: Final = 2_000  # logical bytes that every policy keeps, so that no two together release more


def retain(arena: Arena, store: Store, name: str) -> None:
    """Removes events by age or by bytes, sometimes for all streams. What every policy keeps must stay, and applying
    a policy again at once may remove no younger event than that."""
    for _ in arena.turns(store, 6):
        with suppress(*EXPECTED):
            stream = arena.pick().stream
            policy = RetainBytes(SIZE + arena.rng.randrange(SIZE))
            if arena.chance(0.5):
                policy = RetainFor(arena.rng.randrange(2_000_000), bytes_min=SIZE)
            store.policies.retention(stream, policy)
            held = store.cuts.distance(stream).bytes
            store.retain(None if arena.chance(0.2) else stream)
            left = store.cuts.distance(stream).bytes
            if left < min(held, SIZE):
                arena.violations.append(f"{stream} held {held} bytes and keeps {left}, though it is to keep {SIZE}")
            arena.done["retain"] += 1
            if arena.chance(0.1):
                store.policies.retention(stream, None)
