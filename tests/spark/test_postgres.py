"""Spark over a store whose catalog is in PostgreSQL and whose blobs are in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.spark import read
from anabranch.spark.pipelines.admin import reset
from anabranch.spark.pipelines.run import run
from tests.postgres_server import drop, fresh_url
from tests.spark.pipelines import COUNTS, SCHEMA, SOURCE, counted, expected, put
from tests.spark.streams import SCHEMA as NUMBERS
from tests.spark.streams import numbers, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    url = fresh_url()
    with ab.connect(url, blobs=tmp_path / "blobs", create=True) as opened:
        yield opened
    drop(url)


def place(store: ab.Store) -> dict[str, str]:
    assert store.addresses is not None
    assert store.addresses.blobs is not None
    return {"path": store.addresses.url, "blobs": store.addresses.blobs}


@pytest.mark.slow
def test_a_batch_is_read_from_parquet_and_from_the_store(spark: SparkSession, store: ab.Store) -> None:
    store.scopes.create("s")
    store.streams.create("s/in", schema=NUMBERS, key="device", time="at", scaling=2)
    write(store, 0, 20_000, commits=4)
    store.compact(force=True)
    write(store, 20_000, 500)
    for frame in (
        read(spark, store, "s/in"),
        spark.read.format("anabranch").options(**place(store), stream="s/in").load(),
    ):
        assert sorted(row.n for row in frame.select("n").collect()) == list(range(20_500))


def test_a_streaming_query_reads_and_writes_and_goes_on_where_it_stopped(
    spark: SparkSession, store: ab.Store, tmp_path: Path
) -> None:
    store.scopes.create("s")
    store.streams.create("s/in", schema=NUMBERS, key="device", time="at", scaling=2)
    for first in (0, 1000):
        write(store, first, 1000)
        source = spark.readStream.format("anabranch").options(**place(store), stream="s/in").load()
        query = (
            source.select("device", "at", "n")
            .writeStream.format("anabranch")
            .options(**place(store), stream="s/out", create="true", key="device")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert numbers(store, "s/out") == list(range(first + 1000))
    assert list(store.check()) == []


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True], ids=["in the blobs' folder", "in a folder that is named"])
def test_a_pipeline_keeps_its_checkpoints_and_goes_on(
    spark: SparkSession, store: ab.Store, tmp_path: Path, named: bool
) -> None:
    folder = tmp_path / "elsewhere" if named else None
    store.scopes.create("iot")
    store.streams.create(SOURCE, schema=SCHEMA, key="device", time="at", scaling=2)
    put(store, [each / 2 for each in range(100)])
    root = (folder or tmp_path / "blobs" / "pipelines") / "counts"
    for until in (100, 200):
        with run(store, COUNTS, name="counts", spark=spark, once=True, checkpoints=folder) as pipeline:
            assert pipeline.await_termination(240)
        assert [each.name for each in root.glob("*/*")] == ["0001"]
        assert counted(store) == expected(store, until=(until - 1) / 2 - 5)
        put(store, [until / 2 + each / 2 for each in range(100)])
        folder = None  # a later run finds them by itself
    store.collect(horizon_us=0)
    assert root.is_dir()
    reset(store, "counts")
    assert not root.exists()


def test_a_place_that_no_worker_sees_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    url = fresh_url()
    with ab.connect(url, blobs="memory://", create=True) as store:
        with pytest.raises(InvalidArgument, match="memory"):
            read(spark, store, "s/in")
        with pytest.raises(InvalidArgument, match="memory"):
            run(store, COUNTS, name="counts", spark=spark)
    with pytest.raises(Exception, match="pass their location"):
        spark.read.format("anabranch").options(stream="s/in").load(url)
    drop(url)
