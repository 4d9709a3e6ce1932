"""Appends of streams: the source's events follow the existing ones, once, and writers continue after them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.core.stitch import JoinResult
from tests.simulation.changes import APPEND
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.clients.transfers import begin, fresh, related, some_range, whole
from tests.simulation.inheritance import Joint
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["append"]


def append(arena: Arena, store: Store, name: str) -> None:
    """Appends streams to others that are written to meanwhile: some created for it, some that are written to
    themselves."""
    for _ in arena.turns(store, 10):
        with suppress(*EXPECTED):
            onto = arena.pick()
            source = fresh(arena, store, name) if arena.chance(0.6) else arena.pick_any()
            _append(arena, store, source, onto)


def _append(arena: Arena, store: Store, source: Ledger, onto: Ledger) -> None:
    asked_for, exact = some_range(arena, store, source) if arena.chance(0.3) else whole(source)
    with arena.deciding:
        if related(arena, source, onto):
            return
        request, name = f"append{arena.serial()}", onto.stream
        joint = begin(arena, f"{request} of {source.label} onto {onto.label}", source, onto, exact)
        arena.joints[request] = [joint]
    asked = Asked(
        lambda each: APPEND.ask(each, request, name, asked_for),
        lambda each, joined: _note(arena, each, joint, joined),
        lambda: _forget(arena, request),
    )
    arena.ask(store, request, asked)


def _note(arena: Arena, store: Store, joint: Joint, joined: JoinResult) -> None:
    assert APPEND.parts is not None
    joint.answer(APPEND.parts(store, joint.source, joined), arena.recorder.moment())
    arena.done["append of a stream"] += 1


def _forget(arena: Arena, request: str) -> None:
    """The append was refused, so it does not relate the two streams."""
    del arena.joints[request]
