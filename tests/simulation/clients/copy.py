"""Copies: each shows what its source held between the cuts, and nothing that was written to the source later."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.copy import CopyResult
from tests.simulation.changes import COPY, copied_parts
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.clients.judgement import stored
from tests.simulation.clients.transfers import STREAMS_MAX, begin, some_range, whole
from tests.simulation.inheritance import Joint
from tests.simulation.ledger import Ledger, Sighting

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["copy", "note_copy"]


def copy(arena: Arena, store: Store, name: str) -> None:
    """Copies streams that are written to, and copies of them. Some copies are written to, too; others never change,
    and some of these are deleted."""
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED):
            source = arena.pick_any()
            written = arena.chance(0.25) and len(arena.active) < 5
            heir = _copied(arena, store, source, active=written)
            if heir is not None and not written:
                _keep_or_delete(arena, store, heir)


def _copied(arena: Arena, store: Store, source: Ledger, *, active: bool) -> Ledger | None:
    asked_for, exact = some_range(arena, store, source) if arena.chance(0.3) else whole(source)
    target = f"sim/copy{arena.serial()}"
    joint = begin(arena, target, source, Ledger(target), exact)
    arena.joints[target] = [joint]
    asked = Asked(
        lambda each: COPY.ask(each, target, target, asked_for),
        lambda each, copied: note_copy(arena, each, joint, copied, active=active),
    )
    return joint.heir if arena.ask(store, target, asked) else None


def note_copy(arena: Arena, store: Store, joint: Joint, copied: CopyResult, *, active: bool = False) -> None:
    """Records a copy. It is not written to before this."""
    joint.answer(copied_parts(joint.source, store.streams.view(copied.copy)), arena.recorder.moment())
    arena.adopt(joint.heir, copied.copy, active=active)
    arena.done["copy"] += 1


def _keep_or_delete(arena: Arena, store: Store, heir: Ledger) -> None:
    seen = stored(store, heir.stream)
    if arena.chance(0.3) or len(arena.ledgers) > STREAMS_MAX:
        heir.gone = True
        store.streams.delete(heir.stream)
        arena.done["delete"] += 1
    else:
        arena.promises[heir.label] = partial(_unchanged, heir, seen)


def _unchanged(heir: Ledger, seen: Sequence[Sighting], store: Store) -> list[str]:
    """A copy that is not written to holds what it held when it was made; parallel segments may be read in any order."""
    if heir.gone or dict(stored(store, heir.stream)) == dict(seen):
        return []
    return [f"{heir.label} is not what it was when it was made"]
