"""Streams as a sink of Spark: everything written is there once, or nothing is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from tests.spark.streams import SCHEMA, new_store, numbers, table, write

pytestmark = pytest.mark.spark


def events(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Events as `streams.rows` makes them."""
    return spark.range(first, first + count).selectExpr(
        "concat('d', id % 7) as device", "timestamp_millis(id) as at", "id as n"
    )


def save(frame: DataFrame, store: ab.Store, mode: str = "append", **options: Any) -> None:
    frame.write.format("anabranch").options(**{"stream": "s/out", **options}).mode(mode).save(store.url)


def source(spark: SparkSession, store: ab.Store, **options: Any) -> DataFrame:
    return spark.readStream.format("anabranch").options(stream="s/in", **options).load(store.url)


def copy(frame: DataFrame, store: ab.Store, checkpoint: Path, mode: str = "append", **options: Any) -> list[Any]:
    """Run a streaming query into `s/out` until all is done; what Spark tells of its batches."""
    writer = frame.writeStream.format("anabranch").outputMode(mode).options(**{"stream": "s/out", **options})
    writer = writer.option("path", store.url).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def assert_clean(store: ab.Store) -> None:
    """Nothing is damaged, and no lease is left."""
    assert list(store.check()) == []
    with store.catalog.reading() as reading:
        assert reading.leases() == []


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with new_store(tmp_path) as made:
        made.streams.create("s/out", schema=SCHEMA, key="device", time="at", scaling=3)
        yield made


# batch jobs


def test_a_saved_dataframe_is_appended_or_replaces_what_was_there(spark: SparkSession, store: ab.Store) -> None:
    write(store, 0, 10, stream="s/out")
    frame = events(spark, 10, 90).repartition(4)
    save(frame, store)
    assert numbers(store, "s/out") == list(range(100))
    save(frame, store)
    assert len(numbers(store, "s/out")) == 190, "each save is a new one"
    save(events(spark, 5, 5), store, "overwrite")
    assert numbers(store, "s/out") == list(range(5, 10))
    save(events(spark, 0, 0), store, "overwrite")
    assert numbers(store, "s/out") == []
    assert_clean(store)


@pytest.mark.slow
def test_columns_are_matched_by_name_and_conformed(spark: SparkSession, store: ab.Store) -> None:
    save(events(spark, 0, 3).selectExpr("cast(n as int) as n", "device", "7 as _offset", "now() as _appended"), store)
    found = table(store, "s/out")
    assert sorted(found.column("n").to_pylist()) == [0, 1, 2]
    assert found.column("at").null_count == 3
    for frame, message in [
        (events(spark, 0, 1).withColumn("extra", F.lit(1)), "unknown column 'extra'; the stream has device, at, n"),
        (events(spark, 0, 1).withColumn("n", F.array("n")), "column 'n' takes int64"),
        (events(spark, 0, 1).withColumn("n", F.expr("2.5D")), "column 'n' takes int64"),
        (events(spark, 0, 1).withColumn("n", F.expr("parse_json('1')")), "can't be stored"),
    ]:
        with pytest.raises(PySparkException) as raised:
            save(frame, store)
        assert message in str(raised.value)
    assert len(numbers(store, "s/out")) == 3


@pytest.mark.slow
def test_a_raw_stream_takes_key_time_and_payload(spark: SparkSession, store: ab.Store) -> None:
    store.streams.create("s/raw")
    frame = events(spark, 0, 5).selectExpr("device as key", "at as time", "to_json(struct(n)) as payload")
    save(frame, store, stream="s/raw")
    with store.reader("s/raw") as reader:
        found = {(event.key, event.time_us, event.body) for event in reader}
    assert found == {(f"d{n}", n * 1000, b'{"n":%d}' % n) for n in range(5)}
    with pytest.raises(PySparkException, match="the stream has key, time, payload"):
        save(events(spark, 0, 5), store, stream="s/raw")


@pytest.mark.slow
def test_a_missing_stream_is_made_only_if_asked(spark: SparkSession, store: ab.Store) -> None:
    with pytest.raises(PySparkException, match="stream 't/new' not found") as raised:
        save(events(spark, 0, 5), store, stream="t/new")
    assert "option('create', 'true')" in str(raised.value)
    frame = events(spark, 0, 5).withColumn("some", F.expr("array(named_struct('a', 1))"))
    save(frame, store, stream="t/new", create="true", key="device", time="at", segments="3")
    info = store.streams.get("t/new")
    assert (info.schema.key, info.schema.time) == ("device", "at")
    assert info.schema.columns.names == ["device", "at", "n", "some"]
    assert len(store.streams.view("t/new").current) == 3
    assert numbers(store, "t/new") == list(range(5))


