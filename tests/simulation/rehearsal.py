"""The simulation's clients against real servers: threads instead of steps, real time instead of virtual time.

A server can't be single-stepped, so a seed does not give the same run here: it gives the same clients, with the same
draws of what to do and which calls fail. The judgement is the same: ledgers, joints, promises and the history of every
segment. Crashes are left to real processes (see `torture/`); here answers are lost, calls are delayed, stalled and
doubled, and `strike` may do anything to the server.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.errors import AnabranchError
from anabranch.model.ids import Micros
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.testing.faults import Action, Gate, RandomFaults
from anabranch.testing.faulty_ports import FaultyCatalog
from tests.clocks import runtime_by
from tests.simulation import clients
from tests.simulation.clients import Arena, Client, ClientMix
from tests.simulation.gate import SimBlobs
from tests.simulation.simulation import FaultRates, Outcome

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["Rehearsal"]

SETTINGS: Final = Settings(
    inline_bytes_max=1_500,
    commit_bytes_max=6_000,
    pending_bytes_max=12_000,
    pipeline_bytes_min=800,
    horizon_us=400_000,
    manifest_s=None,
    retention_s=None,
)
_LEASE_US: Final = 1_500_000
_STALL_S: Final = (0.5, 0.9)  # beyond the horizon
_SKEW_US: Final = 50_000
_DELAYS: Final = {Action.DELAY_BEFORE: 0.01, Action.DELAY_AFTER: 0.01}
_LOST: Final = {Action.UNCERTAIN_LANDED: 0.02, Action.UNCERTAIN_LOST: 0.02}
_RATES_AT: Final[FaultRates] = {
    "catalog.commit": _DELAYS | _LOST | {Action.UNCERTAIN_LATE: 0.02, Action.DUPLICATE: 0.03, Action.STALL: 0.01},
    "writing.commit": _DELAYS | _LOST,
    "blobs.put": _DELAYS | _LOST | {Action.UNCERTAIN_LATE: 0.01, Action.STALL: 0.02},
    "blobs.delete": _DELAYS | _LOST,
}
_END_S: Final = 120.0  # time that clients may take to stop


class _Clock(SystemClock):
    """A clock that differs from the machine's."""

    def __init__(self, skew_us: int) -> None:
        self._skew_us = skew_us

    def now(self) -> Micros:
        return Micros(super().now() + self._skew_us)


class Rehearsal:
    """Runs clients of several stores over the same real servers for some seconds, and judges the result.

    `open_ports` opens catalog and blobs for one runtime. `strike` is called now and then with the random generator that
    decides what it does to the server. `processes` is the number of stores, each of which has the clients of one of the
    `mixes`.
    """

    def __init__(
        self,
        seed: int,
        open_ports: Callable[[Runtime], tuple[Catalog, Blobs]],
        *,
        seconds: float,
        processes: int = 3,
        mixes: Sequence[ClientMix] = clients.MIXES,
        strike: Callable[[random.Random], None] = lambda rng: None,
        settings: Settings = SETTINGS,
    ) -> None:
        self._open_ports = open_ports
        self._seconds = seconds
        self._count = processes
        self._mixes = mixes
        self._strike = strike
        self._settings = settings
        self._rng = random.Random(seed)
        self._arena = Arena(self._rng)
        self._runtime = Runtime(settings=settings)
        self._outcome = Outcome(seed)

    def run(self) -> Outcome:
        """Runs it. Every error is in the outcome; its steps and digest have no meaning here."""
        with _shorter_leases():
            try:
                self._live()
            except AnabranchError as exc:
                self._outcome.error = exc
        self._outcome.done = self._arena.done
        self._outcome.violations = list(dict.fromkeys(self._arena.violations))
        return self._outcome

    def _live(self) -> None:
        with self._store(faulty=False) as store:
            store.scopes.create("sim")
            for _ in range(2):
                self._arena.new_stream(store)
        stores = [self._store() for _ in range(self._count)]
        tasks = []
        for number, store in enumerate(stores):
            for place, (name, client) in enumerate(self._rng.choice(self._mixes)):
                work = partial(self._work, client, store, f"p{number}.{name}{place}")
                tasks.append((f"p{number}.{name}{place}", self._runtime.tasks.spawn(name, work)))
        until = self._runtime.clock.monotonic() + self._seconds
        while self._runtime.clock.monotonic() < until and not self._arena.stopping:
            self._runtime.tasks.sleep(self._rng.random() * 0.4)
            self._strike(self._rng)
        self._arena.stopping = True
        for name, task in tasks:
            if not task.join(_END_S):
                self._arena.violations.append(f"{name} does not end")
                return
        for store in stores:
            with suppress(AnabranchError):  # a writer's last events may have been refused, as its answers say
                store.close()
        self._judge()

    def _work(self, client: Client, store: Store, name: str) -> None:
        try:
            client(self._arena, store, name)
        except Exception as exc:
            self._outcome.error = exc
            self._arena.stopping = True

    def _judge(self) -> None:
        if self._arena.violations or self._outcome.error is not None:
            return
        with self._store(faulty=False) as store:
            self._arena.settle(store)
            self._arena.violations += clients.judge(self._arena, store)
            store.compact(force=True)
            for _ in range(2):
                store.collect()
                self._runtime.tasks.sleep(self._settings.horizon_us / 1e6)
            self._arena.violations += clients.judge(self._arena, store)

    def _store(self, *, faulty: bool = True) -> Store:
        from anabranch.store import Store

        rng = random.Random(self._rng.random())
        runtime = runtime_by(_Clock(rng.randrange(-_SKEW_US, _SKEW_US) if faulty else 0), settings=self._settings)
        catalog, blobs = self._open_ports(runtime)
        if not faulty:
            return Store(catalog=catalog, blobs=blobs, runtime=runtime)
        gate = Gate(RandomFaults(rng, {}, _RATES_AT), runtime=runtime, rng=rng, stall_s=_STALL_S)
        return Store(catalog=FaultyCatalog(catalog, gate), blobs=SimBlobs(blobs, gate), runtime=runtime)


@contextmanager
def _shorter_leases() -> Iterator[None]:
    before = limits.LEASE_US
    setattr(limits, "LEASE_US", _LEASE_US)  # noqa: B010 - to the type checker it is final
    try:
        yield
    finally:
        setattr(limits, "LEASE_US", before)  # noqa: B010
