"""Computes or publishes a micro-batch whose DataFrame Spark has handed to Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchHandler", "compute", "publish"]

BatchHandler: TypeAlias = "Callable[[DataFrame, int], None]"
"""What Spark calls with the results of a micro-batch and its number."""


def compute(frame: DataFrame) -> None:
    """Compute all rows, and keep them if the frame is to be persisted."""
    frame.write.format("noop").mode("append").save()


def publish(frame: DataFrame, batch: int, options: Mapping[str, str], *, replace: bool = False) -> None:
    """Publish a micro-batch under its number: once, even if it is repeated. With `replace` the stream then holds
    exactly these rows."""
    mode = "overwrite" if replace else "append"
    frame.write.format("anabranch").mode(mode).options(**options).option("batch", str(batch)).save()
