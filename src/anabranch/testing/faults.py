"""What goes wrong with the calls of a catalog and a blob store, and when: see `faulty_ports` for where it is applied.

`Gate` is the one place that defines how a call can go wrong. A new kind of fault is a new `Action`, and a branch where
it is applied.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeVar

from anabranch.errors import AnabranchError
from anabranch.runtime.ports import Runtime

__all__ = [
    "Action",
    "Call",
    "FaultAt",
    "FaultPlan",
    "Faults",
    "Gate",
    "NoFaults",
    "RandomFaults",
    "SimulatedCrash",
]

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process of this task has crashed. Not an Exception: no error handling may survive a power cut."""


class Action(Enum):
    """What happens to a port call. An action that does not apply to a call (see each) means PASS.

    DELAY_… lets time pass before or after the effect; concurrent calls that were made later overtake it. STALL lets
    more time pass: choose it so that the collector's horizon and leases expire. Any call.

    UNCERTAIN_… loses the answer: the effect took place, or never does, or takes place some time after the caller got
    the error. It applies to `catalog.commit` (AppendUncertain), `writing.commit` (AppendUncertain; it is never late,
    since the open transaction keeps its locks) and calls of blobs (StoreUnavailable; only a put can be late).
    UNCERTAIN_LOST at `catalog.writing` makes the catalog unavailable (StoreUnavailable).

    DUPLICATE repeats the request in the network, as after a lost answer: the second request follows the first, and the
    caller gets the answer to the second. It applies to `catalog.commit`; to `blobs.put`, whose second request is refused or,
    if the blob was removed meanwhile, restores it; and to `blobs.delete`. A transaction is a session: its commit can't
    be requested twice.

    CRASH_MIDWAY leaves a part of a `blobs.put`; elsewhere it is CRASH_BEFORE.
    """

    PASS = "pass"
    CRASH_BEFORE = "crash_before"
    CRASH_MIDWAY = "crash_midway"
    CRASH_AFTER = "crash_after"
    UNCERTAIN_LANDED = "uncertain_landed"
    UNCERTAIN_LOST = "uncertain_lost"
    UNCERTAIN_LATE = "uncertain_late"
    DUPLICATE = "duplicate"
    DELAY_BEFORE = "delay_before"
    DELAY_AFTER = "delay_after"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class Call:
    """The `number`th port call of a process, from 1; `name` is `port.method`."""

    number: int
    name: str


class Faults(Protocol):
    """A strategy that decides what happens to each call. Calls may come from several threads."""

    def decide(self, call: Call) -> Action:
        """Called once per call, right before its effect. If it raises, there is no effect, and the caller gets the error."""
        ...


class NoFaults:
    """Every call passes."""

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        return Action.PASS


class FaultAt:
    """One fault, at the `number`th call; or with `name` at the `number`th of the calls of that name, which is the
    same one in any interleaving with background work of the process."""

    def __init__(self, number: int, action: Action, name: str | None = None) -> None:
        self._number = number
        self._action = action
        self._name = name
        self.seen = 0

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        if self._name is not None:
            self.seen += call.name == self._name
            return self._action if call.name == self._name and self.seen == self._number else Action.PASS
        return self._action if call.number == self._number else Action.PASS


class FaultPlan:
    """Faults for the next calls of a name. A test may plan more while the store is at work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: defaultdict[str, deque[Action | Exception]] = defaultdict(deque)

    def add(self, name: str, fault: Action | Exception, *, times: int = 1, after: int = 0) -> None:
        """Plans a fault for `times` calls of that name, after `after` calls that pass. Plans for one name follow each other.
        An exception is raised instead of the call's effect."""
        with self._lock:
            self._coming[name].extend([*[Action.PASS] * after, *[fault] * times])

    @property
    def left(self) -> int:
        """How many of the planned calls have not been made yet."""
        with self._lock:
            return sum(map(len, self._coming.values()))

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        with self._lock:
            coming = self._coming[call.name]
            fault = coming.popleft() if coming else Action.PASS
        if isinstance(fault, Exception):
            raise fault
        return fault


class RandomFaults:
    """Each action has a rate per call; the rates sum up to at most 1. `at` has the rates for calls by name."""

    def __init__(
        self, rng: random.Random, rates: Mapping[Action, float], at: Mapping[str, Mapping[Action, float]] | None = None
    ) -> None:
        self._rng = rng
        self._rates = dict(rates)
        self._at = {} if at is None else at

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        draw = self._rng.random()
        for action, rate in self._at.get(call.name, self._rates).items():
            if draw < rate:
                return action
            draw -= rate
        return Action.PASS


DELAY_S_MAX: Final = 0.01
STALL_S: Final = (0.5, 0.9)


class Gate:
    """The gate that every port call of one process passes: hand the same one to its catalog and its blobs, so that
    they crash together. `calls` lists the names of the calls, in order.

    `runtime` sleeps for delays and runs late effects; `rng` draws how long a delay takes. `stall_s` is the shortest and the
    longest stall, in seconds."""

    def __init__(
        self,
        faults: Faults | None = None,
        *,
        runtime: Runtime | None = None,
        rng: random.Random | None = None,
        stall_s: tuple[float, float] = STALL_S,
    ) -> None:
        self.faults: Faults = faults or NoFaults()
        self.calls: list[str] = []
        self.crashed = False
        self._tasks = (runtime or Runtime()).tasks
        self._rng = rng or random.Random(0)
        self._stall_s = stall_s
        self._lock = threading.Lock()

    def before(self, name: str) -> Action:
        """Returns the action for the call. Raises SimulatedCrash, with no effect, for CRASH_BEFORE, and for every call
        of a process that has crashed."""
        if self.crashed:
            raise SimulatedCrash
        with self._lock:
            self.calls.append(name)
            call = Call(len(self.calls), name)
        action = self.faults.decide(call)
        if action is Action.CRASH_BEFORE or (action is Action.CRASH_MIDWAY and name != "blobs.put"):
            self.crash()
        if action is Action.DELAY_BEFORE:
            self.pause(DELAY_S_MAX)
        return action

    def after(self, name: str, action: Action) -> None:
        """Called after the effect. Raises SimulatedCrash for CRASH_AFTER."""
        if action is Action.CRASH_AFTER:
            self.crash()
        if action is Action.DELAY_AFTER:
            self.pause(DELAY_S_MAX)
        if action is Action.STALL:
            least_s, most_s = self._stall_s
            self.pause(most_s, least_s)

    def crash(self) -> None:
        """Crashes the process: raises SimulatedCrash, here and for every later call."""
        self.crashed = True
        raise SimulatedCrash

    def pause(self, most_s: float, least_s: float = 0.0) -> None:
        """Lets time pass."""
        self._tasks.sleep(self._rng.uniform(least_s, most_s))

    def later(self, name: str, effect: Callable[[], object], *, survives: bool) -> None:
        """Runs an effect some time after its caller has continued; its answer is lost. With `survives` it
        runs even if the process has crashed by then, since the request is already on its way."""

        def late() -> None:
            self.pause(self._rng.choice((DELAY_S_MAX, self._stall_s[1])))
            if survives or not self.crashed:
                with suppress(AnabranchError):
                    effect()

        self._tasks.spawn(f"late {name}", late)

    def call(self, name: str, effect: Callable[[], T]) -> T:
        """Runs a call whose effect is atomic."""
        action = self.before(name)
        result = effect()
        self.after(name, action)
        return result
