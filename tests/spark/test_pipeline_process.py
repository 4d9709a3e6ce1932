"""Pipelines in processes of their own: killed at any moment and resumed, stopped from outside, run from the shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import PipelineRunning
from anabranch.spark.pipelines import admin as pipeline_admin
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import COUNTS, counted, expected, new_store, put, rows
from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process]

# The second statement is stateless, so that both kinds of query are killed.
SQL = COUNTS + "; CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"
EVENTS = 2000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        (tmp_path / "p.sql").write_text(SQL)
        yield opened


class Source:
    """Fills the stream with EVENTS events, 20 at a time."""

    def __init__(self, store: ab.Store) -> None:
        self._store = store
        self._written = 0

    def go_on(self, stop: int = EVENTS) -> None:
        """Write 20 more, if there are not so many yet."""
        if self._written < stop:
            put(self._store, range(self._written, self._written + 20))
            self._written += 20

    def finish(self) -> None:
        """Write all that are missing."""
        while self._written < EVENTS:
            self.go_on()


def start(store: ab.Store, *options: str) -> subprocess.Popen[str]:
    folder = Path(store.url).parent
    command = [sys.executable, "-m", "anabranch.cli.main", "pipeline", "run", str(folder / "p.sql"), *options]
    environment = {**os.environ, "ANABRANCH_STORE": store.url}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def wait_until(done: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    def ended() -> bool:
        assert child.poll() is None, child.communicate()
        return done()

    until(ended, 240)


def length(store: ab.Store, stream: str) -> int:
    streams = store.streams
    return store.cuts.distance(stream).events if streams.exists(stream) else 0


@pytest.mark.slow
def test_a_killed_pipeline_goes_on_as_if_nothing_had_been(spark: SparkSession, store: ab.Store) -> None:
    source = Source(store)
    for _ in range(20):
        source.go_on()
    child = start(store, "--events-max", "60")

    def under_way() -> bool:
        """Some batches are published, and there is more to do: not all of it is written before the kill."""
        source.go_on(EVENTS - 200)
        return length(store, "out/copy") > 60 and length(store, "out/counts") > 0

    try:
        wait_until(under_way, child)
        with pytest.raises(PipelineRunning, match=f"process {child.pid} on"):
            run(store, SQL, name="p", spark=spark)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    source.finish()
    assert pipeline_admin.find(store, "p").state_at(store.runtime.clock.now()) == "lost"

    pipeline = run(store, SQL, name="p", spark=spark, once=True)
    assert pipeline.await_termination(240)
    # Exactly the results of an undisturbed run, each once.
    assert counted(store) == expected(store, until=EVENTS - 1 - 5)
    copied = sorted((row["at"], row["device"]) for row in rows(store, "out/copy"))
    assert copied == sorted((row["at"], row["device"]) for row in rows(store, "iot/sensors"))
    assert not list(store.check())


def java_of(group: int) -> int:
    """The process of Java in a group of processes."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,comm="], capture_output=True, text=True, check=True).stdout
    (found,) = [
        int(pid)
        for pid, pgid, command in (line.split(maxsplit=2) for line in listed.splitlines())
        if int(pgid) == group and Path(command).name == "java"
    ]
    return found


@pytest.mark.slow
def test_a_pipeline_whose_java_is_killed_says_so_and_is_free_for_the_next_run(store: ab.Store) -> None:
    Source(store).finish()
    child = start(store, "--quiet")
    try:
        wait_until(lambda: length(store, "out/copy") == EVENTS, child)
        os.kill(java_of(child.pid), signal.SIGKILL)
        out, errors = child.communicate(timeout=PATIENCE_S)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert (child.returncode, out) == (2, "")
    assert errors.splitlines()[-1].endswith(
        "Spark's Java process has ended; run it again, and it continues where it stopped"
    )
    row = pipeline_admin.find(store, "p")
    assert (row.state, row.holder) == ("failed", None)


@pytest.mark.slow
def test_a_pipeline_of_the_shell_reports_its_progress_and_stops_when_another_process_asks(store: ab.Store) -> None:
    Source(store).finish()
    wanted = expected(store, until=EVENTS - 1 - 5)
    child = start(store, "--json")
    try:
        wait_until(lambda: length(store, "out/copy") == EVENTS and length(store, "out/counts") == len(wanted), child)
        assert pipeline_admin.stop(store, "p").state == "stopped"
        out, errors = child.communicate(timeout=PATIENCE_S)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, errors
    assert errors == ""
    told = [json.loads(line) for line in out.splitlines()]
    assert {each["target"] for each in told} == {"out/counts", "out/copy"}
    assert max(each["read"] for each in told) == EVENTS
    assert told[-1]["lag"] == 0
    assert counted(store) == wanted
