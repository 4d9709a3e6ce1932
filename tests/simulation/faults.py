"""Ports that count their calls, let the scheduler switch at each, and fail where a strategy decides so.

`Gate` is the one place that defines how a call can go wrong; `SimCatalog` and `SimBlobs` only mark where calls begin
and end. A new kind of fault is a new `Action`, and a branch where it is applied.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeVar, cast

import pyarrow as pa

from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import Catalog, Reading, Subject, Writing
from anabranch.errors import AnabranchError, AppendUncertain, StoreUnavailable
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.clock import Clock
from anabranch.runtime.tasks import Lock
from tests.simulation.scheduler import Group, Scheduler

__all__ = ["Action", "Call", "CrashAt", "Faults", "Gate", "NoFaults", "RandomFaults", "SimBlobs", "SimCatalog"]

T = TypeVar("T")


class Action(Enum):
    """What happens to a port call. An action that does not apply to a call (see each) means PASS.

    DELAY_… lets virtual time pass before or after the effect; concurrent calls that were made later overtake it. STALL
    lets so much time pass that the collector's horizon and leases expire. Any call.

    UNCERTAIN_… loses the answer: the effect took place, or never does, or takes place some time after the caller got
    the error. It applies to `catalog.commit` (AppendUncertain), `writing.commit` (AppendUncertain; it is never late,
    since the open transaction keeps its locks) and calls of blobs (StoreUnavailable; only a put can be late).
    UNCERTAIN_LOST at `catalog.writing` makes the catalog unavailable (StoreUnavailable).

    DUPLICATE repeats the request in the network, as after a lost answer: the second request follows the first, and the
    caller gets the second answer. It applies to `catalog.commit`; to `blobs.put`, whose second request is refused or,
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


DELAY_S_MAX: Final = 0.01
STALL_S: Final = (0.06, 0.4)  # beyond the horizon and the leases of `simulation.SETTINGS`


@dataclass(frozen=True, slots=True)
class Call:
    """The `number`th port call of a process, from 1; `name` is `port.method`."""

    number: int
    name: str


class Faults(Protocol):
    """A strategy that decides what happens to each call."""

    def decide(self, call: Call) -> Action:
        """Called once per call, right before its effect."""
        ...


class NoFaults:
    """Every call passes."""

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        return Action.PASS


class CrashAt:
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


class Gate:
    """The gate that every port call of one process passes. `calls` lists their names, in order. Requests that are
    under way when the process dies continue in the group `outside`."""

    def __init__(
        self, scheduler: Scheduler, group: Group, faults: Faults | None = None, *, outside: Group | None = None
    ) -> None:
        self.scheduler = scheduler
        self.group = group
        self.outside = outside or group
        self.faults: Faults = faults or NoFaults()
        self.calls: list[str] = []

    def before(self, name: str) -> Action:
        """A switching point; returns the action for the call. Raises SimulatedCrash, with no effect, for
        CRASH_BEFORE."""
        self.scheduler.point(name, self.group)
        self.calls.append(name)
        action = self.faults.decide(Call(len(self.calls), name))
        if action is not Action.PASS:
            self.scheduler.record(self.scheduler.enter(self.group), f"{action.value} {name}")
        if action is Action.CRASH_BEFORE or (action is Action.CRASH_MIDWAY and name != "blobs.put"):
            self.scheduler.crash(self.group)
        if action is Action.DELAY_BEFORE:
            self.pause(DELAY_S_MAX)
        return action

    def after(self, name: str, action: Action) -> None:
        """Called after the effect. Raises SimulatedCrash for CRASH_AFTER; else a switching point, where others may
        see the effect first."""
        if action is Action.CRASH_AFTER:
            self.scheduler.crash(self.group)
        if action is Action.DELAY_AFTER:
            self.pause(DELAY_S_MAX)
        if action is Action.STALL:
            self.pause(STALL_S[1], STALL_S[0])
        self.scheduler.point(f"{name} done", self.group)

    def pause(self, most_s: float, least_s: float = 0.0) -> None:
        """Lets virtual time pass."""
        self.scheduler.park("delayed", timeout=self.scheduler.rng.uniform(least_s, most_s), group=self.group)

    def later(self, name: str, effect: Callable[[], object], group: Group) -> None:
        """Runs an effect some time after its caller has continued; its answer is lost."""

        def late() -> None:
            most_s = self.scheduler.rng.choice((DELAY_S_MAX, STALL_S[1]))
            self.scheduler.park("on its way", timeout=self.scheduler.rng.uniform(0, most_s), group=group)
            self.scheduler.point(f"late {name}", group)
            with suppress(AnabranchError):
                effect()

        self.scheduler.spawn(f"late {name}", late, group)

    def call(self, name: str, effect: Callable[[], T]) -> T:
        """Runs a call whose effect is atomic."""
        action = self.before(name)
        result = effect()
        self.after(name, action)
        return result


