"""Ephemeral streams: they exist while they have a holder, and are deleted when they have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.errors import AppendUncertain, InvalidArgument, StreamExists, StreamNotFound
from anabranch.streams.ephemeral.hold import HolderState
from tests.simulation.clients.arena import EXPECTED, Arena

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.streams.ephemeral.keep_alive import Held

__all__ = ["hold"]


def hold(arena: Arena, store: Store, name: str) -> None:
    """Creates or joins ephemeral streams that others hold too, writes to them, and leaves; checks meanwhile that
    what it holds exists."""
    arena.promises["ephemeral streams go"] = _gone
    for _ in arena.turns(store, 10):
        stream = f"sim/held{arena.rng.randrange(2)}"
        with (
            suppress(*EXPECTED, StreamExists, InvalidArgument),
            _taken(arena, store, stream, f"{name}.{arena.serial()}") as held,
        ):
            for _ in range(arena.rng.randrange(6)):
                store.runtime.tasks.sleep(arena.rng.random() * limits.EPHEMERAL_LEASE_US / 1e6 / 2)
                _look(arena, store, held)
                if arena.chance(0.3):
                    _write(arena, store, held)
            arena.done["ephemeral stream held"] += 1


def _taken(arena: Arena, store: Store, stream: str, request: str) -> Held:
    segments = arena.rng.randrange(1, 3)
    try:
        return _asked(lambda: store.ephemeral.hold(stream, request=f"{request} join"))
    except StreamNotFound:
        return _asked(lambda: store.ephemeral.create(stream, scaling=segments, request=request))


def _asked(act: Callable[[], Held]) -> Held:
    """Requests a change once more if the answer is lost."""
    try:
        return act()
    except AppendUncertain:
        return act()


def _look(arena: Arena, store: Store, held: Held) -> None:
    """By its own clock the holder knows until when the stream must not be deleted."""
    with store.catalog.reading() as reading:
        there = reading.stream(held.id) is not None
    if not there and held.state is HolderState.HELD and store.runtime.clock.now() < held.holder.until:
        arena.violations.append(
            f"ephemeral stream {held.name} was taken away from {held.holder.process}, which holds it"
        )


def _write(arena: Arena, store: Store, held: Held) -> None:
    with suppress(*EXPECTED), store.writer(held.name) as writer:
        writer.write(b"held", key=arena.rng.choice("abc"))


def _gone(store: Store) -> Sequence[str]:
    """Whatever happened to its holders, at the end no ephemeral stream is left."""
    store.runtime.tasks.sleep((limits.EPHEMERAL_LEASE_US + 2 * limits.CLOCKS_DIFFER_US) / 1e6)
    store.ephemeral.sweep()
    left = [info.name for info in store.streams.list("sim") if info.name.name.startswith("held")]
    return [f"ephemeral stream {name} is there, though nobody holds it" for name in left]
