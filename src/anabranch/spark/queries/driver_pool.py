"""The drivers of a host: those with queries, those with hot standbys alone, and spare ones, which were started ahead."""

from __future__ import annotations

import queue
import time
from collections.abc import Collection, Mapping

from anabranch import limits
from anabranch.catalog.state.query import DEFAULT_GROUP
from anabranch.spark.queries.driver_process import DriverEvent, DriverOwner, DriverProcess
from anabranch.store import StoreAddresses

__all__ = ["DriverPool", "pause_s"]


class DriverPool:
    """Starts drivers, gives them out, and ends them. `spares` are kept ready; `conf` are settings of Spark."""

    def __init__(
        self, addresses: StoreAddresses, conf: Mapping[str, str], events: queue.SimpleQueue[DriverEvent], *, spares: int
    ) -> None:
        self._addresses = addresses
        self._conf = dict(conf)
        self._events = events
        self._spares_wanted = spares
        self._with_queries: list[DriverProcess] = []
        self._with_standbys: list[DriverProcess] = []
        self._spares: list[DriverProcess] = []
        self._failed_starts = 0  # in a row
        self._next_spare_s = 0.0

    @property
    def standby_owners(self) -> set[DriverOwner]:
        """The owners of drivers that have only hot standbys."""
        return {each.owner for each in self._with_standbys if each.owner is not None}

    def for_query(self, owner: DriverOwner) -> DriverProcess:
        """The driver for the queries of this owner: the one that it has, else a spare one, else a new one."""
        found = next((each for each in self._with_queries if each.owner == owner), None)
        if found is not None:
            return found
        self._spares.sort(key=lambda each: not each.ready)
        driver = self._spares.pop(0) if self._spares else self._new(warm=False)
        driver.owner = owner
        self._with_queries.append(driver)
        return driver

    def for_standby(self, owner: DriverOwner, without: DriverProcess | None) -> DriverProcess | None:
        """A driver other than this one for a hot standby of a query of the owner; None while none of the spare ones has
        started."""
        found = next((each for each in self._with_standbys if each.owner == owner and each is not without), None)
        if found is not None:
            return found
        ready = next((each for each in self._spares if each.ready and each is not without), None)
        if ready is None:
            self._start_spare(warm=True)
            return None
        self._spares.remove(ready)
        ready.owner = owner
        self._with_standbys.append(ready)
        return ready

    def promote(self, driver: DriverProcess) -> DriverProcess:
        """The standby in this driver takes over: it is one with queries now. Returns it."""
        if driver in self._with_standbys:
            self._with_standbys.remove(driver)
        if driver not in self._with_queries:
            self._with_queries.append(driver)
        return driver

    def for_question(self) -> DriverProcess | None:
        """A driver that has started and may answer questions about any query; None while there is no such driver. If
        there is none at all, one is started, which then is a spare one."""
        drivers = [*self._spares, *(each for each in self._with_queries if each.owner and each.owner.query is None)]
        if not drivers:
            self._start_spare(warm=False)
        return next((each for each in drivers if each.ready), None)

    def has(self, driver: DriverProcess) -> bool:
        """Whether the driver is still one of this pool: it has not ended, nor is it to."""
        return any(driver in each for each in (self._with_queries, self._with_standbys, self._spares))

    def started(self, driver: DriverProcess, *, on_cluster: bool) -> None:
        """A driver says that it is ready."""
        driver.ready, driver.on_cluster = True, on_cluster
        self._failed_starts = 0

    def ended(self, driver: DriverProcess, timeout_s: float) -> str:
        """A driver has ended, or is to. Returns how."""
        how = driver.end(timeout_s)
        if not driver.ready:
            self._failed_starts += 1
            self._next_spare_s = time.monotonic() + pause_s(self._failed_starts + 1)
        for each in (self._with_queries, self._with_standbys, self._spares):
            if driver in each:
                each.remove(driver)
        return how

    def keep_spares(self, busy: Collection[DriverProcess], *, idle_max: int | None, more: bool) -> None:
        """End the drivers that are no longer `busy` with queries or standbys. One of the default group is kept for the
        group's next query if it has no other one, or becomes a spare one; no driver goes from one group to another. Of
        the kept drivers at most `idle_max` stay; None: all. With `more` start a spare one if one is missing and may
        stay, unless another driver starts, which it would slow down."""
        default = DriverOwner(DEFAULT_GROUP)
        has_default = any(each.owner == default for each in self._with_queries if each in busy)
        for drivers in (self._with_queries, self._with_standbys):
            for driver in [each for each in drivers if each not in busy]:
                if driver.owner == default and drivers is self._with_queries and not has_default:
                    has_default = True
                    continue
                drivers.remove(driver)
                if driver.owner == default:
                    driver.owner = None
                    self._spares.append(driver)
                else:
                    driver.end_idle()
        if idle_max is not None:
            self._end_surplus(busy, idle_max)
        starts = any(not each.ready for each in (*self._with_queries, *self._spares))
        has_room = idle_max is not None and len(self._idle(busy)) < idle_max
        if more and has_room and not starts and len(self._spares) < self._spares_wanted:
            self._start_spare(warm=True)

    def _idle(self, busy: Collection[DriverProcess]) -> list[DriverProcess]:
        """The drivers that run nothing: first the spare ones, which any query may use."""
        return [*self._spares, *(each for each in self._with_queries if each not in busy)]

    def _end_surplus(self, busy: Collection[DriverProcess], idle_max: int) -> None:
        """One spare driver may stay even if none is wanted: it was started for a question, or used before."""
        self._spares.sort(key=lambda each: not each.ready)
        for driver in {*self._spares[max(self._spares_wanted, 1) :], *self._idle(busy)[idle_max:]}:
            (self._spares if driver in self._spares else self._with_queries).remove(driver)
            driver.end_idle()

    def starting(self) -> list[DriverProcess]:
        """The drivers that have not started yet."""
        return [each for each in (*self._with_queries, *self._spares) if not each.ready]

    def end(self) -> None:
        """End all drivers: those with queries once they have closed the store, those on a cluster once they have left it,
        the others at once."""
        drivers = (*self._with_queries, *self._spares, *self._with_standbys)
        in_order = [each for each in drivers if each in self._with_queries or each.on_cluster]
        for driver in in_order:
            driver.send(exit=True)
        for driver in drivers:
            driver.end(limits.DEPLOYMENT_LEAVE_S if driver in in_order else 0.0)

    def _start_spare(self, *, warm: bool) -> None:
        if time.monotonic() >= self._next_spare_s and all(each.ready for each in self._spares):
            self._spares.append(self._new(warm=warm))

    def _new(self, *, warm: bool) -> DriverProcess:
        return DriverProcess(self._addresses, self._conf, self._events, warm=warm)


def pause_s(restarts: int) -> float:
    """The pause before a restart. The first one is made at once: most drivers that end were killed, and a spare one waits."""
    return 0.0 if restarts == 1 else min(2.0 ** min(restarts - 2, 32), limits.DEPLOYMENT_BACKOFF_S_MAX)
