"""From kill -9 of the driver of a deployed query to the first new publication of its results: without a spare driver, with a
warm one, and with a hot standby, under a steady load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import anabranch as ab
from anabranch.catalog.state.pipeline import PIPELINE
from anabranch.deployments import hosting
from bench.query_host import EVENTS, LOAD, has_idle_spare, load, serving, wait_until
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

_SQL = """
CREATE STREAM bench.counts WITH (key = device, time = closed, watermark = '1 second') AS
SELECT window.end AS closed, device, count(*) AS events
FROM STREAM bench.events GROUP BY window(at, '1 second'), device
"""
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
    about = f"{LOAD}, --trigger {_TRIGGER}; host and standby on one machine"
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
        store.streams.create("bench/events", schema=EVENTS, key="device", time="at", scaling=2)
        store.queries.deploy("counts", _SQL, trigger=_TRIGGER, standby="hot" if kind == "hot" else "warm")
        spares = 0 if kind == "cold" else 1
        with (
            serving(store.url, folder / "host.log", spares=spares) as host,
            store.writer("bench/events") as writer,
            load(writer.write_batch),
        ):
            for _ in range(kills):
                driver = _ready(store, host, kind)
                found.append(_killed(store, driver))
                say(f"{kind}: {found[-1]:.2f} s")
    return found


def _killed(store: ab.Store, driver: int) -> float:
    """Kill the driver; the seconds until the next one published."""
    killed_at = time.time_ns() // 1000
    os.kill(driver, signal.SIGKILL)
    # Java may outlive the killed driver by a moment. Only once the next one has the pipeline, what is published is its own.
    wait_until(lambda: _holder(store)[0] not in (None, driver))
    taken_at = _holder(store)[1]
    wait_until(lambda: _published_at(store, taken_at) is not None)
    published_at = _published_at(store, taken_at)
    assert published_at is not None
    return (published_at - killed_at) / 1e6


def _ready(store: ab.Store, host: int, kind: str) -> int:
    """Wait until results are published and whatever takes over has nothing left to do. Returns the driver."""
    wait_until(lambda: store.streams.exists("bench/counts") and _holder(store)[0] is not None)
    seen_at = time.time_ns() // 1000
    wait_until(lambda: _published_at(store, seen_at) is not None)
    driver, _ = _holder(store)
    assert driver is not None
    if kind != "cold":
        wait_until(lambda: has_idle_spare(host, driver, {"warm": 1, "hot": 2}[kind]))
    if kind == "hot":
        wait_until(lambda: store.queries.get("counts").standby_state == "ready")
    # Else the next start would be put off, as after any failures in a row.
    epoch = store.queries.get("counts").epoch
    hosting.update(store.catalog, "counts", epoch, lambda row: replace(row, restarts=0))
    return driver


def _holder(store: ab.Store) -> tuple[int | None, int]:
    """The driver that runs the query, and since when (µs)."""
    with store.catalog.reading() as txn:
        row = txn.state(PIPELINE, "counts")
    return (None, 0) if row is None else (None if row.holder is None else row.holder.pid, row.started_at)


def _published_at(store: ab.Store, since: int) -> int | None:
    """When the first result since then was published (µs), if one was."""
    with store.reader("bench/counts", start=store.cuts.at("bench/counts", since)) as reader:
        return next((each.appended_us for each in reader), None)


FIGURE = Benchmark("queries_takeover", "Take-over of queries", run, heavy=True)
