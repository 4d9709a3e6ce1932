"""Latency from a change to a listener in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import anabranch as ab
from anabranch.notifications.kinds import Notification
from bench.measure import percentile
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh

_CLOCK = time.CLOCK_MONOTONIC  # one clock for all processes of a machine
_PAUSE_S = 0.03


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """A stream's tags carry the time just before each change; the listening process compares it with the time of its
    notification."""
    count = setting.scaled(300, 20)
    folder = setting.folder / "store"
    with fresh(folder, segments=1) as store:
        listener = subprocess.Popen(
            [sys.executable, "-m", "bench.readers_notifications", str(folder), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        begun = []
        try:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "ready\n", "the listening process did not start"
            for number in range(count):
                time.sleep(_PAUSE_S)
                begun.append(time.clock_gettime_ns(_CLOCK))
                store.streams.scale("bench/events", 1 + (number + 1) % 2)
            output, _ = listener.communicate(timeout=60)
        finally:
            listener.kill()
            listener.wait()
    received: list[int] = json.loads(output)
    seen = [(later - earlier) / 1e6 for earlier, later in zip(begun, received, strict=True)]
    notes = (f"{count} scalings of a stream, {1e3 * _PAUSE_S:g} ms apart; SQLite",)
    return [
        Result(
            "readers_notifications",
            f"a scaling → a listener in another process, p{100 * part:.0f}",
            "ms",
            percentile(seen, part),
            target=target,
            notes=notes,
        )
        for part, target in ((0.5, None), (0.99, Target(Bound.AT_MOST, 250.0, absolute=True)))
    ]


def listen(folder: str, count: int) -> None:
    """The listening process: prints when ready, then the time of each notification of a scaling."""
    received: list[int] = []
    enough = threading.Event()

    def hear(each: Notification) -> None:
        if each.kind == "scaled":
            received.append(time.clock_gettime_ns(_CLOCK))
            if len(received) == count:
                enough.set()

    with ab.connect(folder, create=True) as store:
        unsubscribe = store.notifications.listen(hear, "bench/events")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        assert enough.wait(120)
        unsubscribe()
    sys.stdout.write(json.dumps(received))


FIGURE = Benchmark("readers_notifications", "a change to a listener in another process", run)

if __name__ == "__main__":
    listen(sys.argv[1], int(sys.argv[2]))
