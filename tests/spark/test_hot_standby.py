"""Hot standbys of deployed queries: a driver that is killed is followed within a second, under the same batch numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from tests.spark.hosts import HostProcess, by_duckdb, driver_of, kill_driver
from tests.spark.pipelines import COUNTS, counted, new_store, put

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


@pytest.fixture
def host(store: ab.Store, tmp_path: Path) -> Iterator[HostProcess]:
    serving = HostProcess(store, tmp_path / "host.log", "--spares", "1", "--lease", "5s")
    yield serving
    serving.end()


def is_ready(store: ab.Store) -> bool:
    return store.queries.get("counts").standby_state == "ready"


def test_a_hot_standby_takes_over_when_the_driver_is_killed(store: ab.Store, host: HostProcess) -> None:
    put(store, range(200))
    store.queries.deploy("counts", COUNTS, standby="hot", trigger="200ms")
    host.wait(lambda: store.streams.exists("out/counts") and sum(counted(store).values()) > 0)
    host.wait(lambda: is_ready(store))
    put(store, range(200, 400))
    host.wait(lambda: counted(store) == by_duckdb(store, until_s=399 - 5))
    first = driver_of(store, "counts")

    kill_driver(store, "counts")
    put(store, range(400, 600))
    expected = by_duckdb(store, until_s=599 - 5)
    host.wait(lambda: sum(counted(store).values()) >= sum(expected.values()))

    assert counted(store) == expected
    assert driver_of(store, "counts") != first
    # The driver that took over has a standby again.
    host.wait(lambda: store.queries.get("counts").state == "running" and is_ready(store))
    kill_driver(store, "counts")
    put(store, range(600, 800))
    expected = by_duckdb(store, until_s=799 - 5)
    host.wait(lambda: sum(counted(store).values()) >= sum(expected.values()))
    assert counted(store) == expected
