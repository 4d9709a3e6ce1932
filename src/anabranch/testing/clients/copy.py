"""Copies: each shows what its source held, and never changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anabranch.testing.clients.arena import EXPECTED, Arena, stored
from anabranch.testing.ledger import Event, Sighting

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["copy", "faithful"]


def copy(arena: Arena, store: Store, name: str) -> None:
    """Copy streams that are written to. A copy holds all that was acknowledged before, and never changes."""
    for _ in arena.turns(store, 8):
        ledger, target = arena.pick(), f"sim/copy{arena.serial()}"
        owed = ledger.reading("nobody").owed
        with suppress(*EXPECTED):
            store.streams.copy(ledger.stream, target, request=target)
            seen = stored(store, target)
            arena.promises[target] = partial(faithful, target=target, seen=seen)
            missing = owed - {Event.parse(sighting.payload) for sighting in seen}
            if missing and not any(segment.head for segment in store.streams.view(ledger.stream).ordered):
                arena.violations.append(f"{target} lacks {min(missing)}, which {ledger.stream} had before")
            arena.done["copy"] += 1
            if arena.chance(0.3):
                del arena.promises[target]
                store.streams.delete(target)


def faithful(store: Store, target: str, seen: Sequence[Sighting]) -> list[str]:
    """What is wrong with a copy, by what it held when it was made."""
    same = dict(stored(store, target)) == dict(seen)  # segments side by side may be read in any order
    return [] if same else [f"{target} is not what it was when it was made"]
