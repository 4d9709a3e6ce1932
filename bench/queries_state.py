"""The last result of a key, asked of a broker while results are published, beside a call that looks up nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from bench.measure import percentile
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess

_KEYS = 10_000
_SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("celsius", pa.float64())])


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Appends a batch of results between any two requests, so that each has something new to read."""
    history, count = setting.scaled(1_000_000, 20_000), setting.scaled(500, 20)
    folder, random = setting.folder / "state", np.random.default_rng(1)
    with ab.connect(folder, create=True) as store:
        store.scopes.create("bench")
        store.streams.create("bench/means", schema=_SCHEMA, key="device", time="at", scaling=2)
        store.write("bench/means", _results(random, history))
    with ServedProcess.broker(folder) as broker, ab.connect(broker.addresses["flight"]) as store:
        begun = time.perf_counter()
        assert store.latest("bench/means", "device-1") is not None
        first_s = time.perf_counter() - begun
        looked_up, bare = [], []
        with store.writer("bench/means") as writer:
            for number in range(count):
                writer.write_batch(_results(random, 100)).result()
                looked_up.append(_ms(partial(store.latest, "bench/means", f"device-{number % _KEYS}")))
                bare.append(_ms(partial(store.streams.get, "bench/means")))
    return [
        Result(
            "queries_state",
            "the last result of a key, asked of a broker, p50",
            "ms",
            median(looked_up),
            median(bare),
            "a call that looks up the stream alone",
            median(looked_up) / median(bare),
            None,
            Target(Bound.AT_MOST, 5, absolute=True),
            (
                f"{_KEYS:,} keys, 100 new results before each request; p99 {percentile(looked_up, 0.99):.1f} ms",
                f"the first request, which reads {history:,} results: {first_s:.2f} s",
            ),
        )
    ]


def _results(random: np.random.Generator, count: int) -> pa.Table:
    devices = pa.array([f"device-{number}" for number in range(_KEYS)])
    return pa.table(
        {
            "device": devices.take(pa.array(random.integers(0, _KEYS, count))),
            "at": pa.array(np.arange(count), TIME_TYPE),
            "celsius": pa.array(random.random(count)),
        }
    )


def _ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


FIGURE = Benchmark("queries_state", "State of queries by key", run)
