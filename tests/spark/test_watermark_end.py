"""Spark reads up to where a stream is complete, as its writers said."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark import read
from tests.spark.streams import new_store, rows

pytestmark = pytest.mark.spark


def append(store: ab.Store, writer: ab.Writer, first: int, count: int) -> None:
    writer.write_batch(rows(first, count))
    writer.flush()


@pytest.mark.slow
def test_a_batch_ends_at_the_watermark_when_it_is_planned(spark: SparkSession, tmp_path: Path) -> None:
    def batch() -> list[int]:
        frame = spark.read.format("anabranch").options(stream="s/in", end="watermark").load(store.url)
        found = sorted(row["n"] for row in frame.collect())
        by_files = read(spark, store, "s/in", end="watermark")
        assert sorted(row["n"] for row in by_files.collect()) == found
        return found

    with new_store(tmp_path) as store, store.writer("s/in") as one, store.writer("s/in") as other:
        with pytest.raises(PySparkException, match="'s/in' has no watermark to end at"):
            batch()
        append(store, one, 0, 10)
        one.note_time(9_000)
        other.note_time(9_000)  # it holds the watermark up from now on
        append(store, one, 10, 10)
        one.note_time(19_000)
        assert batch() == list(range(10))
        store.streams.scale("s/in", 3)
        append(store, other, 20, 5)
        other.note_time(24_000)  # the least of both is 19,000 now, behind all that is there
        append(store, one, 25, 5)
        assert batch() == list(range(25))
        store.compact(force=True)
        assert batch() == list(range(25))


def test_a_stream_read_ends_at_the_watermark_and_goes_on_from_there_the_next_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[int] = []

    def run() -> list[int]:
        found.clear()
        frame = spark.readStream.format("anabranch").options(stream="s/in", end="watermark").load(store.url)
        writing = frame.writeStream.foreachBatch(lambda each, _: found.extend(row["n"] for row in each.collect()))
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(found)

    with new_store(tmp_path) as store, store.writer("s/in") as writer:
        append(store, writer, 0, 10)
        writer.note_time(9_000)
        append(store, writer, 10, 10)
        assert run() == list(range(10))
        assert run() == []
        writer.note_time(19_000)
        append(store, writer, 20, 10)
        assert run() == list(range(10, 20))
