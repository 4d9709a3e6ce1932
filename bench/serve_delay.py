"""Append → follower through a broker by Arrow Flight, beside an embedded follower; both in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as ab
from bench.measure import percentile
from bench.payloads import PAYLOAD_BYTES
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess
from bench.stores import fresh

_CLOCK = time.CLOCK_MONOTONIC
_PAUSE_S = (0.001, 0.030)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Single events at random moments, each carrying the time before its `write`. Remote: writer and reader are clients
    of one broker. Embedded: two processes over one folder."""
    count = setting.scaled(500, 20)
    store = setting.folder / "store"
    fresh(store, segments=1).close()
    with ServedProcess.broker(store) as broker:
        remote = _delays(broker.addresses["flight"], count)
    embedded = _delays(str(store), count)
    ours, other = percentile(remote, 0.5), percentile(embedded, 0.5)
    return [
        Result(
            "serve_delay",
            "append → remote follower, p50",
            "ms",
            ours,
            other,
            "append → embedded follower in another process, p50",
            ours / other,
            None,
            Target(Bound.AT_MOST, round(other + 2, 2), absolute=True),
            (
                f"{count:,} single events; p99 {percentile(remote, 0.99):.1f} ms, embedded {percentile(embedded, 0.99):.1f} ms",
            ),
        )
    ]


def _delays(address: str, count: int) -> list[float]:
    pauses = np.random.default_rng(1).uniform(*_PAUSE_S, count)
    store: Any = ab.connect(address)
    with store, store.writer("bench/events") as writer:
        reader = subprocess.Popen(
            [sys.executable, "-m", "bench.serve_delay", address, str(count)],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
        )  # fmt: skip
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n", "the reading process did not start"
            for pause in pauses:
                time.sleep(pause)
                begun = time.clock_gettime_ns(_CLOCK)
                writer.write(begun.to_bytes(8, "big").ljust(PAYLOAD_BYTES, b"."), key="a").result()
            output, _ = reader.communicate(timeout=60)
        finally:
            reader.kill()
            reader.wait()
    found: list[float] = json.loads(output)
    return found


def _read(address: str, count: int) -> None:
    seen = []
    store: Any = ab.connect(address)
    with store, store.reader("bench/events", start=ab.TAIL, follow=True) as reader:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for event in reader:
            seen.append((time.clock_gettime_ns(_CLOCK) - int.from_bytes(bytes(event.body)[:8], "big")) / 1e6)
            if len(seen) == count:
                break
    sys.stdout.write(json.dumps(seen) + "\n")


FIGURE = Benchmark("serve_delay", "append → remote follower", run)

if __name__ == "__main__":
    _read(sys.argv[1], int(sys.argv[2]))
