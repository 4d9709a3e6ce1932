"""`anabranch.spark.read`: the same rows as a reader's, each once, however they are stored."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.core.compaction import CompactionPolicy
from anabranch.errors import InvalidArgument, SchemaMismatch, StoreNotFound, StreamNotFound, Truncated
from anabranch.log.upkeep.compact import compact
from anabranch.model.columns import TIME_TYPE
from anabranch.spark import read
from anabranch.spark.source import frame as frames
from tests.spark.streams import SCHEMA, by_place, new_store, rows, table, write

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path) as made:
        yield made


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def scans(frame: DataFrame) -> int:
    return plan(frame).count("FileScan parquet")


def assert_same(frame: DataFrame, store: ab.Store, **options: Any) -> None:
    expected = table(store, **options)
    found = by_place(frame)
    assert [(field.name, field.type) for field in found.schema] == [(f.name, f.type) for f in expected.schema]
    assert found.cast(expected.schema).equals(expected)
    assert frame.count() == expected.num_rows


def test_history_and_tail_are_read_once_each(spark: SparkSession, store: ab.Store) -> None:
    assert_same(read(spark, store, "s/in"), store)  # nothing at all
    write(store, 0, 100, commits=5)
    assert_same(read(spark, store, "s/in"), store)
    store.compact(force=True)
    compacted = read(spark, store.url, "s/in")
    assert (scans(compacted), "LocalTableScan" in plan(compacted)) == (1, False)
    assert_same(compacted, store)
    write(store, 100, 50, commits=5)
    both = read(spark, store, "s/in")
    assert_same(both, store)
    assert_same(compacted, store, end=store.cuts.at("s/in", 100_000, by="event"))
    store.compact(force=True)
    assert_same(both, store)  # what it reads has been compacted since
    assert_same(read(spark, store, "s/in"), store)


def test_a_long_tail_is_read_by_tasks(spark: SparkSession, store: ab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, 0, 100)
    store.compact(force=True)
    write(store, 100, 100, commits=10)
    monkeypatch.setattr(frames, "_LOCAL_BYTES_MAX", 0)
    found = read(spark, store, "s/in")
    assert "anabranch" in plan(found)
    assert_same(found, store)
    assert_same(read(spark, store, "s/in", columns=["n"]), store, columns=["n"])


@pytest.mark.slow
def test_parts_of_files_are_reported_by_row(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 100, commits=10)
    store.compact(force=True)
    write(store, 100, 10)
    for low, high in [(10_000, 90_000), (45_000, 46_000), (0, 200_000)]:
        start = store.cuts.at("s/in", low, by="event")
        end = store.cuts.at("s/in", high, by="event")
        assert_same(read(spark, store, "s/in", start=start, end=end), store, start=start, end=end)
    between = read(spark, store, "s/in", between=(20_000, 30_000), columns=["n"])
    assert_same(between, store, between=(20_000, 30_000), columns=["n"])
    store.streams.truncate("s/in", store.cuts.at("s/in", 33_000, by="event"))
    assert_same(read(spark, store, "s/in"), store)


def test_segments_come_and_go(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 50, commits=2)
    store.streams.scale("s/in", 5)
    write(store, 50, 50, commits=2)
    store.compact(force=True)
    store.streams.scale("s/in", 1)
    write(store, 100, 50, commits=2)
    assert_same(read(spark, store, "s/in"), store)
    store.compact(force=True)
    assert_same(read(spark, store, "s/in"), store)


@pytest.mark.slow
def test_many_files_are_distinguished_by_look_up(
    spark: SparkSession, store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 120, 20):
        write(store, first, 20, commits=2)
        _compact_apart(store)
    monkeypatch.setattr(frames, "COMPARED_MAX", 2)
    monkeypatch.setattr(frames, "HASHED_MAX", 3)
    frame = read(spark, store, "s/in")
    assert scans(frame) > 1
    assert_same(frame, store)


def _compact_apart(store: ab.Store) -> None:
    """Compact what is fresh into files of its own, one for each log."""
    policy = CompactionPolicy(bytes_min=1, bytes_max=2)
    compact(store.catalog, store.blobs, store.runtime, policy=policy)


def test_columns_that_came_later_are_null_before(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 20)
    store.compact(force=True)
    store.streams.evolve("s/in", SCHEMA.append(pa.field("note", pa.string())))
    with store.writer("s/in") as writer:
        writer.write_batch(rows(20, 20).append_column("note", pa.array(["x"] * 20)))
    store.compact(force=True)
    with store.writer("s/in") as writer:
        writer.write_batch(rows(40, 20).append_column("note", pa.array(["y"] * 20)))
    assert_same(read(spark, store, "s/in"), store)
    assert read(spark, store, "s/in").where("note is null").count() == 20


def test_columns_that_were_widened_are_read_alike_from_narrow_files(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 20)
    store.streams.create("s/narrow", schema=SCHEMA.set(2, pa.field("n", pa.int16())), key="device", time="at")
    write(store, 20, 20, stream="s/narrow")
    store.compact(force=True)
    store.streams.append("s/narrow", "s/in")
    write(store, 40, 20)
    frame = read(spark, store, "s/in")
    assert scans(frame) == 1  # of the file that is wide
    assert_same(frame, store)
    assert sorted(row.n for row in frame.collect()) == [*range(60)]
    store.aliases.add("s/in", "s/also")
    assert_same(read(spark, store, "s/also"), store)


def test_every_type_is_read_alike_from_files_and_from_the_tail(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("device", pa.string()),
            ("u8", pa.uint8()),
            ("u16", pa.uint16()),
            ("u32", pa.uint32()),
            ("u64", pa.uint64()),
            ("i8", pa.int8()),
            ("f", pa.float32()),
            ("yes", pa.bool_()),
            ("day", pa.date32()),
            ("old", TIME_TYPE),
            ("local", pa.timestamp("us")),
            ("money", pa.decimal128(20, 3)),
            ("raw", pa.binary()),
            ("deep", pa.list_(pa.struct([("a", pa.uint16()), ("b", pa.map_(pa.string(), pa.int64()))]))),
            ("a.b`c", pa.int32()),
        ]
    )
    first: dict[str, Any] = {
        "device": "a",
        "u8": 255,
        "u16": 65535,
        "u32": 2**32 - 1,
        "u64": 2**64 - 1,
        "i8": -128,
        "f": 0.5,
        "yes": True,
        "day": -200_000,
        "old": -5_000_000_000_000_000,
        "local": 1,
        "money": 1,
        "raw": b"\x00\xff",
        "deep": [{"a": 65535, "b": [("x", 1)]}, None],
        "a.b`c": 7,
    }
    with new_store(tmp_path, schema=schema) as store:
        for _ in range(2):
            with store.writer("s/in") as writer:
                writer.write_batch(pa.Table.from_pylist([first, {"device": "b"}], schema))
            store.compact(force=True)
        with store.writer("s/in") as writer:
            writer.write_batch(pa.Table.from_pylist([first, {"device": "b"}], schema))
        found = read(spark, store, "s/in")
        assert scans(found) == 1
        plain = spark.read.format("anabranch").option("stream", "s/in").load(store.url)
        assert by_place(found).equals(by_place(plain))

        store.streams.create("s/half", schema=pa.schema([("x", pa.float16())]))
        with store.writer("s/half") as writer:
            writer.write_batch(pa.table({"x": pa.array([0.5], pa.float16())}))
        store.compact(force=True)
        assert [row["x"] for row in read(spark, store, "s/half").collect()] == [0.5]


def test_the_added_columns_cost_nothing_where_they_are_not_used(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 100)
    store.compact(force=True)
    ours = read(spark, store, "s/in")
    plain = spark.read.parquet(*(store.blobs.path(info.key) for info in store.blobs.list("history/")))
    for query in [
        lambda f: f.groupBy().count(),
        lambda f: f.groupBy("device").count(),
        lambda f: f.select("device", "at", "n"),
        lambda f: f.where("n > 5").groupBy("device").sum("n"),
    ]:
        assert _shape(plan(query(ours))) == _shape(plan(query(plain)))


def _shape(plan: str) -> str:
    """A plan without the numbers of its expressions."""
    return re.sub(r"#\d+L?|plan_id=\d+|\[id=#?\d+\]", "", plan)


def test_a_lease_keeps_the_files_of_a_dataframe(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 100)
    store.compact(force=True)
    held = read(spark, store, "s/in")
    with store.catalog.reading() as reading:
        assert "spark read" in [lease.kind for lease in reading.leases()]
    store.streams.delete("s/in")
    for _ in range(3):
        store.collect(horizon_us=0)
    assert held.count() == 100

    with store.catalog.writing() as writing:
        for lease in writing.leases():
            writing.drop_lease(lease.id)
    for _ in range(3):
        store.collect(horizon_us=0)
    with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"):
        held.agg({"n": "sum"}).collect()


def test_what_was_truncated_since_is_an_error(
    spark: SparkSession, store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_LOCAL_BYTES_MAX", 0)
    write(store, 0, 100)
    found = read(spark, store, "s/in")
    store.streams.truncate("s/in", store.cuts.tail("s/in"))
    with pytest.raises(PySparkException, match="the position in 's/in' was truncated"):
        found.count()


def test_what_is_wrong_is_said_before_anything_is_read(spark: SparkSession, store: ab.Store, tmp_path: Path) -> None:
    write(store, 0, 10)
    head = store.cuts.head("s/in")
    store.streams.truncate("s/in", store.cuts.tail("s/in"))
    store.streams.create("s/clock", schema=pa.schema([("noon", pa.time64("us"))]))
    with pytest.raises(StreamNotFound):
        read(spark, store, "s/none")
    with pytest.raises(StoreNotFound):
        read(spark, tmp_path / "nowhere", "s/in")
    with pytest.raises(Truncated):
        read(spark, store, "s/in", start=head)
    with pytest.raises(SchemaMismatch, match="unknown column 'm'"):
        read(spark, store, "s/in", columns=["m"])
    with pytest.raises(SchemaMismatch, match="'noon' of type"):
        read(spark, store, "s/clock")
    with pytest.raises(InvalidArgument, match="has no event time"):
        read(spark, store, "s/clock", between=(0, 1), columns=[])
    with ab.connect("memory://") as memory, pytest.raises(InvalidArgument, match="memory://"):
        read(spark, memory, "s/in")
    with store.catalog.reading() as reading:
        assert reading.leases() == []


def test_a_local_session_keeps_no_tables_in_the_folder_it_was_started_in(spark: SparkSession) -> None:
    folder = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    assert folder.is_relative_to(Path(tempfile.gettempdir()).resolve())
    assert not folder.is_relative_to(Path.cwd())
