"""Stitches: all of the first source, then all of the second, and so on, in a new stream."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING

from anabranch.core.stitch import JoinResult
from tests.simulation.changes import moved_parts
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.clients.transfers import STREAMS_MAX, begin, fresh, related, some_range, whole
from tests.simulation.inheritance import Joint
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["stitch"]


def stitch(arena: Arena, store: Store, name: str) -> None:
    """Stitches streams together, some of which are written to meanwhile. Sources created for it may be deleted by
    it."""
    for _ in arena.turns(store, 12):
        with suppress(*EXPECTED):
            sources = [fresh(arena, store, name) for _ in range(arena.rng.randrange(1, 3))]
            busy = arena.pick_any()
            if arena.chance(0.5):
                sources.insert(arena.rng.randrange(len(sources) + 1), busy)
            _stitch(arena, store, sources, keep=busy in sources or arena.chance(0.4))


def _stitch(arena: Arena, store: Store, sources: Sequence[Ledger], *, keep: bool) -> None:
    drawn = [some_range(arena, store, each) if keep and arena.chance(0.2) else whole(each) for each in sources]
    with arena.deciding:
        if any(related(arena, one, other) for one, other in combinations(sources, 2)):
            return
        target = f"sim/stitched{arena.serial()}"
        heir = Ledger(target)
        joints = [
            begin(arena, f"{target} of {source.label}", source, heir, exact)
            for source, (_, exact) in zip(sources, drawn, strict=True)
        ]
        arena.joints[target] = joints
    parts = [asked_for for asked_for, _ in drawn]
    given_up = () if keep else tuple(sources)
    for source in given_up:
        source.gone = True

    def refused() -> None:
        del arena.joints[target]
        for source in given_up:
            source.gone = False

    asked = Asked(
        lambda each: each.streams.stitch(parts, into=target, keep_sources=keep, request=target),
        lambda _, joined: _note(arena, joints, joined),
        refused,
    )
    arena.ask(store, target, asked)


def _note(arena: Arena, joints: Sequence[Joint], joined: JoinResult) -> None:
    for joint, (_, moves) in zip(joints, joined.parts, strict=True):
        joint.answer(moved_parts(joint.source, moves), arena.recorder.moment())
    arena.adopt(joints[0].heir, joined.stream, active=len(arena.active) < 5 and len(arena.ledgers) < STREAMS_MAX)
    arena.done["stitch"] += 1
