"""Scaling, fencing and sealing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import InvalidArgument
from tests.simulation.clients.arena import EXPECTED, Arena

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["scale"]


def scale(arena: Arena, store: Store, name: str) -> None:
    """Splits, merges and redistributes segments; now and then seals a stream and creates another."""
    rng, client = arena.rng, arena.client(store, name)
    for _ in arena.turns(store, 4):
        ledger = arena.pick()
        try:
            if arena.chance(0.05):
                arena.new_stream(store)
                arena.active = [label for label in arena.active if label != ledger.label]
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
        except (*EXPECTED, InvalidArgument):  # another client scaled first
            arena.done["scale refused"] += 1
