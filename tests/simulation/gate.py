"""The gate of a simulated process: a switching point of the scheduler at each call of its catalog and its blobs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.testing.faults import DELAY_S_MAX, Action, Call, Faults, Gate
from anabranch.testing.faulty_ports import FaultyBlobs
from tests.simulation.scheduler import Group, Scheduler

__all__ = ["SimBlobs", "SimGate"]

_STALL_S: Final = (0.06, 0.4)  # beyond the horizon and the leases of `simulation.SETTINGS`


class SimGate(Gate):
    """The gate that every port call of one process passes, on virtual time. Requests that are under way when the
    process dies continue in the group `outside`."""

    def __init__(
        self, scheduler: Scheduler, group: Group, faults: Faults | None = None, *, outside: Group | None = None
    ) -> None:
        super().__init__(faults)
        self.scheduler = scheduler
        self.group = group
        self.outside = outside or group

    def before(self, name: str) -> Action:
        """A switching point; else see `Gate.before`."""
        self.scheduler.point(name, self.group)
        self.calls.append(name)
        action = self.faults.decide(Call(len(self.calls), name))
        if action is not Action.PASS:
            self.scheduler.record(self.scheduler.enter(self.group), f"{action.value} {name}")
        if action is Action.CRASH_BEFORE or (action is Action.CRASH_MIDWAY and name != "blobs.put"):
            self.crash()
        if action is Action.DELAY_BEFORE:
            self.pause(DELAY_S_MAX)
        return action

    def after(self, name: str, action: Action) -> None:
        """Called after the effect. A switching point, where others may see the effect first."""
        if action is Action.CRASH_AFTER:
            self.crash()
        if action is Action.DELAY_AFTER:
            self.pause(DELAY_S_MAX)
        if action is Action.STALL:
            self.pause(_STALL_S[1], _STALL_S[0])
        self.scheduler.point(f"{name} done", self.group)

    def crash(self) -> None:
        """Crashes all tasks of the process."""
        self.scheduler.crash(self.group)

    def pause(self, most_s: float, least_s: float = 0.0) -> None:
        """Lets virtual time pass."""
        self.scheduler.park("delayed", timeout=self.scheduler.rng.uniform(least_s, most_s), group=self.group)

    def later(self, name: str, effect: Callable[[], object], *, survives: bool) -> None:
        """See `Gate.later`."""
        group = self.outside if survives else self.group

        def late() -> None:
            most_s = self.scheduler.rng.choice((DELAY_S_MAX, _STALL_S[1]))
            self.scheduler.park("on its way", timeout=self.scheduler.rng.uniform(0, most_s), group=group)
            self.scheduler.point(f"late {name}", group)
            with suppress(AnabranchError):
                effect()

        self.scheduler.spawn(f"late {name}", late, group)


class SimBlobs(FaultyBlobs):
    """Blobs behind a gate that outlive the process: `close` does not close them."""

    def close(self) -> None:
        """See `Blobs.close`."""
