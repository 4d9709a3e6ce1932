"""Errors of Spark, as it reports them, are one sentence."""

from __future__ import annotations

import pytest

from anabranch.spark.explain import explain

_LOST = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in stage
3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 2): {}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited with code 137",
            "an executor of Spark was lost",
        ),
        ("java.io.IOException: No space left on device", "the disk is full where Spark keeps"),
        ("OSError: [Errno 28] No space left on device", "the disk is full where Spark keeps"),
        ("java.lang.OutOfMemoryError: Java heap space", "Spark's Java ran out of memory"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "a Python worker of Spark was",
        ),
    ],
)
def test_the_usual_causes_have_a_sentence_each(cause: str, said: str) -> None:
    told = explain(RuntimeError(_LOST.format(cause)))
    assert told.startswith(said)
    assert told.endswith("run it again, and it continues where it stopped")
    assert "\n" not in told and "at org." not in told


def test_an_error_of_the_store_says_itself_what_is_wrong() -> None:
    own = "anabranch.errors.storage.DiskFull: no space left at /river: free some\nNo space left on device"
    assert explain(RuntimeError(_LOST.format(f"Traceback\n{own}"))) == "no space left at /river: free some"


def test_any_other_error_is_its_first_line() -> None:
    assert explain(RuntimeError("[SOME_CLASS.SUB] no good\n\tat org.apache.spark.X")) == "no good"
    assert explain(RuntimeError("")) == "RuntimeError"
