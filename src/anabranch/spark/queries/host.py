"""The host: takes deployed queries whose lease is free, runs each in a driver, and keeps it running.

A host has a lease on each of its queries, and renews it. When the host is killed, its drivers end with it, and another
host takes the queries once their leases have expired. A host that could not renew a lease in time ends the query. A
driver that is suspended or cut off can't be ended; it publishes nothing more once the next driver has taken the
pipeline's row.
"""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.state.query import QueryLease, QueryNeeds, QueryRow
from anabranch.deployments import hosting
from anabranch.deployments.admission import HostCapacity, drivers_that_fit, refusal
from anabranch.errors import AnabranchError, Conflict, InvalidArgument, PipelineNotFound
from anabranch.model.amounts import duration_text
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import HOST_CUT_OFF, QUERY_NOTED
from anabranch.runtime.periodic import Periodic
from anabranch.spark.pipelines import admin
from anabranch.spark.queries.capacity import machine_capacity
from anabranch.spark.queries.driver_pool import DriverPool, pause_s
from anabranch.spark.queries.driver_process import DriverEvent, DriverOwner, DriverProcess
from anabranch.spark.queries.held_query import HeldQuery
from anabranch.spark.queries.log import QueryLogs
from anabranch.spark.queries.protocol import ENDINGS
from anabranch.spark.queries.questions import Questions
from anabranch.spark.queries.replay import has_caught_up, swap_replay
from anabranch.spark.queries.standbys import HotStandbys
from anabranch.spark.stores import addresses_of
from anabranch.store import Store

__all__ = ["QueryHost"]

_ROUND_S: Final = 0.5
_END_S: Final = 1.0  # how long to wait for the end of a driver that has closed its output
_SETTLED_S: Final = 3.0  # after which the first batches of a query are done


