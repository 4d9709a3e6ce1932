"""Handlers of micro-batches under load, while their drivers, their Python workers and the host are killed at random: what
they return is published exactly once, in the order of the source for each key."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

import anabranch as ab
from tests.spark.hosts import PATIENCE_S, HostProcess, driver_of, kill_driver
from tests.spark.pipelines import SOURCE, new_store, put, rows
from tests.waiting import until
from tests.wasm_modules import ECHO, FAHRENHEIT, module
from tests.wheels import wheel

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(3000)]

WHEEL = "alerting-1.0-py3-none-any.whl"
# Each call leaves a file with the number of its micro-batch and its process, so that the test sees what was repeated.
CODE = """
import os
import time
from anabranch.spark import resource

def told(batch):
    folder = resource("calls.txt").read_text()
    with open(os.path.join(folder, f"{batch}-{os.getpid()}-{time.monotonic_ns()}"), "w"):
        pass

def alerts(rows, batch):
    told(batch)
    time.sleep(1)  # time to be killed in
    kept = [{"device": row.device, "at": row.at, "celsius": row.celsius, "batch": batch} for row in rows.itertuples()]
    return kept + [{"device": "rows", "at": rows["at"].max(), "celsius": float(len(rows)), "batch": batch}]
"""
SQL = """
CREATE FUNCTION alerts(device STRING, at TIMESTAMP, celsius DOUBLE)
RETURNS TABLE (device STRING, at TIMESTAMP, celsius DOUBLE, batch BIGINT) AS PYTHON 'alerting:alerts';
CREATE STREAM out.alerts WITH (handler = alerts, key = device) INTO out.hot WHEN celsius > 4 AND device <> 'rows' AS
SELECT device, at, celsius FROM STREAM iot.sensors;
"""
WASM_SQL = """
CREATE FUNCTION fahrenheit(celsius DOUBLE) RETURNS DOUBLE AS WASM 'heat:score';
CREATE STREAM out.heat WITH (key = device) AS SELECT device, at, fahrenheit(celsius) AS f FROM STREAM iot.sensors;
CREATE FUNCTION echo(at TIMESTAMP) RETURNS TABLE (at TIMESTAMP) AS WASM 'heat:echo';
CREATE STREAM out.echo WITH (handler = echo) AS SELECT at FROM STREAM iot.sensors;
"""
KILLS = 6


class Load:
    """Commits of several events, in a thread, until it is ended."""

    def __init__(self, store: ab.Store) -> None:
        self._store = store
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begun = 0
        while not self._ending.wait(0.1):
            put(self._store, range(begun, begun + 10))
            begun += 10

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def workers_of(driver: int) -> list[psutil.Process]:
    """The Python workers below a driver, in which functions are called, and the server from which they are forked."""
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if os.getsid(process.pid) == driver and "anabranch.spark.session.worker_server" in process.cmdline():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def kill_worker(store: ab.Store, query: str, chance: random.Random) -> bool:
    """kill -9 of one of the workers of a query; False if there is none."""
    driver = driver_of(store, query)
    workers = [] if driver is None else workers_of(driver)
    if not workers:
        return False
    try:
        chance.choice(workers).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def in_a_call(calls: Path) -> int:
    """The process in which the handler is being called: once a call has begun that was not there before."""
    known = {path.name for path in calls.iterdir()}
    begun: list[str] = []

    def has_begun() -> bool:
        begun[:] = [path.name for path in calls.iterdir() if path.name not in known]
        return bool(begun)

    until(has_begun, PATIENCE_S)
    return int(max(begun, key=lambda name: int(name.split("-")[2])).split("-")[1])


def counted(store: ab.Store, stream: str, value: str) -> Counter[tuple[str, float, float]]:
    if not store.streams.exists(stream):
        return Counter()
    return Counter((row["device"], row["at"].timestamp(), row[value]) for row in rows(store, stream))


def handled(store: ab.Store) -> Counter[tuple[str, float, float]]:
    """What the handler returned of the source's events: of both streams into which it is divided."""
    found = counted(store, "out/alerts", "celsius") + counted(store, "out/hot", "celsius")
    return Counter({key: count for key, count in found.items() if key[0] != "rows"})


