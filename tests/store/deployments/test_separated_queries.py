"""Queries whose common driver ends again and again are run apart, and a driver in which one can't be stopped is ended. Needs no Spark: the drivers are stand-ins."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.deployments import hosting
from anabranch.deployments.admission import HostCapacity
from anabranch.spark.queries import driver_pool
from anabranch.spark.queries.driver_process import DriverOwner
from anabranch.spark.queries.host import QueryHost
from tests.waiting import until

SQL = "CREATE STREAM o.{0} AS SELECT a FROM STREAM s.t"
GROUP = DriverOwner("default")


class Driver:
    """Starts what it is given at once, and ends when it is told to."""

    store: ClassVar[ab.Store]
    all: ClassVar[list[Driver]]
    numbers: ClassVar[Iterator[int]] = itertools.count(1)
    starts: ClassVar[bool] = True

    def __init__(self, _addresses: object, _conf: object, events: Any, *, warm: bool) -> None:
        del warm
        self.pid = next(self.numbers)
        self.ready = Driver.starts
        self.on_cluster = False
        self.owner: DriverOwner | None = None
        self.runs: set[str] = set()
        self._events = events
        Driver.all.append(self)

    def send(self, **message: Any) -> None:
        if not self.ready:
            return
        if (name := message.get("run")) is not None and name.startswith("stuck"):
            self.runs.add(name)  # and says nothing more
        elif name is not None:
            (row,) = (each for each in hosting.queries(self.store.catalog) if each.name == name)
            self.runs.add(name)
            started = {"query": name, "epoch": message["epoch"], "change": row.change, "version": row.version}
            self._events.put((self, {"event": "started", **started}))
        elif (name := message.get("stop")) in self.runs and not str(name).startswith("stuck"):
            self.runs.discard(name)
            (row,) = (each for each in hosting.queries(self.store.catalog) if each.name == name)
            self._events.put((self, {"event": "ended", "query": name, "epoch": row.epoch, "how": "stopped"}))

    def crash(self) -> None:
        """As when Java has no memory left."""
        self.runs.clear()
        self._events.put((self, None))

    def end(self, timeout_s: float = 0.0) -> str:
        del timeout_s
        self.runs.clear()
        return "with code 52"

    def end_idle(self) -> None:
        self.end()


def running(*names: str) -> list[Driver]:
    """The drivers of these queries; none while one of them does not run."""
    found = [each for name in names for each in Driver.all if name in each.runs]
    states = {each.name: each.state for each in Driver.store.queries.list()}
    return found if len(found) == len(names) and all(states[name] == "running" for name in names) else []


def run_elsewhere(before: Driver) -> bool:
    found = running("a", "b")
    return bool(found) and before not in found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ab.Store]:
    monkeypatch.setattr(driver_pool, "DriverProcess", Driver)
    with ab.connect(tmp_path / "river", create=True) as opened:
        Driver.store, Driver.all = opened, []
        yield opened


@contextmanager
def serving(store: ab.Store, room_for: int) -> Iterator[None]:
    """A host with room for so many drivers."""
    ending = threading.Event()
    host = QueryHost(store, spares=0, capacity=HostCapacity(2, room_for * limits.DRIVER_BYTES))
    thread = threading.Thread(target=host.run, args=(ending.is_set,))
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("room_for", [3, 1])
def test_queries_whose_driver_ends_twice_run_apart_while_there_is_room(store: ab.Store, room_for: int) -> None:
    for name in ("a", "b"):
        store.queries.deploy(name, SQL.format(name), memory=0)
    with serving(store, room_for):
        for _ in range(2):  # once may be an accident
            until(lambda: running("a", "b"))
            first, second = running("a", "b")
            assert first is second and first.owner == GROUP
            first.crash()
            until(partial(run_elsewhere, first))
        owners = [each.owner for each in running("a", "b")]
        if room_for == 1:
            assert owners == [GROUP, GROUP]
            return
        assert owners == [DriverOwner("default", "a"), DriverOwner("default", "b")]
        # One that is deployed anew is a new one, which has not ended any driver.
        store.queries.deploy("a", SQL.format("a") + " WHERE a > 1", start_from="head")
        until(lambda: running("a", "b") and running("a", "b")[0].owner == GROUP)
        assert running("b")[0].owner == DriverOwner("default", "b")


@pytest.mark.parametrize("how", ["stop", "delete", "deploy"])
def test_a_query_that_never_starts_can_be_stopped_deleted_and_changed(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_STOP_S", 1.0)
    monkeypatch.setattr(limits, "PIPELINE_STOP_S", 0.1)  # for the host's own end
    for name in ("a", "stuck"):
        store.queries.deploy(name, SQL.format(name), memory=0)
    with serving(store, 3):
        until(lambda: running("a") and "stuck" in running("a")[0].runs)
        (driver,) = running("a")
        if how == "stop":
            store.queries.stop("stuck")
            until(lambda: store.queries.get("stuck").state == "stopped")
        elif how == "delete":
            store.queries.delete("stuck")
            until(lambda: [each.name for each in store.queries.list()] == ["a"])
        else:
            store.queries.deploy("stuck", SQL.format("stuck") + " WHERE a > 1", start_from="head")
            until(lambda: any("stuck" in each.runs for each in Driver.all if each is not driver))
        until(lambda: running("a") and running("a") != [driver])


def test_a_host_that_ends_while_a_driver_starts_counts_no_failure(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "starts", False)
    store.queries.deploy("a", SQL.format("a"), memory=0)
    with serving(store, 1):
        until(lambda: store.queries.get("a").state == "starting")
    info = store.queries.get("a")
    assert (info.state, info.host, info.restarts, info.error) == ("waiting", None, 0, None)
