"""A Spark session for a pipeline, whose standard error goes to a file instead of the terminal.

Java and Spark's Python workers write to the standard error that they were started with: a warning about modules, and a
traceback from each worker whose connection Spark closes when a query stops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.runtime.access import access_of
from anabranch.spark.pipelines.checkpoint_places import LOG
from anabranch.spark.session.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.store import Store

__all__ = ["session_with_log_file"]

_STDERR: Final = 2


def session_with_log_file(
    folder: Path, *, name: str, store: Store | None = None, checkpoints: str | None = None
) -> SparkSession:
    """`session(name=…, store=…, …)`; if that starts Spark, Spark's standard error goes to `spark.log` in `folder`.

    While Spark starts, the standard error of this whole process goes there.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        return session(name=name, store=store, checkpoints=checkpoints)
    access_of(folder, shared=False).make_folder(folder)
    with _stderr_to(folder / LOG):
        return session(name=name, store=store, checkpoints=checkpoints)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    kept = os.dup(_STDERR)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, access_of(path.parent, shared=False).file)
    os.dup2(log, _STDERR)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
