"""Warms up a Spark session: runs queries over small temporary stores, which load Java's classes and start Python workers.
This saves a session's first real query some 8 s, and a hot standby's first publication some 3 s."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.publish import compute, publish
from anabranch.spark.pipelines.run import run
from anabranch.store import Store, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["rehearse", "warm_up"]

_SQL: Final = """
CREATE STREAM warm.out WITH (time = closed) AS
SELECT window.end AS closed, device, count(*) AS events
FROM STREAM warm.in GROUP BY window(at, '1 second'), device
"""

_COLUMNS: Final = pa.schema([("device", pa.string()), ("at", TIME_TYPE)])


def warm_up(spark: SparkSession) -> None:
    """Run a query to its end."""
    with _store("warm/in") as store:
        rows = {"device": ["a", "b"], "at": pa.array([1, 2_000_000], TIME_TYPE)}
        store.write("warm/in", pa.table(rows, _COLUMNS))
        with run(store, _SQL, name="warm-up", spark=spark, once=True, flush=True) as pipeline:
            pipeline.await_termination()


def rehearse(spark: SparkSession) -> None:
    """Publish a micro-batch as a hot standby does when it takes over."""
    with _store("warm/out") as store:
        frame = spark.range(2).selectExpr("CAST(id AS STRING) AS device", "timestamp_seconds(id) AS at").persist()
        compute(frame)
        publish(frame, 0, {"path": store.url, "stream": "warm/out", "queryId": "rehearsal"})
        frame.unpersist()


@contextmanager
def _store(stream: str) -> Iterator[Store]:
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-warm-up-") as folder,
        connect(Path(folder) / "store", create=True) as store,
    ):
        store.scopes.create("warm")
        store.streams.create(stream, schema=_COLUMNS, key="device", time="at")
        yield store
