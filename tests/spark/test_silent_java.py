"""Java that is stopped (SIGSTOP): calls into it end with an error, and go on once it answers again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STOPPED = """
import faulthandler, os, signal, sys, threading, time
faulthandler.dump_traceback_later(400, exit=True)  # a hang is a failure that says where
from anabranch import limits
limits.JAVA_ANSWER_S = 6.0
from py4j.protocol import Py4JError
import anabranch as ab
from anabranch.errors import PipelineFailed
from anabranch.spark.session.java_watch import silent_java
from anabranch.spark.session.session import session
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import COUNTS, new_store, put

spark = session()
java = spark.sparkContext._gateway.proc.pid
# A call that takes longer than the deadline of answers is left alone: Java goes on answering.
spark._jvm.java.lang.Thread.sleep(10_000)
assert not silent_java()
store = new_store(sys.argv[1])
put(store, range(30))
pipeline = run(store, COUNTS, name="p", spark=spark)
waited = []

def wait():
    try:
        spark._jvm.java.lang.Thread.sleep(3_600_000)
    except Exception as exc:
        waited.append(exc)

waiting = threading.Thread(target=wait)
waiting.start()
time.sleep(1)
os.kill(java, signal.SIGSTOP)
try:
    try:
        pipeline.await_termination()
        raise SystemExit("the pipeline ended without an error")
    except PipelineFailed as exc:
        print("pipeline:", exc)
    waiting.join()
    assert isinstance(waited[0], Py4JError), waited
    pipeline.stop()
    try:
        spark.range(3).count()
        raise SystemExit("a stopped process has answered")
    except Py4JError:
        print("call refused")
    assert [row.body for row in store.reader("iot/sensors")]  # the store itself goes on
finally:
    os.kill(java, signal.SIGCONT)
while silent_java():
    time.sleep(0.1)
assert spark.range(3).count() == 3
print("goes on")
store.close()
spark.stop()
"""


def test_no_call_into_a_java_process_that_is_stopped_waits_forever(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(tmp_path / "river")],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6_000:]
    assert "has not answered for 6 s" in done.stdout
    assert "call refused" in done.stdout
    assert "goes on" in done.stdout