@pytest.mark.slow
def test_what_is_wrong_with_a_save_is_said_clearly(spark: SparkSession, store: ab.Store) -> None:
    frame = events(spark, 0, 1)
    store.streams.create("s/done", schema=SCHEMA)
    store.streams.seal("s/done")
    for options, message in [
        ({"stream": "s/done"}, "stream 's/done' is sealed"),
        ({"sream": "s/out"}, "did you mean 'stream'?"),
        ({"create": "yes"}, "expected option 'create' as false or true"),
        ({"late": "{}"}, "option 'late' needs a query that reads a stream"),
    ]:
        with pytest.raises(PySparkException) as raised:
            save(frame, store, **options)
        assert message in str(raised.value)
    for mode in ("error", "ignore"):
        with pytest.raises(PySparkException, match="anabranch"):
            save(frame, store, mode)
    assert numbers(store, "s/out") == []


@pytest.mark.slow
def test_a_stream_of_bytes_takes_no_rows(spark: SparkSession, store: ab.Store) -> None:
    with store.bytes("s/file", "xb") as file:
        file.write(b"abc")
    frame = spark.read.format("anabranch").option("stream", "s/file").load(store.url)
    with pytest.raises(PySparkException, match="'s/file' is a byte stream"):
        frame.write.format("anabranch").option("stream", "s/file").mode("append").save(store.url)
    with store.bytes("s/file") as file:
        assert file.read() == b"abc"
    assert_clean(store)


@pytest.mark.slow
def test_a_job_that_fails_leaves_nothing(spark: SparkSession, store: ab.Store) -> None:
    frame = events(spark, 0, 400_000).repartition(4)
    with pytest.raises(PySparkException):
        save(frame.where("if(n = 399999, raise_error('a bad row'), true)"), store)
    assert numbers(store, "s/out") == []
    assert_clean(store)
    save(frame, store)
    assert len(numbers(store, "s/out")) == 400_000
    assert_clean(store)


# streaming queries


def test_a_streaming_query_appends_each_event_once(spark: SparkSession, store: ab.Store, tmp_path: Path) -> None:
    write(store, 0, 50, commits=5)
    frame = source(spark, store, maxEventsPerTrigger=20)
    assert len(copy(frame, store, tmp_path / "ck")) > 1
    store.streams.scale("s/out", 5)
    write(store, 50, 50, commits=2)
    copy(frame, store, tmp_path / "ck")
    assert numbers(store, "s/out") == list(range(100))
    # The order of a key is that of its source.
    with store.reader("s/out") as reader:
        found: dict[str, list[int]] = {}
        for event in reader:
            found.setdefault(event.key, []).append(event.body["n"])
    assert all(each == sorted(each) for each in found.values())
    assert_clean(store)


def test_a_batch_that_spark_repeats_changes_nothing(spark: SparkSession, store: ab.Store, tmp_path: Path) -> None:
    write(store, 0, 30, commits=3)
    frame = source(spark, store, maxEventsPerTrigger=10)
    copy(frame, store, tmp_path / "ck")
    # As if Spark had crashed before it wrote down that its last batch was done.
    for each in (tmp_path / "ck" / "commits").glob("*2*"):
        each.unlink()
    write(store, 30, 10)
    again = copy(frame, store, tmp_path / "ck")
    assert [each.batchId for each in again if each.numInputRows] == [2, 3]
    assert numbers(store, "s/out") == list(range(40))
    assert_clean(store)


