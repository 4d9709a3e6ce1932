"""A Spark session for a pipeline, whose chatter goes to a file instead of the terminal.

Java and Spark's Python workers write to the standard error they were started with: a warning about modules, and a
traceback of each worker that is hung up on when a query stops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.spark.pipeline_home import LOG
from anabranch.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.store import Store

__all__ = ["quiet_session"]

_STDERR: Final = 2


def quiet_session(
    folder: Path, *, name: str, store: Store | None = None, checkpoints: str | None = None, **options: str
) -> SparkSession:
    """`session(name=…, store=…, …)`; where that starts Spark, its standard error is `spark.log` in `folder`.

    For the time of the start the whole process's standard error goes there.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        return session(name=name, store=store, checkpoints=checkpoints, **options)
    folder.mkdir(parents=True, exist_ok=True)
    with _stderr_to(folder / LOG):
        return session(name=name, store=store, checkpoints=checkpoints, **options)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    kept = os.dup(_STDERR)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, _STDERR)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
