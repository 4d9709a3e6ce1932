"""One event a call, pipelined, through the remote client and a broker, beside redis-py."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import anabranch as ab
from bench.measure import in_turn
from bench.payloads import keys, payloads
from bench.peers.peer import NotInstalled
from bench.peers.redis import Redis
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess
from bench.stores import fresh


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """`writer.write` for each event, then until all are durable. Without Redis on the machine there is no ratio."""
    count = setting.scaled(200_000, 2_000)
    bodies, names = payloads(count, 1), keys(count, 1)
    store = setting.folder / "store"
    fresh(store, segments=8).close()
    with ServedProcess.broker(store) as broker:
        remote: Any = ab.connect(broker.addresses["flight"])
        used: list[float] = []

        def ours() -> float:
            before, begun = broker.cpu_s(), time.perf_counter()
            with remote.writer("bench/events") as writer:
                for body, key in zip(bodies, names, strict=True):
                    writer.write(body, key=key)
                writer.flush()
            taken = time.perf_counter() - begun
            used.append((broker.cpu_s() - before) / count * 1e6)
            return count / taken

        with remote:
            ours()
            used.clear()
            notes = ["key and 100 bytes of payload in both; ours over 8 segments, durable"]
            other: list[float] = []
            ratio = None
            rounds = setting.scaled(3, 1)
            try:
                with Redis(setting.folder / "redis") as redis:
                    found = in_turn(rounds, ours, lambda: count / redis.write(bodies, names))
                own, other, ratio = found.ours, found.other, found.ratio
            except NotInstalled as exc:
                notes.append(f"redis: {exc}")
                own = [ours() for _ in range(rounds)]
    shutil.rmtree(store, ignore_errors=True)
    notes.append(f"server CPU per event: {median(used):.2f} µs")
    return [
        Result(
            "serve_client",
            "one event a call, pipelined, through the remote client",
            "events/s",
            median(own),
            median(other) if other else None,
            Redis.write_style if other else "",
            ratio,
            None,
            Target(Bound.AT_LEAST, 5.0),
            tuple(notes),
        )
    ]


FIGURE = Benchmark("serve_client", "one event a call through the remote client", run)
