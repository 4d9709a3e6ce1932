"""Which failures of a run say something about its query, and which say that processes of Spark have ended."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError

from anabranch.errors import PipelineFailed
from anabranch.spark.explain import explain, is_crash, is_java_gone, is_too_deep

_JOB = "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: Lost task 0.0 in stage 3.0: "


def failed(cause: Exception) -> PipelineFailed:
    failure = PipelineFailed("p", "out/x", explain(cause))
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize(
    ("said", "crash"),
    [
        (_JOB + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", True),
        (_JOB + "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", True),
        (
            _JOB
            + "Lost task 1.0 in stage 10.0 (TID 17) (192.0.2.2 executor driver): java.io.IOException: Stream closed",
            True,
        ),
        ("An error occurred while calling o249.save.\n: java.io.IOException: Stream closed\n\tat java.base", True),
        (_JOB + "java.io.IOException: Stream closed by its reader", False),
        (_JOB + "java.lang.OutOfMemoryError: Java heap space; Python worker exited unexpectedly (crashed)", False),
        (_JOB + "\nanabranch.errors.data.Truncated: events before 7 are gone", False),
        (_JOB + "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero", False),
    ],
)
def test_a_run_whose_workers_or_executors_were_killed_has_crashed(said: str, crash: bool) -> None:
    for exc in (RuntimeError(said), failed(RuntimeError(said))):
        assert is_crash(exc) is crash
        assert not is_java_gone(exc)


@pytest.mark.parametrize(
    ("java", "crash"),
    [
        ("java.io.EOFException", True),
        ("java.io.IOException: Broken pipe", True),
        ("java.net.SocketException: Connection reset", True),
        ("java.io.EOFException: state/0/1/7.delta is cut off", False),
        ("java.io.IOException: Input/output error", False),
    ],
)
def test_a_run_whose_source_was_killed_has_crashed(java: str, crash: bool) -> None:
    exc = RuntimeError("[STREAM_FAILED] Query terminated with exception:  SQLSTATE: XXKST (no cause message)")
    exc._cause = java  # type: ignore[attr-defined]  # as PySpark keeps it
    assert is_crash(failed(exc)) is crash


def test_a_run_without_java_is_told_from_one_that_failed() -> None:
    for exc in (Py4JNetworkError("Answer from Java side is empty"), failed(ConnectionRefusedError())):
        assert is_java_gone(exc)
        assert not is_crash(exc)


def test_of_an_error_of_java_the_cause_is_told_and_not_the_call() -> None:
    said = (
        "An error occurred while calling o249.save.\n: org.apache.spark.SparkException: Writing job failed.\n\tat org.x"
    )
    assert explain(RuntimeError(said)) == "Writing job failed."


@pytest.mark.parametrize(
    "said",
    [
        "An error occurred while calling o65.sql.\n: java.lang.StackOverflowError\n\tat org.antlr.v4.runtime.X",
        "[FAILED_TO_PARSE_TOO_COMPLEX] The statement, including potential SQL functions, was too complex to parse.",
        _JOB + "java.lang.StackOverflowError",
        "An error occurred while calling o65.sql.\n: java.lang.RuntimeException: Max iterations (100) reached for batch R",
    ],
)
def test_a_statement_that_is_too_much_for_spark_is_refused(said: str) -> None:
    for exc in (RuntimeError(said), failed(RuntimeError(said))):
        assert is_too_deep(exc) and not is_crash(exc)
    assert explain(RuntimeError(said)).startswith("the statement is too long or nested too deeply for Spark")
    assert not is_too_deep(RuntimeError(_JOB + "java.lang.OutOfMemoryError: Java heap space"))
