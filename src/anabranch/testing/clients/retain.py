"""Retention: policies are set on streams that are written to, and carried out beside everything else."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from anabranch.model.retention import RetainBytes, RetainFor
from anabranch.testing.clients.arena import EXPECTED, Arena

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["retain"]

SIZE: Final = 2_000  # logical bytes that every policy keeps, so that no two of them together let go more


def retain(arena: Arena, store: Store, name: str) -> None:
    """Let events go by age or by bytes, now and then for all streams. What every policy keeps must stay, and carrying a
    policy out again at once may let go no younger event than that."""
    for _ in arena.turns(store, 6):
        with suppress(*EXPECTED):
            stream = arena.pick().stream
            policy = RetainBytes(SIZE + arena.rng.randrange(SIZE))
            if arena.chance(0.5):
                policy = RetainFor(arena.rng.randrange(2_000_000), bytes_min=SIZE)
            store.streams.retention(stream, policy)
            held = store.streams.distance(stream).bytes
            store.retain(None if arena.chance(0.2) else stream)
            left = store.streams.distance(stream).bytes
            if left < min(held, SIZE):
                arena.violations.append(f"{stream} held {held} bytes and keeps {left}, though it is to keep {SIZE}")
            arena.done["retain"] += 1
            if arena.chance(0.1):
                store.streams.retention(stream, None)
