"""Renames and moves: clients that have the stream open continue, and the old name leads to the new one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.errors import StreamNotFound, StreamRenamed
from tests.simulation.changes import RENAME
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["rename"]

_SCOPE = "attic"  # the scope that some are moved to


def rename(arena: Arena, store: Store, name: str) -> None:
    """Renames streams while they are written to and read."""
    for _ in arena.turns(store, 10):
        with suppress(*EXPECTED):
            ledger = arena.pick_any()
            _rename(arena, store, ledger, moved=arena.chance(0.3))


def _rename(arena: Arena, store: Store, ledger: Ledger, *, moved: bool) -> None:
    old = ledger.stream
    new = f"{_SCOPE if moved else 'sim'}/renamed{arena.serial()}"
    asked = Asked(
        lambda each: RENAME.ask(each, new, new, old),
        lambda _, stream: _note(arena, ledger, new),
    )
    if moved:
        store.scopes.create(_SCOPE, exist_ok=True)
    if arena.ask(store, new, asked):
        _look_for(arena, store, ledger, old)


def _note(arena: Arena, ledger: Ledger, name: str) -> None:
    ledger.stream = name
    arena.done["rename"] += 1


def _look_for(arena: Arena, store: Store, ledger: Ledger, old: str) -> None:
    """The error for the old name gives the present name of the stream, by its last rename."""
    before = ledger.stream
    try:
        store.streams.get(old)
    except StreamRenamed as exc:
        if exc.name not in (before, ledger.stream) and not _renaming(arena, exc.name):
            arena.violations.append(f"{old} is said to be {exc.name}, and is {ledger.stream}")
    except StreamNotFound as exc:
        if not ledger.gone:
            arena.violations.append(f"{old} was renamed to {ledger.stream}, and is not found: {exc}")
    else:
        arena.violations.append(f"{old} was renamed to {ledger.stream}, and is still there")


def _renaming(arena: Arena, name: str) -> bool:
    """True if a rename to this name is under way."""
    return name in arena.asked
