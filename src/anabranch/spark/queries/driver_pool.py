"""The drivers of a host: those with queries, those with hot standbys alone, and spare ones, which were started ahead."""

from __future__ import annotations

import queue
import time
from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from anabranch import limits
from anabranch.catalog.state.query import DEFAULT_GROUP
from anabranch.spark.queries.driver_process import DriverEvent, DriverOwner, DriverProcess
from anabranch.store import StoreAddresses

__all__ = ["DriverPool", "pause_s"]


_Use: TypeAlias = Literal["queries", "standbys", "none"]


class DriverPool:
    """Starts drivers, gives them out, and ends them. `spares` are kept ready; `conf` are settings of Spark."""

    def __init__(
        self, addresses: StoreAddresses, conf: Mapping[str, str], events: queue.SimpleQueue[DriverEvent], *, spares: int
    ) -> None:
        self._addresses = addresses
        self._conf = dict(conf)
        self._events = events
        self._spares_wanted = spares
        self._drivers: dict[DriverProcess, _Use] = {}  # "none": a spare one; the longest in their use come first
        self._failed_starts = 0  # in a row
        self._next_spare_s = 0.0

    @property
    def standby_owners(self) -> set[DriverOwner]:
        """The owners of drivers that have only hot standbys."""
        return {each.owner for each in self._used_for("standbys") if each.owner is not None}

    def for_query(self, owner: DriverOwner) -> DriverProcess:
        """The driver for the queries of this owner: the one that it has, else a spare one, else a new one."""
        for driver in self._used_for("queries"):
            if driver.owner == owner:
                return driver
        spares = self._spares()
        return self._use(spares[0] if spares else self._new(warm=False), "queries", owner)

    def for_standby(self, owner: DriverOwner, without: DriverProcess | None) -> DriverProcess | None:
        """A driver other than `without` for a hot standby of a query of the owner; None while none of the spare ones
        has started."""
        for driver in self._used_for("standbys"):
            if driver.owner == owner and driver is not without:
                return driver
        for driver in self._spares():
            if driver.ready and driver is not without:
                return self._use(driver, "standbys", owner)
        self._start_spare(warm=True)
        return None

    def promote(self, driver: DriverProcess) -> DriverProcess:
        """Make a driver whose standby takes over one with queries. Returns it."""
        return self._use(driver, "queries", driver.owner)

    def for_question(self) -> DriverProcess | None:
        """A driver that has started and may answer questions about any query; None while there is no such driver. If
        no such driver has started or is starting, a spare one is started."""
        of_groups = (each for each in self._used_for("queries") if each.owner and each.owner.query is None)
        drivers = [*self._spares(), *of_groups]
        if not drivers:
            self._start_spare(warm=False)
        return next((each for each in drivers if each.ready), None)

    def has(self, driver: DriverProcess) -> bool:
        """Whether the driver is still one of this pool: it has not ended, and is not being ended."""
        return driver in self._drivers

    def started(self, driver: DriverProcess, *, on_cluster: bool) -> None:
        """Note that a driver is ready."""
        driver.ready, driver.on_cluster = True, on_cluster
        self._failed_starts = 0

    def ended(self, driver: DriverProcess, timeout_s: float) -> str:
        """End a driver, if it has not ended yet, and remove it from the pool. Returns how it ended."""
        how = driver.end(timeout_s)
        if not driver.ready:
            self._failed_starts += 1
            self._next_spare_s = time.monotonic() + pause_s(self._failed_starts + 1)
        self._drivers.pop(driver, None)
        return how

    def keep_spares(self, busy: Collection[DriverProcess], *, idle_max: int | None, more: bool) -> None:
        """End the drivers that are no longer `busy` with queries or standbys. Those of the default group stay: one
        for the group's next query if the group has no busy driver, the others as spare ones. No driver goes from one
        group to another. Of the idle drivers at most `idle_max` stay; None: all. With `more`, start a spare driver if
        one is missing and may stay, unless another driver is starting, which the spare one would slow down."""
        default = DriverOwner(DEFAULT_GROUP)
        with_queries = self._used_for("queries")
        has_default = any(each.owner == default for each in with_queries if each in busy)
        for driver in (*with_queries, *self._used_for("standbys")):
            if driver in busy:
                continue
            if driver.owner == default and driver in with_queries and not has_default:
                has_default = True
            elif driver.owner == default:
                self._use(driver, "none", None)
            else:
                self._end_idle(driver)
        if idle_max is None:
            return
        # One spare driver may stay even if none is wanted: it was started for a question, or used before.
        for driver in {*self._spares()[max(self._spares_wanted, 1) :], *self._idle(busy)[idle_max:]}:
            self._end_idle(driver)
        has_room = len(self._idle(busy)) < idle_max
        if more and has_room and not self.starting() and len(self._spares()) < self._spares_wanted:
            self._start_spare(warm=True)

    def starting(self) -> list[DriverProcess]:
        """The drivers that have not started yet."""
        return [each for each in self._drivers if not each.ready]

    def end(self) -> None:
        """End all drivers: those with queries once they have closed the store, those on a cluster once they have left it,
        the others at once."""
        in_order = [each for each, use in self._drivers.items() if use == "queries" or each.on_cluster]
        for driver in in_order:
            driver.send(exit=True)
        for driver in self._drivers:
            driver.end(limits.DEPLOYMENT_LEAVE_S if driver in in_order else 0.0)

    def _used_for(self, use: _Use) -> list[DriverProcess]:
        return [each for each, its in self._drivers.items() if its == use]

    def _spares(self) -> list[DriverProcess]:
        """Those that have started come first."""
        return sorted(self._used_for("none"), key=lambda each: not each.ready)

    def _idle(self, busy: Collection[DriverProcess]) -> list[DriverProcess]:
        """The drivers that run nothing: first the spare ones, which any query may use."""
        return [*self._spares(), *(each for each in self._used_for("queries") if each not in busy)]

    def _use(self, driver: DriverProcess, use: _Use, owner: DriverOwner | None) -> DriverProcess:
        self._drivers.pop(driver, None)
        self._drivers[driver] = use
        driver.owner = owner
        return driver

    def _end_idle(self, driver: DriverProcess) -> None:
        del self._drivers[driver]
        driver.end_idle()

    def _start_spare(self, *, warm: bool) -> None:
        if time.monotonic() >= self._next_spare_s and all(each.ready for each in self._spares()):
            self._use(self._new(warm=warm), "none", None)

    def _new(self, *, warm: bool) -> DriverProcess:
        return DriverProcess(self._addresses, self._conf, self._events, warm=warm)


def pause_s(restarts: int) -> float:
    """The pause before a restart. The first one is made at once: most drivers that end were killed, and a spare one waits."""
    return 0.0 if restarts == 1 else min(2.0 ** min(restarts - 2, 32), limits.DEPLOYMENT_BACKOFF_S_MAX)
