"""Starting Spark within a deadline: Spark itself waits for its Java process without one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from anabranch import limits
from anabranch.errors import StoreUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_within_deadline(builder: SparkSession.Builder) -> SparkSession:
    """Return the session of a builder, running or started. Raises StoreUnavailable if Spark has not started after
    `limits.SPARK_START_S`, in which case its Java process is killed; else what Spark raises. A handler of Ctrl-C that the
    program has set stays; where there is none, Spark sets its own, which cancels the running jobs."""
    others = {child.pid for child in _children()}
    started, expired = threading.Event(), threading.Event()

    def watch() -> None:
        if not started.wait(limits.SPARK_START_S):
            expired.set()
            for child in _children():
                if child.pid not in others:
                    _kill_if_spark(child)

    threading.Thread(target=watch, name="spark-start", daemon=True).start()
    try:
        with _own_interrupt_handler():
            return builder.getOrCreate()
    except Exception as exc:
        if not expired.is_set():
            raise
        raise StoreUnavailable(
            f"Spark did not start within {limits.SPARK_START_S:g} s: check its Java, its master and the machine's "
            "memory"
        ) from exc
    finally:
        started.set()


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        main = threading.current_thread() is threading.main_thread()
        if main and before not in (signal.default_int_handler, signal.getsignal(signal.SIGINT), None):
            signal.signal(signal.SIGINT, before)


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _kill_if_spark(child: psutil.Process) -> None:
    try:
        if any("spark" in part for part in child.cmdline()):
            child.kill()
    except psutil.Error:  # it ended meanwhile
        return
