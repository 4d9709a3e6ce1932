"""The daemon that workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from anabranch.spark.pipelines.run import run
from anabranch.spark.session.worker_server import WORKER_MODULES
from tests.parameters import rest_is_slow
from tests.spark.pipelines import COUNTS, counted, new_store, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize(
    "workers", rest_is_slow([WORKER_MODULES, ["pyspark.worker"], ["pyspark.sql.worker.write_into_data_source"]])
)
def test_what_is_imported_before_the_fork_starts_no_thread(workers: Sequence[str]) -> None:
    code = f"""
import gc, os
from anabranch.spark.session.daemon import preload
preload(*{workers!r})
print(len(os.listdir("/proc/self/task")), gc.get_freeze_count() > 10_000)
"""
    # Spark gives its workers the same variable, which keeps numpy's library from starting threads.
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout.split() == ["1", "True"]


@pytest.mark.spark
def test_no_kind_of_worker_has_another_daemon_nor_a_python_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path / "river") as store:
        put(store, range(20))
        with run(store, COUNTS, name="counts", spark=spark, once=True, flush=True) as pipeline:
            pipeline.await_termination()
        assert counted(store)
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    assert not [each for each in _below(java.pid) if "python" in _command(each)], "each waits for what was forked"
    (server,) = [each for each in psutil.Process().children() if "session.worker_server" in _command(each)]
    workers = [each for each in _below(server.pid) if each.name() == "worker"]
    scores = [int(Path(f"/proc/{each.pid}/oom_score_adj").read_text()) for each in workers]
    assert scores and min(scores) >= 500  # where memory runs out, the kernel kills these rather than Java or the driver
    names = {each.name() for each in _below(server.pid)}
    assert {"worker", "plan_data_source_read"[:15]} <= names


def _below(pid: int) -> list[psutil.Process]:
    return [each for each in psutil.Process(pid).children(recursive=True) if each.is_running()]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it ended, or is a zombie
        return ""
