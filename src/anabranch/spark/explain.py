"""One sentence for an error of Spark, without Java's stack traces."""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException

from anabranch import limits
from anabranch.errors import AnabranchError, PipelineFailed
from anabranch.spark.session.java_watch import JVM_GONE_ERRORS, silent_java

__all__ = ["explain", "is_crash", "is_java_gone", "is_too_deep"]

_AGAIN: Final = "run it again, and it continues where it stopped"
# Causes that Spark reports somewhere in a text of many lines, the most specific first.
_RESOURCES: Final = (
    (
        r"No space left on device|\bENOSPC\b|Disk quota exceeded",
        "the disk is full where Spark keeps its checkpoints or its temporary files (spark.local.dir): free some space, then "
        + _AGAIN,
    ),
    (
        r"OutOfMemoryError|SparkOutOfMemoryError",
        f"Spark's Java ran out of memory: give it more (spark.driver.memory, spark.executor.memory), then {_AGAIN}",
    ),
)
_STACK_OVERFLOW: Final = r"StackOverflowError|too complex to parse|Max iterations \(\d+\) reached for batch"
_TOO_DEEP: Final = (
    "the statement is too long or nested too deeply for Spark: use a statement for each part, or list values in a stream "
    "and join it"
)
# Of the Python worker in which a source lives, Spark only says how the connection to it ended; of one that waited for its next
# task, only that its pipe is closed.
_WORKER_GONE: Final = (
    r"^java\.io\.EOFException$|^java\.(?:io\.IO|net\.Socket)Exception: (?:Broken pipe|Connection reset)"
    r"|java\.io\.IOException: Stream closed$"
)
_CRASHES: Final = (
    (
        r"ExecutorLostFailure|Executor heartbeat timed out|Remote RPC client disassociated",
        f"an executor of Spark was lost: it was killed, or its machine ran out of memory; {_AGAIN}",
    ),
    (
        rf"Python worker exited unexpectedly|Python worker failed to connect back|{_WORKER_GONE}",
        f"a Python worker of Spark was killed, or the machine ran out of memory; {_AGAIN}",
    ),
)


def is_java_gone(exc: BaseException) -> bool:
    """True if Spark's Java process has ended, or does not answer, so that its session can't be used any more."""
    found = _cause(exc)
    return isinstance(found, JVM_GONE_ERRORS) and not isinstance(found, Py4JJavaError)


def is_too_deep(exc: BaseException) -> bool:
    """True if Spark's stack overflowed over a statement: another run would meet the same."""
    return explain(_cause(exc)) == _TOO_DEEP


def is_crash(exc: BaseException) -> bool:
    """True if a run failed because an executor or a Python worker of Spark has ended: another run may succeed."""
    return explain(_cause(exc)) in {sentence for _, sentence in _CRASHES}


def _cause(exc: BaseException) -> BaseException:
    return exc.__cause__ if isinstance(exc, PipelineFailed) and exc.__cause__ is not None else exc


def explain(exc: BaseException) -> str:
    """One sentence for an error of Spark, or of our code that runs inside Spark."""
    if is_java_gone(exc):
        if silent_java():
            return (
                f"Spark's Java process has not answered for {limits.JAVA_ANSWER_S:g} s: see whether it is stopped or out of "
                f"memory; {_AGAIN}"
            )
        return f"Spark's Java process has ended; {_AGAIN}"
    text = str(exc)
    # A Python error of the source or sink is wrapped in Java's and Spark's; its own last line is sufficient.
    own = re.findall(r"^(?:anabranch\.errors\.)(?:\w+\.)*(\w+): (.+)$", text, re.MULTILINE)
    if own:
        return str(own[-1][1])
    if isinstance(exc, AnabranchError):
        return text
    java = str(getattr(exc, "_cause", None) or "").strip()
    for cause, sentence in ((_STACK_OVERFLOW, _TOO_DEEP), *_RESOURCES, *_CRASHES):
        if re.search(cause, f"{java}\n{text}", re.MULTILINE):
            return sentence
    text = re.sub(r"^An error occurred while calling \S+\n: (?:\w+\.)+\w+: ", "", text.strip())
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", text)
    text = re.split(r"\s*(?:SQLSTATE:|;? line \d+,? pos|\n==|\n'|;\n|JVM stacktrace|Verify the spelling)", text)[0]
    if isinstance(exc, AnalysisException | ParseException):
        hint = " (here: group by window(…) over the event time of its stream, or over _appended)"
        return " ".join(text.split()) + hint * ("without watermark" in text)
    first = " ".join(text.splitlines()[0].split()) if text else type(exc).__name__
    return f"{first}{_root_cause(exc)}" if first == "Task not serializable" else first


def _root_cause(exc: BaseException) -> str:
    """The root cause, which Spark gives only in its stack trace."""
    causes: list[str] = []
    found: BaseException | None = exc
    while found is not None:  # Spark's client keeps a stack trace for each cause of a streaming query's error
        causes += re.findall(r"^Caused by: (.+)$", str(getattr(found, "_stackTrace", "")), re.MULTILINE)
        found = getattr(found, "_cause", None)
    return f": {causes[-1].strip()}" if causes else ""
