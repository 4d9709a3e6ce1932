"""Archives and attached files as Spark reads them: plain Parquet by itself, streams of attached files without a detour."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.spark import read
from tests.spark.streams import by_place, new_store, table, write

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path) as made:
        yield made


def scans(frame: DataFrame) -> int:
    return str(frame._jdf.queryExecution().executedPlan().toString()).count("FileScan parquet")


def assert_same(frame: DataFrame, store: ab.Store, stream: str) -> None:
    with store.reader(stream) as reader:
        expected = pa.Table.from_batches(reader.batches(), reader.schema).sort_by(
            [("_segment", "ascending"), ("_offset", "ascending")]
        )
    found = by_place(frame)
    assert found.cast(expected.schema).equals(expected)


@pytest.mark.slow
def test_spark_reads_an_archives_files_by_itself(spark: SparkSession, store: ab.Store, tmp_path: Path) -> None:
    write(store, 0, 60, commits=3)
    store.streams.scale("s/in", 3)
    write(store, 60, 60, commits=3)
    store.archives.create("s/in", tmp_path / "archive")
    plain = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    found = by_place(plain.parquet(str(tmp_path / "archive")).select("device", "at", "n", *_ADDED))
    expected = table(store)
    assert found.num_rows == 120
    assert (
        found.select(["n", *_ADDED])
        .cast(expected.select(["n", *_ADDED]).schema)
        .equals(expected.select(["n", *_ADDED]))
    )


_ADDED = ("_segment", "_offset", "_appended")


def test_attached_files_are_scanned_natively_whatever_they_are_called(
    spark: SparkSession, store: ab.Store, tmp_path: Path
) -> None:
    for folder in ("one", "two words"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        rows = pa.table({"name": pa.array([folder, "x", None]).dictionary_encode(), "n": [1, 2, 3]})
        pq.write_table(rows, tmp_path / "data" / folder / "part-0.parquet")
    store.archives.attach(tmp_path / "data", "s/data", key="name")
    frame = read(spark, store, "s/data")
    assert scans(frame) == 1
    assert "PythonScan" not in str(frame._jdf.queryExecution().executedPlan().toString())
    assert_same(frame, store, "s/data")

    write(store, 0, 30)
    store.archives.create("s/in", tmp_path / "archive")
    store.archives.attach(tmp_path / "archive", "s/old")
    old = read(spark, store, "s/old")
    assert scans(old) == 1
    assert_same(old, store, "s/old")
    store.streams.stitch(["s/data", "s/data"], into="s/twice")
    assert_same(read(spark, store, "s/twice"), store, "s/twice")


def test_times_that_spark_would_take_for_others_go_through_the_store(
    spark: SparkSession, store: ab.Store, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    fine = pa.array([1_700_000_000_000_000_123, None], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": fine, "n": [1, 2]}), tmp_path / "data" / "fine.parquet")
    with ab.connect(store.url, settings=ab.Settings(truncate_times=True), create=True) as lenient:
        lenient.archives.attach(tmp_path / "data", "s/fine", time="at")
    frame = read(spark, store, "s/fine")
    assert scans(frame) == 0
    assert_same(frame, store, "s/fine")