def progress(store: ab.Store) -> tuple[int, int]:
    """How many results each of the queries has."""
    return sum(handled(store).values()), sum(counted(store, "out/heat", "f").values())


def is_beyond(store: ab.Store, before: tuple[int, int]) -> bool:
    """True if each query has more results than before; also where it has failed for good, which is a failure of the test."""
    for each in store.queries.list():
        assert each.state != "failed", each
    return all(now > then for now, then in zip(progress(store), before, strict=True))


def check(store: ab.Store) -> None:
    """What was handled is the source, once, and each micro-batch was handled as a whole."""
    source = counted(store, SOURCE, "celsius")
    assert handled(store) == source
    assert counted(store, "out/hot", "celsius") == Counter({key: n for key, n in source.items() if key[2] > 4})
    assert counted(store, "out/heat", "f") == Counter(
        {(device, at, celsius * 1.8 + 32): n for (device, at, celsius), n in source.items()}
    )
    assert Counter(row["at"] for row in rows(store, "out/echo")) == Counter(row["at"] for row in rows(store, SOURCE))
    sizes: Counter[int] = Counter()
    said = {}
    for stream in ("out/alerts", "out/hot"):
        latest: dict[str, float] = {}
        for row in rows(store, stream):
            if row["device"] == "rows":
                assert row["batch"] not in said, f"micro-batch {row['batch']} was published twice"
                said[row["batch"]] = int(row["celsius"])
            else:
                sizes[row["batch"]] += 1
                assert row["at"].timestamp() > latest.get(row["device"], 0.0), "the order within a key"
                latest[row["device"]] = row["at"].timestamp()
    assert said == dict(sizes)


def test_kills_of_drivers_workers_and_the_host_leave_a_handlers_results_exactly_once(
    store: ab.Store, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    files = {WHEEL: wheel({"alerting.py": CODE}), "calls.txt": str(calls).encode()}
    host = HostProcess(store, tmp_path / "host.log", "--lease", "5s")
    load = Load(store)
    killed: Counter[str] = Counter()
    try:
        store.queries.deploy("alerts", SQL, files=files, trigger="500ms")
        store.queries.deploy("heat", WASM_SQL, files={"heat.wasm": module(FAHRENHEIT, ECHO)}, trigger="500ms")
        host.wait(partial(is_beyond, store, (0, 0)))
        kinds = ["handler", "handler", "driver", "host", *chance.choices(["worker", "driver"], k=KILLS - 4)]
        chance.shuffle(kinds)
        for kind in kinds:
            before = progress(store)
            time.sleep(chance.random() * 2)  # any moment of a micro-batch
            query = chance.choice(["alerts", "heat"])
            if kind == "host":
                host.kill()
                host = HostProcess(store, tmp_path / "host.log", "--lease", "5s")
            elif kind == "driver":
                host.wait(partial(driver_of, store, query))
                kill_driver(store, query)
            elif kind == "handler":
                os.kill(in_a_call(calls), signal.SIGKILL)
            else:
                host.wait(partial(kill_worker, store, query, chance))
            killed[kind] += 1
            host.wait(partial(is_beyond, store, before))
        load.end()
        written = len(rows(store, SOURCE))
        host.wait(partial(is_beyond, store, (written - 1, written - 1)))
        host.wait(lambda: len(rows(store, "out/echo")) >= written)
        check(store)
    finally:
        load.end()
        host.end()
    repeated = Counter(path.name.split("-")[0] for path in calls.iterdir())
    print(f"killed {dict(killed)}; {sum(repeated.values())} calls for {len(repeated)} micro-batches")
    assert killed == Counter(kinds)
    assert sum(repeated.values()) > len(repeated), "no micro-batch was handled again: nothing was killed in one"
