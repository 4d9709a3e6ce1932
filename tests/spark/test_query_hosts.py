"""Two hosts over one store, under load: drivers and a host are killed, and results are those of a run that nothing
disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import anabranch as ab
from tests.spark.hosts import SQL, HostProcess, Load, by_duckdb, driver_of, kill_driver, store_on
from tests.spark.pipelines import SOURCE, counted, put, rows

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(params=["sqlite", "postgres"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ab.Store]:
    with store_on(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def hosts(store: ab.Store, tmp_path: Path) -> Iterator[list[HostProcess]]:
    started = [HostProcess(store, tmp_path / f"host-{n}.log", "--lease", "5s") for n in range(2)]
    yield started
    for each in started:
        each.end()


def test_a_host_that_was_stopped_and_wakes_up_publishes_nothing_more(store: ab.Store, hosts: list[HostProcess]) -> None:
    store.queries.deploy("counts", SQL)
    put(store, range(200))
    hosts[0].wait(lambda: store.streams.exists("out/counts") and sum(counted(store).values()) > 0)
    holder = store.queries.get("counts").host
    assert holder is not None
    (first,) = [each for each in hosts if holder.startswith(f"{each.pid}@")]
    (second,) = [each for each in hosts if each is not first]
    driver = driver_of(store, "counts")
    assert driver is not None
    load = Load(store, begin=200)
    try:
        first.freeze(driver)
        try:
            second.wait(lambda: driver_of(store, "counts") not in (None, driver))
            before = sum(counted(store).values())
            second.wait(lambda: sum(counted(store).values()) > before)
        finally:
            first.thaw(driver)
        second.wait(lambda: "another host has it" in first.log.read_text())
        before = sum(counted(store).values())
        second.wait(lambda: sum(counted(store).values()) > before)
    finally:
        written = load.end()
    expected = by_duckdb(store, until_s=written - 1 - 5)
    second.wait(
        lambda: counted(store).keys() >= expected.keys() and store.queries.get("counts").progress[0]["lag"] == 0
    )
    assert counted(store) == expected
    second.wait(lambda: len(rows(store, "out/copy")) >= written)
    copied = sorted((row["at"], row["device"]) for row in rows(store, "out/copy"))
    assert copied == sorted((row["at"], row["device"]) for row in rows(store, SOURCE))
    assert store.queries.get("counts").epoch == 2


def test_kills_of_drivers_and_of_a_host_leave_no_trace_in_the_results(
    store: ab.Store, hosts: list[HostProcess]
) -> None:
    store.queries.deploy("counts", SQL)
    load = Load(store)
    try:

        def serving() -> HostProcess | None:
            info = store.queries.get("counts")
            if info.state != "running" or not any(each.get("state") == "running" for each in info.progress):
                return None
            (found,) = [each for each in hosts if info.host is not None and info.host.startswith(f"{each.pid}@")]
            return found

        killed: list[int | None] = [None]

        def published_anew(before: int) -> bool:
            return driver_of(store, "counts") not in killed and sum(counted(store).values()) > before

        hosts[0].wait(lambda: store.streams.exists("out/counts"))
        for _ in range(2):
            before = sum(counted(store).values())
            hosts[0].wait(partial(published_anew, before))
            killed.append(kill_driver(store, "counts"))
        before = sum(counted(store).values())
        hosts[0].wait(lambda: published_anew(before) and serving() is not None)
        first = serving()
        assert first is not None
        first.kill()
        (second,) = [each for each in hosts if each is not first]
        second.wait(lambda: serving() is second)
    finally:
        written = load.end()
    expected = by_duckdb(store, until_s=written - 1 - 5)
    second.wait(
        lambda: counted(store).keys() >= expected.keys() and store.queries.get("counts").progress[0]["lag"] == 0
    )
    assert second.stop() == 0
    assert counted(store) == expected
    copied = sorted((row["at"], row["device"]) for row in rows(store, "out/copy"))
    assert copied == sorted((row["at"], row["device"]) for row in rows(store, SOURCE))
    info = store.queries.get("counts")
    assert (info.state, info.epoch >= 2) == ("waiting", True)
    assert not list(store.check())
