"""Latency from an append to a following reader in another process, on an otherwise idle machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import anabranch as ab
from bench.measure import percentile
from bench.payloads import PAYLOAD_BYTES
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh

_CLOCK = time.CLOCK_MONOTONIC  # one clock for all processes of a machine
_PAUSE_S = (0.001, 0.030)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Single events, each carrying the time just before its `write`, at random moments; the reader, a separate
    process, compares that with the time at which it has the event."""
    count = setting.scaled(1_000, 30)
    folder = setting.folder / "store"
    pauses = np.random.default_rng(1).uniform(*_PAUSE_S, count)
    durable = []
    with fresh(folder, segments=1) as store, store.writer("bench/events") as writer:
        reader = subprocess.Popen(
            [sys.executable, "-m", "bench.tail_latency", str(folder), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n", "the reading process did not start"
            for pause in pauses:
                time.sleep(pause)
                begun = time.clock_gettime_ns(_CLOCK)
                writer.write(begun.to_bytes(8, "big").ljust(PAYLOAD_BYTES, b"."), key="a").result()
                durable.append((time.clock_gettime_ns(_CLOCK) - begun) / 1e6)
            output, _ = reader.communicate(timeout=30)
        finally:
            reader.kill()
            reader.wait()
    seen: list[float] = json.loads(output)
    notes = (
        f"{count:,} single events, {1e3 * _PAUSE_S[0]:g} to {1e3 * _PAUSE_S[1]:g} ms apart",
        f"their own `result()` came after p50 {percentile(durable, 0.5):.2f} ms, p99 {percentile(durable, 0.99):.2f} ms",
    )
    return [
        _line(seen, 0.5, None, notes),
        _line(seen, 0.99, Target(Bound.AT_MOST, 10.0, absolute=True), notes),
    ]


def _line(seen: list[float], part: float, target: Target | None, notes: tuple[str, ...]) -> Result:
    what = f"append → a following reader in another process, p{100 * part:.0f}"
    return Result("tail_latency", what, "ms", percentile(seen, part), target=target, notes=notes)


def follow(folder: str, count: int) -> None:
    """The reading process: prints when ready, then the latencies in ms."""
    latencies = []
    with ab.connect(folder, create=True) as store, store.reader("bench/events", start=ab.TAIL, follow=True) as reader:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for event in reader:
            now = time.clock_gettime_ns(_CLOCK)
            latencies.append((now - int.from_bytes(event.body[:8], "big")) / 1e6)
            if len(latencies) == count:
                break
    sys.stdout.write(json.dumps(latencies))


FIGURE = Benchmark("tail_latency", "append to a following reader in another process", run)

if __name__ == "__main__":
    follow(sys.argv[1], int(sys.argv[2]))
