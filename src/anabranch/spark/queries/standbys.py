"""The hot standbys that a host has: each follows the run of a query in a driver other than the one that runs it.

A host has a hot standby by a lease of its own in the query's row. Hosts that do not run the query take it first; the
host that runs a query takes its standby only if no other host does. Such a standby protects against the end of the
driver, not of the host."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from anabranch.catalog.state.query import QueryNeeds, QueryRow, QueryStandby
from anabranch.deployments import hosting
from anabranch.errors import AnabranchError, Conflict
from anabranch.model.ids import Micros
from anabranch.runtime.log_events import QUERY_NOTED
from anabranch.spark.queries.driver_pool import pause_s
from anabranch.spark.queries.driver_process import DriverProcess
from anabranch.spark.queries.log import QueryLogs
from anabranch.store import Store

__all__ = ["HotStandbys"]

_OWN_AFTER_S: Final = 3.0  # how long a host leaves the standby of a query that it runs to other hosts
_LEFT_US: Final = 3_000_000  # how long hosts leave a free query to the host with its standby


@dataclass
class _HeldStandby:
    """A standby that this host has. `ready` and `refused` are what its driver has said, as in the row; `lost`: another host
    has it."""

    change: int
    driver: DriverProcess
    row: QueryRow
    ready: bool = False
    refused: str | None = None
    lost: bool = False


class HotStandbys:
    """Takes hot standbys, and says which driver takes over. `driver` gives a driver for the standby of a
    query, other than the one that runs the query here; None while there is none."""

    def __init__(
        self,
        store: Store,
        token: str,
        logs: QueryLogs,
        *,
        lease_us: int,
        driver: Callable[[QueryRow, DriverProcess | None], DriverProcess | None],
    ) -> None:
        self._store = store
        self._token = token
        self._logs = logs
        self._lease_us = lease_us
        self._driver = driver
        self._held: dict[str, _HeldStandby] = {}
        self._missing_since_s: dict[str, float] = {}
        self._again_s: dict[str, float] = {}  # the time before which a failed standby is not started again
        self._failures: dict[str, int] = {}

    @property
    def drivers(self) -> set[DriverProcess]:
        """The drivers that hold standbys."""
        return {held.driver for held in self._held.values()}

    @property
    def needs(self) -> list[QueryNeeds]:
        """What the queries need whose standbys are here."""
        return [held.row.needs for held in self._held.values()]

    def look(self, rows: Mapping[str, QueryRow], running: Mapping[str, DriverProcess | None], now: Micros) -> None:
        """Take standbys that queries request and no host has, and end those that are no longer requested. `running` are
        the queries that this host holds, with their drivers."""
        for noted in (self._missing_since_s, self._again_s, self._failures):
            for name in noted.keys() - rows.keys():
                del noted[name]
        for name, held in list(self._held.items()):
            row = rows.get(name)
            if row is None or held.lost or not self._is_wanted(row, held):
                self.drop(name)
        for name, row in rows.items():
            if name in self._held:
                continue
            try:
                self._consider(name, row, running.get(name), now)
            except AnabranchError as exc:  # it was deleted meanwhile; the host looks at the others
                QUERY_NOTED(query=name, note=exc)

    def leaves(self, row: QueryRow, now: Micros) -> bool:
        """True if a query that is free is left to the host that has its standby."""
        return hosting.leaves_to_standby(row, self._token, now, wait_us=_LEFT_US)

    def take(self, name: str) -> DriverProcess:
        """The driver that takes over a query, whose row no longer names a standby. This host has to have the
        standby."""
        return self._held.pop(name).driver

    def is_ready(self, name: str, change: int) -> bool:
        """True if this host has a driver that can take over a query as of this change."""
        held = self._held.get(name)
        return held is not None and held.ready and held.change == change

    def drop(self, name: str) -> None:
        """End the standby of a query, if this host has it."""
        held = self._held.pop(name, None)
        if held is not None:
            held.driver.send(unfollow=name)
            self._release(name)

    def handle_message(self, driver: DriverProcess, message: Mapping[str, Any]) -> None:
        """Handle a driver's message about a standby."""
        name = str(message.get("query"))
        held = self._held.get(name)
        if held is None or held.driver is not driver or message.get("change") != held.change:
            return
        if message.get("event") == "following":
            held.ready = bool(message.get("ready"))
            self._update(name, held)
            if held.ready:
                self._failures.pop(name, None)
                self._note(name, held, f"driver {driver.pid} is its hot standby")
            else:
                self._note(name, held, f"its hot standby in driver {driver.pid} has fallen behind", level="warning")
            return
        error = str(message.get("error"))
        if message.get("how") == "refused":
            held.ready, held.refused = False, error
            self._update(name, held)
            self._note(name, held, f"it can't have a hot standby: {error}", level="warning")
        else:
            self._note_failure(name, held, error)

    def ended(self, driver: DriverProcess) -> None:
        """Note that a driver has ended: its standbys have failed."""
        for name, held in list(self._held.items()):
            if held.driver is driver:
                self._note_failure(name, held, f"driver {driver.pid} ended")

    def renew(self) -> None:
        """Renew the leases, and write again what drivers have reported: the store may not have answered at the time.
        Raises AnabranchError where the store can't be reached."""
        for name, held in list(self._held.items()):
            try:
                self._write(name, held, until=self._until())
            except Conflict:
                held.lost = True

    def drain(self) -> None:
        """End all standbys."""
        for name in list(self._held):
            with suppress(AnabranchError):
                self.drop(name)

    def _is_wanted(self, row: QueryRow, held: _HeldStandby) -> bool:
        if row.standby != "hot" or row.wanted != "running" or row.change != held.change or row.state == "failed":
            return False
        return row.hot_standby is None or row.hot_standby.token == self._token

    def _consider(self, name: str, row: QueryRow, own: DriverProcess | None, now: Micros) -> None:
        if not hosting.wants_standby(row, self._token, now, settled=True):
            self._missing_since_s.pop(name, None)
            return
        since_s = self._missing_since_s.setdefault(name, time.monotonic())
        settled = time.monotonic() - since_s >= _OWN_AFTER_S
        if not hosting.wants_standby(row, self._token, now, settled=settled):
            return
        if time.monotonic() < self._again_s.get(name, 0.0):
            return
        driver = self._driver(row, own)
        if driver is None:
            return
        standby = QueryStandby(self._token, os.getpid(), socket.gethostname(), self._until(), row.change)
        if hosting.claim_standby(self._store.catalog, name, standby, now=now):
            self._held[name] = _HeldStandby(row.change, driver, row)
            driver.send(follow=name, change=row.change)

    def _note_failure(self, name: str, held: _HeldStandby, error: str) -> None:
        del self._held[name]
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        self._again_s[name] = time.monotonic() + pause_s(failures + 1)
        self._note(name, held, f"its hot standby has ended: {error}", level="warning")
        self._release(name)

    def _until(self) -> Micros:
        return Micros(self._store.runtime.clock.now() + self._lease_us)

    def _update(self, name: str, held: _HeldStandby) -> None:
        with suppress(Conflict):
            self._write(name, held)

    def _write(self, name: str, held: _HeldStandby, **changes: Any) -> None:
        """Write what is known of a standby, and other changes. Raises Conflict if another host has it."""

        def written(standby: QueryStandby) -> QueryStandby:
            return replace(standby, ready=held.ready, refused=held.refused, **changes)

        hosting.update_standby(self._store.catalog, name, self._token, written)

    def _release(self, name: str) -> None:
        with suppress(AnabranchError):  # its lease expires
            hosting.release_standby(self._store.catalog, name, self._token)

    def _note(self, name: str, held: _HeldStandby, message: str, *, level: str = "info") -> None:
        self._logs.note(name, message, level=level, version=held.row.version, epoch=held.row.epoch)
