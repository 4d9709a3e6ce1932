"""At which of its calls a process is to crash, for the tables of crashes, and the process that does.

What is durable changes at a few calls only, so a crash before any other call leaves just what a crash after the last of
these has left. Those are all taken; of the crashes before a call some are drawn, and all are taken with
ANABRANCH_CRASHES=all (`./dev sim crashes`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from anabranch.store import Store
from anabranch.testing.faults import Action, CrashAt, NoFaults
from anabranch.testing.world import Process, ProcessCrashed, World

_CHANGES: Final = {
    "blobs.delete": (Action.CRASH_AFTER,),
    "blobs.put": (Action.CRASH_MIDWAY, Action.CRASH_AFTER),
    "catalog.commit": (Action.CRASH_AFTER,),
    "writing.commit": (Action.CRASH_AFTER,),
}
_EVERY: Final = os.environ.get("ANABRANCH_CRASHES") == "all"
_DRAWN: Final = 10


def crashes(calls: Sequence[str]) -> Iterator[tuple[int, Action]]:
    """The crashes of a process that makes these calls, each at the number of one of them."""
    numbers = range(1, len(calls) + 1)
    drawn = set(numbers if _EVERY else random.Random(len(calls)).sample(numbers, min(_DRAWN, len(calls))))
    for number, name in enumerate(calls, 1):
        if number in drawn:
            yield number, Action.CRASH_BEFORE
        for action in _CHANGES.get(name, ()):
            yield number, action


def crashed_at(
    world: World, number: int, action: Action, work: Callable[[Store], object], *stumbles: type[Exception]
) -> Process | None:
    """Run `work` in a process that crashes at its call of this number, or behind all of them where it got away; with
    Action.PASS it lives. `work` may raise `stumbles` as well. None where the process died while it opened."""
    actor: Process | None = None
    with suppress(ProcessCrashed, *stumbles):
        actor = world.process("actor", faults=NoFaults() if action is Action.PASS else CrashAt(number, action))
        actor.call(work)
        if action is not Action.PASS:
            actor.crash()
    return actor
