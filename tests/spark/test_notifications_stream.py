"""The stream of notifications is read as any stream: by Spark, in batches and as it grows, and by SQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.query import Query
from anabranch.spark import read
from tests.spark.streams import new_store

pytestmark = pytest.mark.spark

NAME = "_store/notifications"


def scalings(store: ab.Store) -> list[tuple[int, int | None]]:
    """What a listener is told of them."""
    return [(each.id, each.segments) for each in store.notifications.read("s/in") if each.kind == "scaled"]


@pytest.mark.slow
def test_notifications_are_read_by_spark_and_sql_as_of_the_moment(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for segments in (3, 5):
            store.streams.scale("s/in", segments)  # nobody listens: whoever reads the stream sees them all the same
        frames = (
            spark.read.format("anabranch").option("stream", NAME).load(store.url),
            read(spark, store, NAME),
        )
        for frame in frames:
            found = frame.where("kind = 'scaled' and stream = 's/in'").orderBy("id").collect()
            assert [(row["id"], row["segments"]) for row in found] == scalings(store)
            assert json.loads(found[0]["detail"])["sealed"] == ["0.0", "0.1"]
        store.streams.scale("s/in", 4)
        with Query(store) as query:
            result = query.run("select segments from \"_store/notifications\" where kind = 'scaled' order by id")
            assert result is not None
            assert [row["segments"] for batch in result for row in batch.to_pylist()] == [3, 5, 4]
        with store.reader(NAME) as reader:
            assert [event.body["segments"] for event in reader if event.body["kind"] == "scaled"] == [3, 5, 4]


def test_notifications_are_followed_by_a_streaming_query(spark: SparkSession, tmp_path: Path) -> None:
    found: list[tuple[int, int]] = []
    with new_store(tmp_path) as store:
        store.notifications.read().close()
        frame = spark.readStream.format("anabranch").option("stream", NAME).load(store.url).where("kind = 'scaled'")
        writing = frame.writeStream.foreachBatch(
            lambda each, _: found.extend((row["id"], row["segments"]) for row in each.orderBy("id").collect())
        )
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            for segments in (3, 5):
                store.streams.scale("s/in", segments)
                query.processAllAvailable()
                assert found == scalings(store)  # each once
        finally:
            query.stop()
