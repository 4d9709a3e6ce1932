"""The daemon that workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from anabranch.spark.pipelines.run import run
from tests.parameters import rest_is_slow
from tests.spark.pipelines import COUNTS, counted, new_store, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("worker", rest_is_slow(["pyspark.worker", "pyspark.sql.worker.write_into_data_source"]))
def test_what_is_imported_before_the_fork_starts_no_thread(worker: str) -> None:
    code = f"""
import gc, os
from anabranch.spark.session.daemon import preload
preload({worker!r})
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
def test_no_kind_of_worker_has_another_daemon(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path / "river") as store:
        put(store, range(20))
        with run(store, COUNTS, name="counts", spark=spark, once=True, flush=True) as pipeline:
            pipeline.await_termination()
        assert counted(store)
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    commands = []
    for each in psutil.Process(java.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended, or is a zombie
            commands.append(" ".join(each.cmdline()))
    assert not [each for each in commands if "pyspark.daemon" in each]
    kinds = {each.rpartition(" ")[2] for each in commands if "anabranch.spark.session.daemon" in each}
    assert {"pyspark.worker", "pyspark.sql.worker.plan_data_source_read"} <= kinds
