"""The demo as a newcomer runs it: it shows windows, proves them, can be interrupted, and goes on."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from tests.cli.kit import Line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process]

RUN = "import sys; from anabranch.cli.main import main; main()"
WITHIN_S = 240.0  # Spark begins slowly on a busy machine


class Demo:
    """A demo in a process of its own, whose output is followed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", RUN, "demo", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "120"}
        )
        self.output = ""
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def wait_until(self, done: Callable[[str], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done(self.output):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def end(self) -> int:
        try:
            return self.process.wait(WITHIN_S)
        finally:
            self.process.kill()
            self._thread.join()


def agreed(output: str) -> int:
    """How many windows the proof says agree."""
    found = re.search(r"All (\d+) windows agree", output)
    assert found is not None, output
    return int(found[1])


def wrote_windows(output: str) -> bool:
    """Whether both statements have written rows of closed windows."""
    return all(re.search(rf"{target}: .* written [1-9]", output) for target in ("host/per_5s", "host/smooth"))


def total_written(output: str) -> int:
    """How many rows of `host/smooth`, whose windows are closed last, have been written in all."""
    return max(int(count.replace(",", "")) for count in re.findall(r"host/smooth: .* written ([\d,]+)", output))


def findings(store: Path) -> list[str]:
    with ab.connect(store, create=False) as opened:
        return [str(each) for each in opened.check()]


def length(store: Path, stream: str) -> int:
    with ab.connect(store, create=False) as opened, opened.reader(stream) as reader:
        return sum(batch.num_rows for batch in reader.batches())


@pytest.mark.slow
def test_the_demo_is_interrupted_goes_on_and_proves_every_window(tmp_path: Path) -> None:
    store = tmp_path / "demo"
    first = Demo("--store", str(store), "--seconds", "0")
    first.wait_until(lambda output: "starting Spark" in output)
    first.wait_until(wrote_windows)
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 0, first.output
    assert agreed(first.output) >= 2
    assert "Traceback" not in first.output
    assert findings(store) == []
    written = length(store, "host/metrics")

    second = Demo("--store", str(store), "--seconds", "0")
    second.wait_until(lambda output: wrote_windows(output) and total_written(output) > total_written(first.output))
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 0, second.output
    assert agreed(second.output) > agreed(first.output)
    assert "Try next" in second.output
    assert findings(store) == []
    assert length(store, "host/metrics") > written


@pytest.mark.slow
def test_the_demo_proves_a_file_of_the_users_own_with_its_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(11)
    start = datetime(2026, 1, 31, 12, tzinfo=UTC)
    file, store = tmp_path / "rides.csv", tmp_path / "demo"
    with file.open("w") as out:
        out.write("city,started_at,km\n")
        for n in range(3000):
            delay = chance.expovariate(1 / 300) if chance.random() < 0.05 else 0
            moment = start + timedelta(seconds=n - delay)
            out.write(f"{'Bern' if n % 3 else 'Zug'},{moment.isoformat()},{n % 17}\n")
    # In this process, and so with the Spark session of the other tests.
    demo = Line(store)("demo", "--file", file)
    assert agreed(demo.out) > 20
    assert "3,000 events read" in demo.out
    assert length(store, "file/rides_windows_late") > 0, demo.out
    assert findings(store) == []


def test_a_file_without_a_time_is_refused_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n")
    demo = Demo("--store", str(tmp_path / "demo"), "--file", str(file))
    assert demo.end() == 2
    assert "looks like a time; name one with --time: a, b" in demo.output
    assert "starting Spark" not in demo.output
