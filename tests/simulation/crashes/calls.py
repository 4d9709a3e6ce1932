"""At which of its calls a process is to crash, for the tables of crashes, and the process that does.

What is durable changes at a few calls only, so a crash before any other call leaves just what a crash after the last of
these has left. A plain run draws some of both kinds, the same each time; a test marked `slow` takes all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import pytest

from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt, NoFaults
from tests.simulation.world import Process, ProcessCrashed, World

_CHANGES: Final = {
    "blobs.delete": (Action.CRASH_AFTER,),
    "blobs.put": (Action.CRASH_MIDWAY, Action.CRASH_AFTER),
    "catalog.commit": (Action.CRASH_AFTER,),
    "writing.commit": (Action.CRASH_AFTER,),
}
_DRAWN_CHANGES: Final = 3
_DRAWN_CALLS: Final = 1
_DRAWN_ANSWERS: Final = 3

# For tests with a parameter `every`, which they hand to `crashes`.
some_or_every_crash = pytest.mark.parametrize(
    "every", [pytest.param(False, id="some"), pytest.param(True, id="every", marks=pytest.mark.slow)]
)


def crashes(calls: Sequence[str], *, every: bool) -> list[tuple[int, Action]]:
    """The crashes of a process that makes these calls, each at the number of one of them."""
    before = [(number, Action.CRASH_BEFORE) for number in range(1, len(calls) + 1)]
    changes = [(number, action) for number, name in enumerate(calls, 1) for action in _CHANGES.get(name, ())]
    if every:
        return before + changes
    rng = random.Random(len(calls))
    return [*_drawn(rng, before, _DRAWN_CALLS), *_drawn(rng, changes, _DRAWN_CHANGES)]


def answers(calls: Sequence[str], *names: str, every: bool) -> list[int]:
    """The numbers of calls with one of these names, whose answers are to be lost."""
    numbers = [number for number, name in enumerate(calls, 1) if name in names]
    if every:
        return numbers
    return sorted(random.Random(len(calls)).sample(numbers, min(_DRAWN_ANSWERS, len(numbers))))


def _drawn(rng: random.Random, crashes: list[tuple[int, Action]], number: int) -> list[tuple[int, Action]]:
    return sorted(rng.sample(crashes, min(number, len(crashes))), key=lambda crash: crash[0])


def crashed_at(
    world: World, number: int, action: Action, work: Callable[[Store], object], *stumbles: type[Exception]
) -> Process | None:
    """Run `work` in a process that crashes at its call of this number, or behind all of them where it got away; with
    Action.PASS it lives. `work` may raise `stumbles` as well. None where the process died while it opened."""
    actor: Process | None = None
    with suppress(ProcessCrashed, *stumbles):
        actor = world.process("actor", faults=NoFaults() if action is Action.PASS else FaultAt(number, action))
        actor.call(work)
        if action is not Action.PASS:
            actor.crash()
    return actor
