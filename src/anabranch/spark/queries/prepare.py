"""Writes the archive of Java's classes with which sessions start faster (`anabranch.spark.session.class_archive`)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from anabranch import limits
from anabranch.errors import StoreUnavailable
from anabranch.spark.queries.warm_up import warm_up
from anabranch.spark.session.class_archive import UNFINISHED, class_archive, remove_outdated, writing_options
from anabranch.spark.session.home import ensure_home, start_worker_server
from anabranch.spark.session.java import ensure_java
from anabranch.spark.session.session import session

__all__ = ["prepare_spark", "preparing_spark"]

_WRITTEN_S: Final = 120.0  # the limit for Java's end, in which it writes the file: some 5 s
_LOWEST_PRIORITY: Final = 19


def _archive() -> Path | None:
    ensure_java()
    ensure_home()
    return class_archive()


def prepare_spark() -> Path | None:
    """Write the archive, unless there is one: runs a small query in a session of its own, in some 20 s. Returns the file, of
    some 175 MB in the user's cache folder; None if there can't be one with this SPARK_HOME. The process must not have a Spark
    session. Raises MissingExtra without pyspark or Java, StoreUnavailable if Spark does not start or Java writes no file."""
    archive = _archive()
    if archive is None or archive.exists():
        return archive
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=UNFINISHED) as folder:
        fresh = Path(folder) / archive.name
        spark = session(master="local[2]", **{"spark.driver.extraJavaOptions": writing_options(fresh)})
        gateway: Any = spark.sparkContext._gateway
        warm_up(spark)
        spark.stop()
        for worker in psutil.Process(start_worker_server().pid).children(recursive=True):
            worker.kill()  # they would complain that Java has ended
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends when its input is closed
        with suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(_WRITTEN_S)
        if not fresh.exists():
            raise StoreUnavailable("Java wrote no archive of its classes; sessions start without one, as before")
        with open(fresh, "rb") as written:
            os.fsync(written.fileno())  # a file cut short by a power failure would crash Java
        fresh.replace(archive)
    remove_outdated(archive)
    return archive


@contextmanager
def preparing_spark() -> Iterator[None]:
    """Write the archive while the block runs, unless there is one: in a process of its own, at the lowest priority,
    which ends with the block. Raises MissingExtra without Java."""
    archive = _archive()
    if archive is None or archive.exists():
        yield
        return
    nothing, folder = subprocess.DEVNULL, tempfile.mkdtemp(prefix="anabranch-prepare-")
    preparing = subprocess.Popen(
        [sys.executable, "-m", __name__, folder],
        stdin=subprocess.PIPE,
        stdout=nothing,
        stderr=nothing,
        env={**os.environ, "TMPDIR": folder},
        start_new_session=True,
    )
    # Waited for at once: the block lasts as long as the host, and until then it would be a zombie.
    threading.Thread(target=preparing.wait, name="prepared", daemon=True).start()
    try:
        yield
    finally:
        assert preparing.stdin is not None
        preparing.stdin.close()
        if preparing.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(preparing.pid, signal.SIGKILL)  # Java too
        with suppress(subprocess.TimeoutExpired):
            preparing.wait(limits.TASK_END_S)
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_parent(folder: str) -> None:
    """End this process and its children once its parent is gone, even by kill -9. Their temporary files, in this
    folder, are removed."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    os.nice(_LOWEST_PRIORITY)
    threading.Thread(target=_end_with_parent, args=sys.argv[1:], name="parent", daemon=True).start()
    prepare_spark()
