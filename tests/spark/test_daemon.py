"""The daemon that workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.parameters import rest_is_slow


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
