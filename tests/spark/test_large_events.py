"""Large events in Spark: fresh ones through the store, compacted ones by Spark's own vectorized reader, and back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import length, sha2

import anabranch as ab
from anabranch import limits
from anabranch.spark import read

pytestmark = pytest.mark.spark

SIZES = [20 * limits.MIB, 5, 24 * limits.MIB]


def body(number: int) -> bytes:
    return np.random.default_rng(number).integers(0, 256, SIZES[number], dtype=np.uint8).tobytes()


def sums(frame: DataFrame) -> list[tuple[int, int, str]]:
    """Offset, size and digest of each payload, as Spark sees them."""
    wanted = frame.select("_offset", length("payload").alias("size"), sha2("payload", 256).alias("sum"))
    return [(row["_offset"], row["size"], row["sum"]) for row in wanted.orderBy("_offset").collect()]


@pytest.mark.slow
def test_spark_reads_large_events_fresh_and_compacted_and_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        for name in ("s/raw", "s/out"):
            store.streams.create(name)
        with store.writer("s/raw") as writer:
            for number in range(len(SIZES)):
                writer.write(body(number), key=f"k{number}")
        expected = [(n, SIZES[n], hashlib.sha256(body(n)).hexdigest()) for n in range(len(SIZES))]
        assert sums(read(spark, store, "s/raw")) == expected
        store.compact(force=True)
        compacted = read(spark, store, "s/raw")
        assert "FileScan parquet" in str(compacted._jdf.queryExecution().executedPlan().toString())
        assert sums(compacted) == expected
        (
            compacted.select("key", "time", "payload")
            .write.format("anabranch")
            .options(path=store.url, stream="s/out")
            .mode("append")
            .save()
        )
        with store.reader("s/out") as reader:
            found = sorted(hashlib.sha256(event.body).hexdigest() for event in reader)
        assert found == sorted(each[2] for each in expected)
