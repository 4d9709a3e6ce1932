"""Copies of a whole scope, a page at a time; an interrupted copy continues when it is requested again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.core.copy import CopyResult
from tests.simulation.changes import copied_parts
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.clients.judgement import held
from tests.simulation.clients.transfers import begin, known
from tests.simulation.inheritance import Holding, Joint, judge_joints
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["copy_scope"]


def copy_scope(arena: Arena, store: Store, name: str) -> None:
    """Copies all streams, checks every copy, and deletes the copies."""
    for _ in arena.turns(store, 60):
        with suppress(*EXPECTED):
            _copy_scope(arena, store)


def _copy_scope(arena: Arena, store: Store) -> None:
    target = f"folder{arena.serial()}"
    joints: dict[str, Joint] = {}
    for ledger in list(arena.ledgers.values()):
        joints[ledger.label] = begin(
            arena, f"{target} of {ledger.label}", ledger, Ledger(f"{target} {ledger.label}"), None
        )
    asked = Asked(
        lambda each: each.scopes.copy("sim", target, request=target),
        lambda each, copies: _note(arena, each, joints, copies),
    )
    if arena.ask(store, target, asked):
        for info in list(store.streams.list(target)):
            store.streams.delete(info.name)
        store.scopes.delete(target)


def _note(arena: Arena, store: Store, joints: dict[str, Joint], copies: Sequence[CopyResult]) -> None:
    """Judges each copy at once, because it is deleted afterwards."""
    for copied in copies:
        joint = joints.get(arena.names.get(copied.source, ""))
        if joint is None:  # created meanwhile, or without a ledger
            continue
        view = store.streams.view(copied.copy)
        joint.answer(copied_parts(joint.source, view), arena.recorder.moment())
        if not known(arena, joint.source):
            continue
        there = held(store, str(view.info.name))
        source = store.streams.view(copied.source)
        gone = Holding((), {each.id: each.head for each in source.ordered})
        arena.violations += judge_joints([[joint]], {joint.heir: there, joint.source: gone})
    arena.done["copy of a scope"] += 1