def test_complete_mode_holds_the_whole_result_and_nothing_else(
    spark: SparkSession, store: ab.Store, tmp_path: Path
) -> None:
    store.streams.create("s/totals", schema=pa.schema([("device", pa.string()), ("events", pa.int64())]), key="device")
    counts = source(spark, store).groupBy("device").agg(F.count("*").alias("events"))
    for first in (0, 70):
        write(store, first, 70)
        copy(counts, store, tmp_path / "ck", "complete", stream="s/totals")
        found = table(store, "s/totals")
        expected = {f"d{n}": (first + 70) // 7 for n in range(7)}
        assert dict(zip(*(found.column(n).to_pylist() for n in ("device", "events")), strict=True)) == expected
    with pytest.raises(PySparkException, match=r"[Uu]pdate"):
        copy(counts, store, tmp_path / "ck2", "update", stream="s/totals")
    assert_clean(store)


@pytest.mark.slow
def test_late_events_are_published_with_the_results(spark: SparkSession, store: ab.Store, tmp_path: Path) -> None:
    from anabranch.spark.options import to_json_option
    from anabranch.spark.pipelines.late_commit import LateEventsSpec
    from anabranch.spark.pipelines.windows.spans import StatementWindow

    second = 1_000_000
    store.streams.create("s/late", schema=SCHEMA.append(pa.field("_watermark", TIME_TYPE)), key="device", time="at")
    times = [1, 12, 3, 25, 4, 18, 41, 22, 39, 60, 5, 61, 45, 90]
    with store.writer("s/in") as writer:
        for n, each in enumerate(times):
            writer.write({"device": f"d{n % 3}", "at": each * second, "n": n}).result()
    counts = (
        source(spark, store, maxEventsPerTrigger=2)
        .withWatermark("at", "5 seconds")
        .groupBy(F.window("at", "10 seconds").alias("w"))
        .agg(F.count("*").alias("events"))
        .selectExpr("unix_micros(w.end) as ends", "events")
    )
    window = StatementWindow("at", 10 * second, 10 * second)
    account = LateEventsSpec(store.streams.get("s/late").id, {store.streams.get("s/in").id: "at"}, (window,))
    done = copy(counts, store, tmp_path / "ck", stream="s/counts", create="true", late=to_json_option(account))
    late = table(store, "s/late")
    dropped = sum(each.stateOperators[0].numRowsDroppedByWatermark for each in done if each.stateOperators)
    assert late.num_rows >= dropped > 0
    assert pa.compute.all(pa.compute.less(late.column("at"), late.column("_watermark"))).as_py()
    found = table(store, "s/counts")
    closed = dict(zip(found.column("ends").to_pylist(), found.column("events").to_pylist(), strict=True))
    late_times = [value // second for value in late.column("at").cast(pa.int64()).to_pylist()]
    for end in range(10 * second, max(closed) + 1, 10 * second):
        there = sum(end - 10 * second <= each * second < end for each in times)
        too_late = sum(end - 10 * second <= each * second < end for each in late_times)
        assert closed.get(end, 0) + too_late == there
    assert_clean(store)


_KILLED = """
import os, signal, sys
from anabranch.spark import session, sink
from anabranch.spark.options import WriteOptions
from pyspark_anabranch import DefaultSource

url, checkpoint, number = sys.argv[1:]

class Deadly(sink.StreamWriter):
    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        if batchId == int(number):
            for victim in victims:
                os.kill(victim, signal.SIGKILL)

class Source(DefaultSource):
    @classmethod
    def name(cls):
        return "deadly"
    def streamWriter(self, schema, overwrite):
        return Deadly(WriteOptions.of(self.options), schema, overwrite)

spark = session(name="killed")
victims = [os.getpid(), spark.sparkContext._gateway.proc.pid]  # the driver's two halves
spark.dataSource.register(Source)
frame = spark.readStream.format("anabranch").options(stream="s/in", maxEventsPerTrigger="10").load(url)
query = frame.writeStream.format("deadly").options(path=url, stream="s/out", checkpointLocation=checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.chaos
def test_a_driver_killed_between_publishing_and_sparks_own_log_doubles_nothing(
    spark: SparkSession, store: ab.Store, tmp_path: Path
) -> None:
    write(store, 0, 40, commits=4)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, store.url, str(tmp_path / "ck"), "1"],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = numbers(store, "s/out")
    assert published == list(range(20))
    assert not (tmp_path / "ck" / "commits" / "1").exists()
    assert json.loads((tmp_path / "ck" / "metadata").read_text())["id"]

    copy(source(spark, store, maxEventsPerTrigger=10), store, tmp_path / "ck")
    assert numbers(store, "s/out") == list(range(40))
    assert list(store.check()) == []


def test_rows_that_break_a_check_fail_the_job_and_nothing_is_written(spark: SparkSession, store: ab.Store) -> None:
    store.streams.add_check("s/out", "small", "n < 15")
    with pytest.raises(PySparkException, match=r"breaks the check 'small' \(n < 15\): n = 15"):
        save(events(spark, 10, 6), store)
    save(events(spark, 10, 5), store)
    assert numbers(store, "s/out") == list(range(10, 15))
    assert_clean(store)


def test_what_breaks_a_check_with_a_stream_of_violations_goes_there_once(spark: SparkSession, store: ab.Store) -> None:
    store.streams.add_check("s/out", "small", "n < 15", violations="s/large")
    for _ in range(2):  # as Spark repeats a batch whose commit it has not noted
        save(events(spark, 10, 8), store, queryId="q", batch="0")
    assert numbers(store, "s/out") == list(range(10, 15))
    assert numbers(store, "s/large") == [15, 16, 17]
    with store.reader("s/large") as reader:
        assert {event.body["_check"] for event in reader} == {"small"}
    assert_clean(store)