class QueryHost:
    """Runs the queries of a store for which it has room. `spares` drivers are started and warmed ahead, so that a query
    that is deployed, or whose driver was killed, runs within seconds. The queries of a group share one driver, or with
    `driver_per_query` each has its own. A version with Python code always has its own, which runs nothing else before
    or after. `conf` are settings of Spark. `capacity` is by default that of the machine. Raises InvalidArgument for a
    lease that is too short to be renewed in time, or too long to be waited for."""

    def __init__(
        self,
        store: Store,
        *,
        driver_per_query: bool = False,
        spares: int = 1,
        conf: Mapping[str, str] | None = None,
        lease_us: int = limits.DEPLOYMENT_LEASE_US,
        capacity: HostCapacity | None = None,
    ) -> None:
        if not limits.DEPLOYMENT_LEASE_US_MIN <= lease_us <= limits.DEPLOYMENT_LEASE_US_MAX:
            least, most = duration_text(limits.DEPLOYMENT_LEASE_US_MIN), duration_text(limits.DEPLOYMENT_LEASE_US_MAX)
            raise InvalidArgument(f"expected a lease from {least} to {most}, got {duration_text(lease_us)}")
        self._store = store
        self._driver_per_query = driver_per_query
        self._capacity = capacity or machine_capacity()
        self._lease_us = lease_us
        self._token = token(store.runtime.ids)
        self._name = f"{os.getpid()}@{socket.gethostname()}"
        self._logs = QueryLogs(store)
        self._held: dict[str, HeldQuery] = {}
        self._events: queue.SimpleQueue[DriverEvent] = queue.SimpleQueue()
        self._pool = DriverPool(addresses_of(store), conf or {}, self._events, spares=spares)
        self._standbys = HotStandbys(store, self._token, self._logs, lease_us=lease_us, driver=self._standby_driver)
        self._questions = Questions(store, self._pool)
        self._apart: dict[str, int] = {}  # queries that do not share a driver any more, and the change of each
        self._draining = False

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until `stopped`; then let the micro-batches in progress finish and give all queries back."""
        # In a task of its own, so that slow work on a busy machine does not let the leases expire.
        renewal = Periodic(self._store.runtime, "leases of queries", self._lease_us / 3e6, self._renew)
        try:
            with renewal:
                while not stopped():
                    self._round()
                self._drain()
        finally:
            self._pool.end()

    # one round

    def _round(self) -> None:
        try:
            self._look()
        except AnabranchError as exc:
            HOST_CUT_OFF(error=exc)
        self._give_up_expired()
        self._questions.look()
        self._keep_spares()
        self._take_events()

    def _take_events(self) -> None:
        wait_s = _ROUND_S
        while True:
            try:
                driver, message = self._events.get(timeout=wait_s) if wait_s else self._events.get_nowait()
            except queue.Empty:
                return
            wait_s = 0.0
            with suppress(AnabranchError):  # noted again in a later round, or by the next host
                self._ended(driver) if message is None else self._handle_message(driver, message)

    def _look(self) -> None:
        """Take free queries, renew leases, and act on the requested states."""
        now = self._store.runtime.clock.now()
        rows = {row.name: row for row in hosting.queries(self._store.catalog)}
        for name, row in rows.items():
            free = name not in self._held and not self._draining and hosting.is_free(row, now)
            if free and not self._standbys.leaves(row, now):
                try:
                    self._consider(row)
                except AnabranchError as exc:  # it was deleted meanwhile; the host looks at the others
                    QUERY_NOTED(query=name, note=exc)
        for name, held in list(self._held.items()):
            found = rows.get(name)
            if held.lost or found is None or found.epoch > held.row.epoch:
                self._lose(name, held)
                continue
            if found.epoch == held.row.epoch:  # else it was read before this round's claim
                held.row = found
            try:
                self._act(name, held)
            except Conflict:
                self._lose(name, held)
            except AnabranchError as exc:  # one query does not keep the host from the others; tried again in a second
                QUERY_NOTED(query=name, note=exc)
        if not self._draining:
            drivers = {name: held.driver for name, held in self._held.items()}
            self._standbys.look(rows, drivers, now)

    def _lease(self) -> QueryLease:
        until = Micros(self._store.runtime.clock.now() + self._lease_us)
        return QueryLease(self._token, os.getpid(), socket.gethostname(), until)

    def _consider(self, row: QueryRow) -> None:
        """Take a free query, if there is room for it."""
        owner = self._owner(row)
        if row.wanted == "running" and (why := self._refusal(row, owner)) is not None:
            self._refuse(row, why)
            return
        began = time.monotonic()
        claimed = hosting.claim(self._store.catalog, row.name, self._lease(), now=self._store.runtime.clock.now())
        if claimed is not None:
            self._held[row.name] = HeldQuery(claimed, owner, began)

    def _refuse(self, row: QueryRow, why: str, *, standby: bool = False) -> None:
        """Say why this host leaves a query, or its hot `standby`."""
        before = row.standby_refusal if standby else row.refusal
        now = self._store.runtime.clock.now()
        hosting.refuse(self._store.catalog, row, self._name, why, now=now, standby=standby)
        if before is None or before.reason != why:
            note = f"no room{' for its hot standby' if standby else ''}: {why}"
            self._logs.note(row.name, note, level="warning", version=row.version, epoch=row.epoch)

    def _owner(self, row: QueryRow) -> DriverOwner:
        """Whose driver runs a query."""
        if hosting.runs_python(self._store.catalog, row):
            return DriverOwner(row.needs.group, row.name, row.version)
        alone = DriverOwner(row.needs.group, row.name)
        if self._driver_per_query or (self._apart.get(row.name) == row.change and self._refusal(row, alone) is None):
            return alone
        return DriverOwner(row.needs.group)

    def _refusal(self, row: QueryRow, owner: DriverOwner, *, standby: bool = False) -> str | None:
        """Why there is no room for a query, or for its hot `standby`; None if there is. There is always
        room for a query whose hot standby is on this host: that room is reserved already."""
        if not standby and self._standbys.is_ready(row.name, row.change):
            return None
        needs, owners, drivers = self._reserved(without=None if standby else row.name)
        new_driver = owner not in (self._pool.standby_owners if standby else owners)
        return refusal(self._capacity, needs, row.needs, drivers=drivers, new_driver=new_driver)

    def _reserved(self, without: str | None = None) -> tuple[list[QueryNeeds], set[DriverOwner], int]:
        """What the queries here and the hot standbys need, the owners of the drivers of the queries, and how many
        drivers all of these have or get. A query may be left out."""
        held = [each for name, each in self._held.items() if each.runs and name != without]
        owners = {each.owner for each in held}
        # A query that was taken over has another driver than the other ones of its group.
        drivers = {each.driver for each in held if each.driver is not None}
        missing = owners - {each.owner for each in drivers}
        count = len(drivers | self._standbys.drivers) + len(missing)
        return [*(each.row.needs for each in held), *self._standbys.needs], owners, count

    def _renew(self) -> None:
        """Renew all leases. Raises AnabranchError where the store can't be reached."""
        for name, held in list(self._held.items()):
            began = time.monotonic()
            try:
                hosting.renew(self._store.catalog, name, held.row.epoch, until=self._lease().until)
                held.renewed_s = began
            except Conflict:
                held.lost = True
        self._standbys.renew()

    def _act(self, name: str, held: HeldQuery) -> None:
        row, to_run, now_s = held.row, held.runs, time.monotonic()
        if held.driver is not None and held.is_stuck(now_s):
            note = f"it has not stopped within {limits.DEPLOYMENT_STOP_S:g} s: its driver {held.driver.pid} is ended"
            self._note(name, held, note, level="warning")
            self._ended(held.driver)
        elif held.driver is not None:
            outdated = held.change is not None and held.change != row.change
            if not held.stopping and (outdated or not to_run):
                held.stopping = True
                held.driver.send(stop=name)
            if held.stopping and row.wanted == "stopped" and row.stop_now and not held.ending:
                held.ending = True
                held.driver.send(drop=name)
            elif row.replaces is not None and not held.stopping and has_caught_up(self._store, row):
                self._swap(name, held)
            elif row.restarts and held.has_run_for(limits.DEPLOYMENT_STEADY_S, now_s):
                self._update(name, held, restarts=0, error=None)
        elif to_run:
            if row.retry_at is None or row.retry_at <= self._store.runtime.clock.now():
                self._start_with_room(name, held)
        elif row.wanted == "deleted":
            self._delete(name, held)
        else:
            del self._held[name]
            hosting.release(self._store.catalog, name, row.epoch)

    def _start_with_room(self, name: str, held: HeldQuery) -> None:
        """Start a query; give it back if it was changed, and needs more than there is now."""
        held.owner = self._owner(held.row)
        if (why := self._refusal(held.row, held.owner)) is None:
            self._start(name, held)
            return
        del self._held[name]
        hosting.release(self._store.catalog, name, held.row.epoch)
        self._refuse(held.row, why)

    def _start(self, name: str, held: HeldQuery, *, after: str | None = None) -> None:
        """Start a query, in its hot standby if there is one. `after`: why its last run ended, unless that was noted."""
        change = held.row.change  # the driver is chosen for this change; the stored row may have a newer one
        ready, taken = self._standbys.is_ready(name, change), False

        def starting(row: QueryRow) -> QueryRow:
            nonlocal taken
            without = hosting.begin_in_standby(row, self._token) if ready else None
            taken = without is not None
            row = replace(without or row, state="starting", retry_at=None)
            return row if after is None else replace(row, restarts=row.restarts + 1, error=after)

        held.row = hosting.update(self._store.catalog, name, held.row.epoch, starting)
        driver = self._pool.promote(self._standbys.take(name)) if taken else self._pool.for_query(held.owner)
        held.driver, held.change, held.stopping, held.ending = driver, None, False, False
        held.begun, held.unwanted_s = change, None
        driver.send(run=name, epoch=held.row.epoch, change=change)
        if after is not None:
            self._note(name, held, after, level="warning")
        how = "is taken over by its standby" if taken else "starts"
        self._note(name, held, f"version {held.row.version} {how} in driver {driver.pid}")

    def _swap(self, name: str, held: HeldQuery) -> None:
        """Let a replay take the place of its query."""
        try:
            kept = swap_replay(self._store, held.row)
        except InvalidArgument as exc:
            self._fail(name, held, str(exc))
            return
        left = "; the earlier results are in " + ", ".join(kept.values()) if kept else ""
        query = str(held.row.replaces)
        self._logs.note(
            query, f"version {held.row.version} takes over from its replay{left}", version=held.row.version, epoch=0
        )

    def _delete(self, name: str, held: HeldQuery) -> None:
        with suppress(PipelineNotFound):
            admin.delete(self._store, name, drop_results=held.row.drop_results)
        self._logs.delete(name)
        hosting.remove(self._store.catalog, name, held.row.epoch)
        del self._held[name]

    # what drivers say

    def _handle_message(self, driver: DriverProcess, message: Mapping[str, Any]) -> None:
        if message.get("event") == "ready":
            self._pool.started(driver, on_cluster=bool(message.get("on_cluster")))
            return
        if message.get("event") in ("following", "unfollowed"):
            self._standbys.handle_message(driver, message)
            return
        name = str(message.get("query"))
        held = self._held.get(name)
        if held is None or held.driver is not driver or message.get("epoch") != held.row.epoch:
            return  # about a run that was lost
        if message.get("event") == "started":
            held.change, held.started_s = int(message["change"]), time.monotonic()
            self._note_running(name, held)
            self._note(name, held, f"version {message['version']} runs")
        elif message.get("event") == "ended" and message.get("how") in ENDINGS:
            asked, change = held.stopping, held.begun
            held.driver, held.change, held.stopping = None, None, False  # first: the store may not answer now
            asked = asked or self._has_changed(name, held, change)
            self._run_ended(name, held, str(message["how"]), message.get("error"), asked=asked)

    def _note_running(self, name: str, held: HeldQuery) -> None:
        """Set the state of a query whose run has started, unless the query was changed meanwhile: then the run is
        stopped."""
        change = held.change

        def running(row: QueryRow) -> QueryRow:
            return replace(row, state="running") if row.state == "starting" and row.change == change else row

        held.row = hosting.update(self._store.catalog, name, held.row.epoch, running)

    def _run_ended(self, name: str, held: HeldQuery, how: str, error: str | None, *, asked: bool) -> None:
        if how == "crashed" and not asked:
            self._continue(name, held, str(error))
            return
        self._standbys.drop(name)  # the standby would stop, or fail, in the same way
        if how == "stopped" or (asked and how == "lost"):
            self._note(name, held, "has stopped")
            if asked or held.row.wanted != "running":
                self._update(name, held, state="waiting" if held.row.wanted == "running" else "stopped")
            else:  # by `anabranch pipeline stop`
                self._update(name, held, state="stopped", wanted="stopped")
        elif how == "refused" or held.row.restarts + 1 >= limits.DEPLOYMENT_ATTEMPTS_MAX:
            self._fail(name, held, str(error))
        else:
            self._retry(name, held, str(error))

    def _has_changed(self, name: str, held: HeldQuery, change: int | None) -> bool:
        """True if the query was changed under its run of `change`: before it began, or by a replay that took its place."""
        self._update(name, held)
        return change is not None and change != held.row.change

    def _ended(self, driver: DriverProcess) -> None:
        how = self._pool.ended(driver, 0.0 if self._draining else _END_S)
        self._standbys.ended(driver)
        ended = {name: held for name, held in self._held.items() if held.driver is driver}
        if len(ended) > 1:
            self._separate(ended)
        for name, held in ended.items():
            held.driver, held.change, held.stopping = None, None, False
            with suppress(AnabranchError):
                self._continue(name, held, f"driver {driver.pid} ended {how}")

    def _separate(self, ended: Mapping[str, HeldQuery]) -> None:
        """After the end of a shared driver, give each query that had been restarted before a driver of its own. One of
        these queries may be what ends the driver; with separate drivers it shows which. A query that is changed shares
        a driver again."""
        for name, held in ended.items():
            if held.row.restarts and self._apart.get(name) != held.row.change:
                self._apart[name] = held.row.change
                note = "its driver has ended again: it gets one of its own, as long as there is room"
                with suppress(AnabranchError):
                    self._note(name, held, note, level="warning")

    def _continue(self, name: str, held: HeldQuery, error: str) -> None:
        """Continue a query after its driver, or another process that its run needs, has ended."""
        if not self._continue_in_standby(name, held, error):
            self._retry(name, held, error)

    def _continue_in_standby(self, name: str, held: HeldQuery, error: str) -> bool:
        """Have the hot standby of a query take over, here or on another host. False if there is none that is ready."""
        if self._draining or held.row.wanted != "running":
            return False
        if self._standbys.is_ready(name, held.row.change):
            self._start(name, held, after=error)
            return True
        self._update(name, held)
        if not self._standbys.leaves(replace(held.row, lease=None), self._store.runtime.clock.now()):
            return False
        self._update(name, held, state="waiting", restarts=held.row.restarts + 1, retry_at=None, error=error)
        self._note(name, held, f"{error}; the host with its standby goes on", level="warning")
        del self._held[name]
        hosting.release(self._store.catalog, name, held.row.epoch)
        return True

    def _retry(self, name: str, held: HeldQuery, error: str) -> None:
        restarts = held.row.restarts + 1
        after_s = pause_s(restarts)
        retry_at = Micros(self._store.runtime.clock.now() + round(after_s * 1e6))
        self._update(name, held, state="waiting", restarts=restarts, retry_at=retry_at, error=error)
        self._note(name, held, f"{error}; it is started again in {after_s:g} s", level="warning")

    def _fail(self, name: str, held: HeldQuery, error: str) -> None:
        self._update(name, held, state="failed", error=error, restarts=held.row.restarts + 1)
        self._note(name, held, error, level="error")

    # leases that were lost

    def _lose(self, name: str, held: HeldQuery) -> None:
        self._held.pop(name, None)
        QUERY_NOTED(query=name, note="another host has it, or may have it by now")
        if held.driver is not None:
            held.driver.send(drop=name)

    def _give_up_expired(self) -> None:
        """End the runs of queries whose leases could not be renewed in time: another host may have them by now."""
        for name, held in list(self._held.items()):
            if time.monotonic() - held.renewed_s > self._lease_us / 1e6:
                self._lose(name, held)

    # drivers

    def _standby_driver(self, row: QueryRow, without: DriverProcess | None) -> DriverProcess | None:
        """A driver for the hot standby of a query, None while there is none."""
        owner = self._owner(row)
        if (why := self._refusal(row, owner, standby=True)) is None:
            return self._pool.for_standby(owner, without)
        self._refuse(row, why, standby=True)
        return None

    def _keep_spares(self) -> None:
        """Keep spare drivers ready while there is room for another driver and no query is starting: a driver that
        starts would slow it down. End the spare drivers for which there is no room any more."""
        held, now_s = list(self._held.values()), time.monotonic()
        starting = any(each.driver is not None and not each.has_run_for(_SETTLED_S, now_s) for each in held)
        busy = {each.driver for each in held if each.driver is not None} | self._standbys.drivers
        needs, _, drivers = self._reserved()
        fit = drivers_that_fit(self._capacity, needs, drivers)
        self._pool.keep_spares(busy, idle_max=None if self._questions.pending else fit, more=not starting)

    # the end

    def _drain(self) -> None:
        """End all runs after their micro-batches, and give all queries back."""
        self._draining = True
        self._standbys.drain()
        for driver in self._pool.starting():  # no query runs in it yet, so no run has failed
            self._pool.ended(driver, 0.0)
            self._standbys.ended(driver)
            for held in self._held.values():
                held.driver = None if held.driver is driver else held.driver
        for name, held in self._held.items():
            if held.driver is not None and not held.stopping:
                held.stopping = True
                held.driver.send(stop=name)
        until = time.monotonic() + limits.PIPELINE_STOP_S
        while any(held.driver is not None for held in self._held.values()) and time.monotonic() < until:
            self._take_events()
        for name, held in self._held.items():
            with suppress(AnabranchError):
                hosting.release(self._store.catalog, name, held.row.epoch)

    # rows and logs

    def _update(self, name: str, held: HeldQuery, **changes: Any) -> None:
        held.row = hosting.update(self._store.catalog, name, held.row.epoch, lambda row: replace(row, **changes))

    def _note(self, name: str, held: HeldQuery, message: str, *, level: str = "info") -> None:
        self._logs.note(name, message, level=level, version=held.row.version, epoch=held.row.epoch)
