"""Pipelines in processes of their own: killed at any moment and resumed, stopped from outside, run from the shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import PipelineRunning
from anabranch.spark import pipeline_admin
from anabranch.spark.pipeline import run
from tests.spark.pipelines import COUNTS, counted, expected, new_store, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

# The second statement is stateless, so that both kinds of query are killed.
SQL = COUNTS + "; CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"
EVENTS = 2000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        for start in range(0, EVENTS, 20):
            put(opened, range(start, start + 20))
        (tmp_path / "p.sql").write_text(SQL)
        yield opened


def start(store: ab.Store, *options: str) -> subprocess.Popen[str]:
    folder = Path(store.url).parent
    command = [sys.executable, "-m", "anabranch.cli.main", "pipeline", "run", str(folder / "p.sql"), *options]
    environment = {**os.environ, "ANABRANCH_STORE": store.url}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def wait_until(done: Callable[[], bool], child: subprocess.Popen[str], *, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def length(store: ab.Store, stream: str) -> int:
    streams = store.streams
    return streams.distance(stream).events if streams.exists(stream) else 0


def test_a_killed_pipeline_goes_on_as_if_nothing_had_been(spark: SparkSession, store: ab.Store) -> None:
    child = start(store, "--events-max", "60")
    try:
        # Some batches are published, and there is more to do.
        wait_until(lambda: length(store, "out/copy") > 200 and length(store, "out/counts") > 0, child)
        with pytest.raises(PipelineRunning, match=f"process {child.pid} on"):
            run(store, SQL, name="p", spark=spark)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    assert length(store, "out/copy") < EVENTS, "it was killed too late to prove anything"
    assert pipeline_admin.find(store, "p").state_at(store.runtime.clock.now()) == "lost"

    pipeline = run(store, SQL, name="p", spark=spark, once=True)
    assert pipeline.await_termination(120)
    # Exactly the results of an undisturbed run, each once.
    assert counted(store) == expected(store, until=EVENTS - 1 - 5)
    copied = sorted((row["at"], row["device"]) for row in rows(store, "out/copy"))
    assert copied == sorted((row["at"], row["device"]) for row in rows(store, "iot/sensors"))
    assert not list(store.check())


def test_a_pipeline_of_the_shell_tells_its_progress_and_stops_when_another_process_asks(store: ab.Store) -> None:
    wanted = expected(store, until=EVENTS - 1 - 5)
    child = start(store, "--json")
    try:
        wait_until(lambda: length(store, "out/copy") == EVENTS and length(store, "out/counts") == len(wanted), child)
        assert pipeline_admin.stop(store, "p").state == "stopped"
        out, errors = child.communicate(timeout=60)
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
