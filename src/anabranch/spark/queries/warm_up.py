"""Runs a small query over a store of its own, so that a session's first real query need not load what all of them need:
Java's classes, Spark's Python workers, the state store. That takes some 8 s."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.run import run
from anabranch.store import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["warm_up"]

_SQL: Final = """
CREATE STREAM warm.out WITH (time = closed) AS
SELECT window.end AS closed, device, count(*) AS events
FROM STREAM warm.in GROUP BY window(at, '1 second'), device
"""


def warm_up(spark: SparkSession) -> None:
    """Run it to its end."""
    columns = pa.schema([("device", pa.string()), ("at", TIME_TYPE)])
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-warm-up-") as folder,
        connect(Path(folder) / "store", create=True) as store,
    ):
        store.scopes.create("warm")
        store.streams.create("warm/in", schema=columns, key="device", time="at")
        rows = {"device": ["a", "b"], "at": pa.array([1, 2_000_000], TIME_TYPE)}
        store.write("warm/in", pa.table(rows, columns))
        with run(store, _SQL, name="warm-up", spark=spark, once=True, flush=True) as pipeline:
            pipeline.await_termination()
