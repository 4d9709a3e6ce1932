"""From a change to a listener in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import anabranch as ab
from anabranch.core.notifications import Notification
from bench.measure import percentile
from bench.result import Bound, Figure, Result, Setting, Target
from bench.stores import fresh

_CLOCK = time.CLOCK_MONOTONIC  # one clock for all processes of a machine
_PAUSE_S = 0.03


def run(setting: Setting) -> Sequence[Result]:
    """A stream's tags carry the time just before each change; the listening process compares it with when it hears."""
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
            said, _ = listener.communicate(timeout=60)
        finally:
            listener.kill()
            listener.wait()
    heard: list[int] = json.loads(said)
    seen = [(later - earlier) / 1e6 for earlier, later in zip(begun, heard, strict=True)]
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
    """The listening process: print when ready, then when each scaling was heard of."""
    heard: list[int] = []
    enough = threading.Event()

    def hear(each: Notification) -> None:
        if each.kind == "scaled":
            heard.append(time.clock_gettime_ns(_CLOCK))
            if len(heard) == count:
                enough.set()

    with ab.connect(folder) as store:
        unsubscribe = store.on_notification(hear, "bench/events")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        assert enough.wait(120)
        unsubscribe()
    sys.stdout.write(json.dumps(heard))


FIGURE = Figure("readers_notifications", "a change to a listener in another process", run)

if __name__ == "__main__":
    listen(sys.argv[1], int(sys.argv[2]))
