"""A real host with little room: groups have drivers of their own, and what does not fit waits and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.hosts import HostProcess, driver_of
from tests.spark.pipelines import new_store, put, rows
from tests.spark.standby_kills import drivers_of

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1200)]


def _copy(name: str) -> str:
    return f"CREATE STREAM out.{name} AS SELECT device, at, celsius FROM STREAM iot.sensors"


def test_groups_have_drivers_of_their_own_and_what_has_no_room_waits(tmp_path: Path) -> None:
    with new_store(tmp_path / "river") as store:
        put(store, range(20))
        # Room for two drivers with one query each.
        host = HostProcess(store, tmp_path / "host.log", "--spares", "0", "--cpus", "1", "--memory", "3.5GB")
        try:
            store.queries.deploy("one", _copy("one"))
            store.queries.deploy("two", _copy("two"), group="billing")
            for name in ("one", "two"):
                host.wait(lambda name=name: store.queries.get(name).state == "running")  # type: ignore[misc]
            assert driver_of(store, "one") != driver_of(store, "two")
            store.queries.deploy("three", _copy("three"), group="third")
            store.queries.deploy("four", _copy("four"), cpus=0.95)
            host.wait(lambda: all(store.queries.get(name).refused for name in ("three", "four")))
            for name, missing in (("three", "1.4 GB of it for a driver"), ("four", "0.95 processors, and 0.8 of 1")):
                info = store.queries.get(name)
                assert info.state == "waiting" and info.refused is not None and missing in info.refused
            # A query that is stopped gives its room back: its driver ends, and another group gets one.
            store.queries.stop("two")
            host.wait(lambda: store.queries.get("three").state == "running")
            assert store.queries.get("three").refused is None
            # Less is enough; it joins the driver of its group.
            store.queries.deploy("four", _copy("four"), cpus=0.5)
            host.wait(lambda: store.queries.get("four").state == "running")
            assert driver_of(store, "four") == driver_of(store, "one") != driver_of(store, "three")
            for name in ("one", "three", "four"):
                host.wait(lambda name=name: len(rows(store, f"out/{name}")) == 20)  # type: ignore[misc]
            # One that is changed to need more than there is ends, and says so.
            store.queries.deploy("four", _copy("four"), memory="64GB")
            host.wait(lambda: store.queries.get("four").refused is not None)
            assert store.queries.get("four").state == "waiting"
        finally:
            host.end()


def test_a_driver_without_queries_and_a_hot_standby_take_no_room_that_is_not_there(tmp_path: Path) -> None:
    with new_store(tmp_path / "river") as store:
        put(store, range(20))
        # Room for two drivers with one query each.
        host = HostProcess(store, tmp_path / "host.log", "--spares", "0", "--cpus", "1", "--memory", "3.5GB")
        try:
            store.queries.deploy("one", _copy("one"))
            host.wait(lambda: store.queries.get("one").state == "running")
            kept = driver_of(store, "one")
            store.queries.stop("one")
            host.wait(lambda: store.queries.get("one").state == "stopped")
            # The driver waits for the group's next query as long as there is room.
            store.queries.deploy("two", _copy("two"), group="billing")
            host.wait(lambda: store.queries.get("two").state == "running")
            assert set(drivers_of(host)) == {kept, driver_of(store, "two")}
            store.queries.deploy("three", _copy("three"), group="third")
            host.wait(lambda: store.queries.get("three").state == "running")
            assert set(drivers_of(host)) == {driver_of(store, each) for each in ("two", "three")}
            # A hot standby needs a driver of its own.
            store.queries.deploy("two", _copy("two"), standby="hot")
            host.wait(lambda: store.queries.get("two").standby_refused is not None)
            info = store.queries.get("two")
            assert info.standby_refused is not None and "1.4 GB of it for a driver" in info.standby_refused
            assert (info.state, info.standby_state, len(drivers_of(host))) == ("running", "none", 2)
            store.queries.stop("three")
            host.wait(lambda: store.queries.get("two").standby_state == "ready")
            assert store.queries.get("two").standby_refused is None
        finally:
            host.end()
