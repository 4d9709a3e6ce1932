"""From kill -9 of the driver of a deployed query to the first new publication of its results: without a spare driver, with a
warm one, and with a hot standby, under a steady load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import pyarrow as pa

import anabranch as ab
from anabranch.catalog.state.pipeline import PIPELINE
from anabranch.deployments import hosting
from anabranch.model.columns import TIME_TYPE
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

_SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE)])
_SQL = """
CREATE STREAM bench.counts WITH (key = device, time = closed, watermark = '1 second') AS
SELECT window.end AS closed, device, count(*) AS events
FROM STREAM bench.events GROUP BY window(at, '1 second'), device
"""
_PATIENCE_S = 300.0
_STATES = {"cold": ("--spares", "0"), "warm": ("--spares", "1"), "hot": ("--spares", "1")}


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Each kind on a store and a host of its own, one after the other; a kill once whatever takes over is ready and idle."""
    kills = setting.scaled(5, 1)
    took = {kind: _take_overs(setting.folder / kind, kind, kills, setting.say) for kind in _STATES}
    cold, warm, hot = (median(took[kind]) for kind in ("cold", "warm", "hot"))
    notes = tuple(
        f"{kind}: " + ", ".join(f"{each:.1f}" for each in sorted(found)) + " s" for kind, found in took.items()
    )
    about = "100 events each 200 ms, 20 keys, --trigger 200ms; host and standby on one machine"
    name = "kill -9 of a query's driver to the next results"
    return [
        Result(
            "queries_takeover",
            f"{name}, warm spare driver, p50",
            "s",
            warm,
            cold,
            "no spare driver",
            warm / cold,
            None,
            Target(Bound.AT_MOST, 5, absolute=True),
            (about, *notes),
        ),
        Result(
            "queries_takeover",
            f"{name}, hot standby, p50",
            "s",
            hot,
            warm,
            "a warm spare driver",
            hot / warm,
            None,
            Target(Bound.AT_MOST, 1, absolute=True),
            (about,),
        ),
    ]


def _take_overs(folder: Path, kind: str, kills: int, say: Callable[[str], None]) -> list[float]:
    found = []
    with ab.connect(folder / "store", create=True) as store:
        store.scopes.create("bench")
        store.streams.create("bench/events", schema=_SCHEMA, key="device", time="at", scaling=2)
        store.queries.deploy("counts", _SQL, trigger="200ms", standby="hot" if kind == "hot" else "warm")
        with open(folder / "host.log", "wb") as log:
            command = [sys.executable, "-m", "anabranch.cli.main", "queries", "serve", "--store", store.url]
            host = subprocess.Popen([*command, *_STATES[kind]], stdout=log, stderr=log, start_new_session=True)
        ending = threading.Event()
        load = threading.Thread(target=_load, args=(store, ending))
        load.start()
        try:
            for _ in range(kills):
                driver = _ready(store, host.pid, kind)
                found.append(_killed(store, driver))
                say(f"{kind}: {found[-1]:.2f} s")
        finally:
            ending.set()
            load.join()
            host.terminate()
            host.wait(_PATIENCE_S)
    return found


def _killed(store: ab.Store, driver: int) -> float:
    """Kill the driver; the seconds until the next one has published."""
    begun = time.perf_counter()
    os.kill(driver, signal.SIGKILL)
    # From here on only the next driver publishes. Java may outlive the killed one by a moment.
    _await(lambda: _driver(store) not in (None, driver))
    before = _published(store)
    _await(lambda: _published(store) > before)
    return time.perf_counter() - begun


def _ready(store: ab.Store, host: int, kind: str) -> int:
    """Wait until results are published and whatever takes over has nothing left to do. Returns the driver."""
    _await(lambda: store.streams.exists("bench/counts") and _driver(store) is not None)
    before = _published(store)
    _await(lambda: _published(store) > before)
    if kind == "hot":
        _await(lambda: store.queries.get("counts").standby_state == "ready")
    driver = _driver(store)
    assert driver is not None
    if kind != "cold":
        _await(lambda: _is_idle(host, driver))
    # Else the next start would be put off, as after any failures in a row.
    epoch = store.queries.get("counts").epoch
    hosting.update(store.catalog, "counts", epoch, lambda row: replace(row, restarts=0))
    return driver


def _is_idle(host: int, driver: int) -> bool:
    """True if the host has another driver than this one, none of which starts."""
    others = [each for each in psutil.Process(host).children() if each.pid != driver and _is_driver(each)]
    busy = 0.0
    for each in others:
        tree = [each, *each.children(recursive=True)]
        for process in tree:
            process.cpu_percent()
        time.sleep(1.5)
        busy += sum(process.cpu_percent() for process in tree if process.is_running())
        if time.time() - each.create_time() < 10:
            return False
    return bool(others) and busy < 60


def _is_driver(process: psutil.Process) -> bool:
    return "anabranch.spark.queries.driver" in process.cmdline()


def _driver(store: ab.Store) -> int | None:
    with store.catalog.reading() as txn:
        row = txn.state(PIPELINE, "counts")
    return None if row is None or row.holder is None else row.holder.pid


def _published(store: ab.Store) -> int:
    return store.cuts.distance("bench/counts").events


def _await(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "the query did not go on"
        time.sleep(0.01)


def _load(store: ab.Store, ending: threading.Event) -> None:
    random, at = np.random.default_rng(1), 0
    with store.writer("bench/events") as writer:
        while not ending.wait(0.2):
            devices = pa.array([f"device-{number}" for number in random.integers(0, 20, 100)])
            times = pa.array(np.sort(random.integers(at, at + 2_000_000, 100)), TIME_TYPE)
            writer.write_batch(pa.table({"device": devices, "at": times}, _SCHEMA))
            at += 2_000_000


FIGURE = Benchmark("queries_takeover", "Take-over of queries", run)
