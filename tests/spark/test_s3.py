"""Spark over a store whose bytes are in S3: history by Spark's own reader, checkpoints in the bucket."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.spark import read
from tests.s3_server import fresh_url
from tests.spark.streams import SCHEMA, by_place, table, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", blobs=fresh_url()) as opened:
        yield filled(opened)


def filled(store: ab.Store) -> ab.Store:
    """The store with a stream of which most is in Parquet and the end is not."""
    store.streams.create_scope("s")
    store.streams.create("s/in", schema=SCHEMA, key="device", time="at", scaling=2)
    write(store, 0, 5000, commits=2)
    store.compact(force=True)
    write(store, 5000, 500)
    return store


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_history_in_a_bucket_is_read_by_sparks_own_reader(s3_spark: SparkSession, store: ab.Store) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = read(s3_spark, store, "s/in", end=None)
    assert "FileScan parquet" in plan(frame)
    assert "s3a://" in plan(frame)
    assert by_place(frame, table(store).column_names).equals(table(store))
