"""From kill -9 of the driver of a deployed query to the first new publication of its results: without a spare driver, with a
warm one, and with a hot standby, under a steady load."""

from __future__ import annotations

import itertools
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
_KILLS = {"cold": 3, "warm": 5, "hot": 5}
_TRIGGER = "500ms"


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Each kind on a store and a host of its own, one after the other; a kill once whatever takes over is ready and idle."""
    took = {
        kind: _take_overs(setting.folder / kind, kind, setting.scaled(kills, 1), setting.say)
        for kind, kills in _KILLS.items()
    }
    cold, warm, hot = (median(took[kind]) for kind in ("cold", "warm", "hot"))
    notes = tuple(
        f"{kind}: " + ", ".join(f"{each:.2f}" for each in sorted(found)) + " s" for kind, found in took.items()
    )
    about = f"100 events each 200 ms, 20 keys, --trigger {_TRIGGER}; host and standby on one machine"
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
        store.queries.deploy("counts", _SQL, trigger=_TRIGGER, standby="hot" if kind == "hot" else "warm")
        with open(folder / "host.log", "wb") as log:
            command = [sys.executable, "-m", "anabranch.cli.main", "queries", "serve", "--store", store.url]
            spares = "0" if kind == "cold" else "1"
            host = subprocess.Popen([*command, "--spares", spares], stdout=log, stderr=log, start_new_session=True)
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
    """Kill the driver; the seconds until the next one published."""
    killed_at = time.time_ns() // 1000
    os.kill(driver, signal.SIGKILL)
    # Java may outlive the killed driver by a moment. Only once the next one has the pipeline, what is published is its own.
    _await(lambda: _holder(store)[0] not in (None, driver))
    taken_at = _holder(store)[1]
    _await(lambda: _published_at(store, taken_at) is not None)
    published_at = _published_at(store, taken_at)
    assert published_at is not None
    return (published_at - killed_at) / 1e6


def _ready(store: ab.Store, host: int, kind: str) -> int:
    """Wait until results are published and whatever takes over has nothing left to do. Returns the driver."""
    _await(lambda: store.streams.exists("bench/counts") and _holder(store)[0] is not None)
    seen_at = time.time_ns() // 1000
    _await(lambda: _published_at(store, seen_at) is not None)
    driver, _ = _holder(store)
    assert driver is not None
    if kind != "cold":
        _await(lambda: has_idle_spare(host, driver, {"warm": 1, "hot": 2}[kind]))
    if kind == "hot":
        _await(lambda: store.queries.get("counts").standby_state == "ready")
    # Else the next start would be put off, as after any failures in a row.
    epoch = store.queries.get("counts").epoch
    hosting.update(store.catalog, "counts", epoch, lambda row: replace(row, restarts=0))
    return driver


def has_idle_spare(host: int, driver: int, count: int) -> bool:
    """True if the host has so many drivers beside this one, one of which has nothing to do, not even to start."""
    others = [each for each in psutil.Process(host).children() if each.pid != driver and _is_driver(each)]
    if len(others) < count or any(time.time() - each.create_time() < 10 for each in others):
        return False
    trees = [[each, *each.children(recursive=True)] for each in others]
    _ = [_cpu_percent(process) for process in itertools.chain(*trees)]  # the start of what is measured next
    time.sleep(2)
    return min(sum(map(_cpu_percent, tree)) for tree in trees) < 10


def _cpu_percent(process: psutil.Process) -> float:
    """Since the last call; 0 of one that has ended."""
    try:
        return process.cpu_percent()
    except psutil.Error:
        return 0.0


def _is_driver(process: psutil.Process) -> bool:
    try:
        return "anabranch.spark.queries.driver" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


def _holder(store: ab.Store) -> tuple[int | None, int]:
    """The driver that runs the query, and since when (µs)."""
    with store.catalog.reading() as txn:
        row = txn.state(PIPELINE, "counts")
    return (None, 0) if row is None else (None if row.holder is None else row.holder.pid, row.started_at)


def _published_at(store: ab.Store, since: int) -> int | None:
    """When the first result since then was published (µs), if one was."""
    with store.reader("bench/counts", start=store.cuts.at("bench/counts", since)) as reader:
        return next((each.appended_us for each in reader), None)


def _await(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "the query did not go on"
        time.sleep(0.2)  # the drivers need the processor


def _load(store: ab.Store, ending: threading.Event) -> None:
    random, at = np.random.default_rng(1), 0
    with store.writer("bench/events") as writer:
        while not ending.wait(0.2):
            devices = pa.array([f"device-{number}" for number in random.integers(0, 20, 100)])
            times = pa.array(np.sort(random.integers(at, at + 2_000_000, 100)), TIME_TYPE)
            writer.write_batch(pa.table({"device": devices, "at": times}, _SCHEMA))
            at += 2_000_000


FIGURE = Benchmark("queries_takeover", "Take-over of queries", run, heavy=True)