class SimCatalog:
    """A catalog behind a gate; see `catalog.port.Catalog`.

    A crash inside a transaction rolls it back. Leaving a transaction is a call of its own (`writing.commit`): before it
    none of the changes are made, after it all are. Waiting for another's transaction must happen in the scheduler,
    since waiting in the database would block the world: an adapter that waits there is given `turn`, a lock of the
    whole world.
    """

    def __init__(self, inner: Catalog, gate: Gate, turn: Lock | None = None) -> None:
        self.inner = inner
        self._gate = gate
        self._turn: AbstractContextManager[object] = nullcontext() if turn is None else turn

    @property
    def clock(self) -> Clock:
        """See `Catalog.clock`."""
        return self.inner.clock

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """See `Catalog.reading`."""
        self._gate.after("catalog.reading", self._gate.before("catalog.reading"))
        with self.inner.reading() as snapshot:
            yield cast(Reading, _Through(self._gate, "reading", snapshot))

    @contextmanager
    def writing(self, on: Subject | None = None) -> Iterator[Writing]:
        """See `Catalog.writing`."""
        begun = self._gate.before("catalog.writing")
        if begun is Action.UNCERTAIN_LOST:
            raise StoreUnavailable("the simulation keeps the catalog away")
        with self._turn:
            with self.inner.writing(on) as transaction:
                self._gate.after("catalog.writing", begun)
                yield cast(Writing, _Through(self._gate, "writing", transaction))
                action = self._gate.before("writing.commit")
                if action is Action.UNCERTAIN_LOST:  # leaving the transaction by an error rolls it back
                    raise AppendUncertain("the simulation lost this transaction and its answer")
            if action is Action.UNCERTAIN_LANDED:
                raise AppendUncertain("the simulation lost the answer to this transaction")
            self._gate.after("writing.commit", action)

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """See `Catalog.commit`."""
        action = self._gate.before("catalog.commit")
        with self._turn:
            if action is Action.UNCERTAIN_LOST:
                raise AppendUncertain("the simulation lost this commit and its answer")
            if action is Action.UNCERTAIN_LATE:
                # A session that dies with its process drops requests that were not yet sent.
                self._gate.later("catalog.commit", lambda: self._commit(commit), self._gate.group)
                raise AppendUncertain("the simulation delays this commit beyond its caller's patience")
            verdicts = self.inner.commit(commit)
            if action is Action.UNCERTAIN_LANDED:
                raise AppendUncertain("the simulation lost the answer to this commit")
        if action is Action.DUPLICATE:
            self._gate.pause(DELAY_S_MAX)
            verdicts = self._commit(commit)
        self._gate.after("catalog.commit", action)
        return verdicts

    def _commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        with self._turn:
            return self.inner.commit(commit)

    def token(self) -> int:
        """See `Catalog.token`."""
        return self._gate.call("catalog.token", self.inner.token)

    def translated(self, error: Exception) -> Exception:
        """See the port."""
        return self.inner.translated(error)

    def close(self) -> None:
        """See `Catalog.close`."""
        self._gate.call("catalog.close", self.inner.close)


class _Through:
    """A transaction each of whose methods goes through the gate. Generic, so that a port may grow."""

    def __init__(self, gate: Gate, prefix: str, inner: object) -> None:
        self._gate = gate
        self._prefix = prefix
        self._inner = inner

    def __getattr__(self, method: str) -> Callable[..., Any]:
        target: Callable[..., Any] = getattr(self._inner, method)
        name = f"{self._prefix}.{method}"
        return lambda *args, **kwargs: self._gate.call(name, lambda: target(*args, **kwargs))


class SimBlobs:
    """A blob store behind a gate; see `blobs.port.Blobs`. `inner` outlives the process: `close` does not close it."""

    def __init__(self, inner: Blobs, gate: Gate) -> None:
        self.inner = inner
        self._gate = gate

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See `Blobs.put`."""
        action = self._gate.before("blobs.put")
        if action is Action.CRASH_MIDWAY:
            self.inner.put(key, chunks[: len(chunks) // 2])
            self._gate.scheduler.crash(self._gate.group)
        if action is Action.UNCERTAIN_LATE:
            self._gate.later("blobs.put", lambda: self.inner.put(key, chunks), self._gate.outside)
        else:
            self._unless_lost(action, lambda: self.inner.put(key, chunks))
        if action is Action.DUPLICATE:
            self._gate.later("blobs.put", lambda: self.inner.put(key, chunks), self._gate.outside)
        self._answer("blobs.put", action)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See `Blobs.get`."""
        return self._call("blobs.get", lambda: self.inner.get(key, offset, length))

    def size(self, key: str) -> int | None:
        """See `Blobs.size`."""
        return self._call("blobs.size", lambda: self.inner.size(key))

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See `Blobs.list`. The listing is as of one moment."""
        return iter(self._call("blobs.list", lambda: [*self.inner.list(prefix)]))

    def delete(self, key: str) -> None:
        """See `Blobs.delete`."""
        action = self._gate.before("blobs.delete")
        self._unless_lost(action, lambda: self.inner.delete(key))
        if action is Action.DUPLICATE:
            self.inner.delete(key)
        self._answer("blobs.delete", action)

    def _call(self, name: str, effect: Callable[[], T]) -> T:
        action = self._gate.before(name)
        result = effect()
        self._answer(name, action)
        return result

    def _unless_lost(self, action: Action, effect: Callable[[], object]) -> None:
        if action is not Action.UNCERTAIN_LOST:
            effect()

    def _answer(self, name: str, action: Action) -> None:
        if action in (Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST, Action.UNCERTAIN_LATE):
            raise StoreUnavailable(f"the simulation lost the answer to {name}")
        self._gate.after(name, action)

    def path(self, key: str) -> str:
        """See `Blobs.path`."""
        return self.inner.path(key)

    def close(self) -> None:
        """See `Blobs.close`."""


def _conforms(catalog: SimCatalog, blobs: SimBlobs) -> tuple[Catalog, Blobs]:
    """Lets the type checker verify that the wrappers implement the ports."""
    return catalog, blobs
