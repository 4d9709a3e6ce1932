"""Hostile queries beside a neighbour on one host: they eat memory, spin, or kill their own processes. The neighbour's results stay
exact and go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import pytest

import anabranch as ab
from tests.spark.hosts import HostProcess, Load, by_duckdb, driver_of
from tests.spark.pipelines import COUNTS, counted, new_store
from tests.spark.standby_kills import java_of
from tests.wasm_modules import ALLOC, MEMORY, function, module
from tests.wheels import wheel

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1800)]

WHEEL = "hostile-1.0-py3-none-any.whl"
CODE = """
import os

def eat(rows, batch):
    eaten = []
    while len(eaten) < 60:  # 4 GB: there is no limit
        eaten.append(b"x" * (1 << 26))
    raise ValueError("it got all that it wanted")

def die(rows, batch):
    os.kill(os.getpid(), 9)
"""
HANDLER = """
CREATE FUNCTION handle(device STRING) RETURNS TABLE (device STRING) AS PYTHON 'hostile:{0}';
CREATE STREAM out.{0} WITH (handler = handle) AS SELECT device FROM STREAM iot.sensors
"""
SPIN = function("spin", "(loop $for_ever (br $for_ever)) (i32.const 0)")
SPINNING = """
CREATE FUNCTION spin(celsius DOUBLE) RETURNS DOUBLE AS WASM 'spin:spin';
CREATE STREAM out.module AS SELECT spin(celsius) AS n FROM STREAM iot.sensors
"""
_SPUN_S: Final = 5.0  # of processor time, after which it does nothing else
MANY = "sequence(1, 1000000 + CAST(celsius AS BIGINT))"


class Hostile(NamedTuple):
    """`restarts`: it is started again and again; otherwise it fails, or `error` is None: it runs on without a result."""

    sql: str
    error: str | None
    files: Mapping[str, bytes] = {}
    restarts: bool = False


GREEDY: Final = Hostile(
    "CREATE STREAM out.greedy AS SELECT size(sequence(1, 900000000 + CAST(celsius AS BIGINT))) AS n FROM STREAM iot.sensors",
    "Java",
    restarts=True,
)
LONG: Final = Hostile(
    f"CREATE STREAM out.long AS SELECT {' + '.join(['celsius'] * 5_000)} AS n FROM STREAM iot.sensors",
    "too long or nested too deeply for Spark",
)
MODULE: Final = Hostile(
    SPINNING, "spin failed: it was stopped", {"spin.wasm": module(SPIN, memory=MEMORY, alloc=ALLOC)}
)
HOSTILE: Final[Mapping[str, Hostile]] = {
    "greedy": GREEDY,
    "spinning": Hostile(
        f"CREATE STREAM out.spinning AS SELECT aggregate({MANY}, 0L, (a, x) -> a + aggregate({MANY}, 0L, (b, y) -> b + y)) AS n "
        "FROM STREAM iot.sensors",
        None,
    ),
    "module": MODULE,
    "eat": Hostile(HANDLER.format("eat"), "MemoryError", {WHEEL: wheel({"hostile.py": CODE}, name="hostile")}),
    "die": Hostile(
        HANDLER.format("die"), "was killed", {WHEEL: wheel({"hostile.py": CODE}, name="hostile")}, restarts=True
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


class Neighbour:
    """A query under a steady load, whose results are counted by DuckDB at the end."""

    def __init__(self, store: ab.Store, host: HostProcess) -> None:
        self._store, self._host = store, host
        store.queries.deploy("neighbour", COUNTS)
        self._load = Load(store)
        host.wait(lambda: store.streams.exists("out/counts") and counted(store))

    def goes_on(self) -> None:
        """Wait until it has published more than now."""
        before = sum(counted(self._store).values())
        self._host.wait(lambda: sum(counted(self._store).values()) > before + 3)

    def end(self) -> int:
        """End the load."""
        return self._load.end()

    def check(self) -> None:
        """Its results are those of a run that nothing disturbed."""
        expected = by_duckdb(self._store, until_s=self.end() - 1 - 5)
        self._host.wait(lambda: counted(self._store).keys() >= expected.keys())
        assert counted(self._store) == expected


@pytest.mark.parametrize("apart", ["group", "driver"])
def test_a_neighbour_with_another_driver_is_not_disturbed(store: ab.Store, tmp_path: Path, apart: str) -> None:
    # The limit of Python workers is one of address space, of which WebAssembly needs more.
    limited = ("--driver-per-query", "--conf", "spark.executor.pyspark.memory=3g")
    options, left_out = (limited, "module") if apart == "driver" else ((), "eat")
    host = HostProcess(store, tmp_path / "host.log", "--spares", "0", *options)
    neighbour = None
    try:
        neighbour = Neighbour(store, host)
        driver = driver_of(store, "neighbour")
        for name, each in HOSTILE.items():
            if name == left_out:
                continue
            store.queries.deploy(name, each.sql, files=each.files, group="hostile" if apart == "group" else None)
            _wait_for_its_end(store, host, name, each)
            neighbour.goes_on()
            store.queries.stop(name, now=True)
            host.wait(lambda name=name: store.queries.get(name).state in ("stopped", "failed"))  # type: ignore[misc]
        info = store.queries.get("neighbour")
        assert (driver_of(store, "neighbour"), info.restarts, info.epoch) == (driver, 0, 1)
        neighbour.check()
    finally:
        if neighbour is not None:
            neighbour.end()
        host.end()


def test_queries_whose_common_driver_ends_again_and_again_get_drivers_of_their_own(
    store: ab.Store, tmp_path: Path
) -> None:
    host = HostProcess(store, tmp_path / "host.log", "--spares", "0")
    neighbour = None
    try:
        neighbour = Neighbour(store, host)
        driver = driver_of(store, "neighbour")
        for name, each in {"long": LONG, "module": MODULE}.items():  # these end alone
            store.queries.deploy(name, each.sql, files=each.files)
            _wait_for_its_end(store, host, name, each)
            neighbour.goes_on()
        assert driver_of(store, "neighbour") == driver
        store.queries.deploy("greedy", GREEDY.sql)
        host.wait(lambda: driver_of(store, "neighbour") not in (None, driver))
        host.wait(lambda: "it gets one of its own" in host.log.read_text())
        _wait_for_its_end(store, host, "greedy", GREEDY)
        for _ in range(3):
            neighbour.goes_on()
        apart, before = driver_of(store, "neighbour"), store.queries.get("greedy").restarts
        host.wait(lambda: store.queries.get("greedy").restarts > before)
        neighbour.goes_on()
        assert driver_of(store, "neighbour") == apart
        store.queries.stop("greedy", now=True)
        neighbour.check()
    finally:
        if neighbour is not None:
            neighbour.end()
        host.end()


def test_a_query_that_computes_without_end_gives_its_processors_back_once_it_is_stopped(
    store: ab.Store, tmp_path: Path
) -> None:
    host = HostProcess(store, tmp_path / "host.log", "--spares", "0")
    neighbour = None
    try:
        neighbour = Neighbour(store, host)
        driver = driver_of(store, "neighbour")
        store.queries.deploy("spinning", HOSTILE["spinning"].sql)
        _wait_for_its_end(store, host, "spinning", HOSTILE["spinning"])
        assert driver_of(store, "spinning") == driver
        store.queries.stop("spinning", now=True)
        host.wait(lambda: driver_of(store, "neighbour") not in (None, driver))
        neighbour.goes_on()
        assert "tasks of query 'spinning' went on after it had ended" in host.log.read_text()
        assert store.queries.get("spinning").state == "stopped"
        neighbour.check()
    finally:
        if neighbour is not None:
            neighbour.end()
        host.end()


def _wait_for_its_end(store: ab.Store, host: HostProcess, name: str, hostile: Hostile) -> None:
    """Wait until it is held back: it waits for its next start, has failed, or runs without a result."""
    if hostile.error is None:
        host.wait(lambda: store.queries.get(name).state == "running")
        driver = driver_of(store, name)
        assert driver is not None
        java = psutil.Process(java_of(driver))
        before = java.cpu_times().user
        host.wait(lambda: java.cpu_times().user > before + _SPUN_S)
        return
    host.wait(lambda: store.queries.get(name).restarts >= 3 or store.queries.get(name).state == "failed")
    info = store.queries.get(name)
    assert hostile.error in str(info.error), info
    assert (info.state != "failed") == hostile.restarts, info
