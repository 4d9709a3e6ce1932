"""Streams as a source of Spark: what is read, in which batches, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import anabranch as ab
from anabranch.model.ids import SegmentId
from tests.spark.streams import SCHEMA, by_place, new_store, rows, table, write
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.spark


def batch(spark: SparkSession, store: ab.Store, **options: Any) -> DataFrame:
    return spark.read.format("anabranch").options(stream="s/in", **options).load(store.url)


def stream(spark: SparkSession, store: ab.Store, **options: Any) -> DataFrame:
    return spark.readStream.format("anabranch").options(stream="s/in", **options).load(store.url)


class Batches:
    """Collects what each micro-batch of a query holds."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.frame = frame
        self.checkpoint = str(checkpoint)
        self.found: list[tuple[int, list[Any]]] = []
        self.fail = False

    def keep(self, frame: DataFrame, number: int) -> None:
        found = frame.orderBy("_segment", "_offset").collect()
        self.found.append((number, found))
        if self.fail:
            raise RuntimeError("the sink fails, as the test wants")

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self.frame.writeStream.foreachBatch(self.keep).option("checkpointLocation", self.checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> list[list[Any]]:
        """Run until all that is there now is read; the batches of this run."""
        before = len(self.found)
        self.start(availableNow=True).awaitTermination()
        return [found for _, found in self.found[before:]]


def failure(frame: DataFrame, checkpoint: Path) -> str:
    with pytest.raises(PySparkException) as raised:
        Batches(frame, checkpoint).run()
    return str(raised.value)


# batch reads


def test_a_batch_read_yields_the_rows_of_a_reader(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path, segments=3) as store:
        write(store, 0, 100, commits=5)
        frame = batch(spark, store)
        assert frame.schema.simpleString() == (
            "struct<device:string,at:timestamp,n:bigint,_segment:bigint,_offset:bigint,_appended:timestamp>"
        )
        assert by_place(frame).equals(table(store))
        middle = store.cuts.at("s/in", 40_000, by="event")
        early, late = batch(spark, store, end=str(middle)), batch(spark, store, start=str(middle), columns="n")
        assert early.count() + late.count() == 100
        assert late.columns == ["n", "_segment", "_offset", "_appended"]
        later = batch(spark, store, start="1970-01-01T00:00:00.040Z", by="event")
        assert later.orderBy("n").toArrow().column("n").to_pylist() == list(range(40, 100))


def test_types_that_spark_lacks_are_widened_or_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("device", pa.string()),
            ("small", pa.uint8()),
            ("large", pa.uint64()),
            ("half", pa.float16()),
            ("nested", pa.list_(pa.struct([("of", pa.uint32()), ("when", pa.timestamp("us"))]))),
            ("pairs", pa.map_(pa.string(), pa.uint16())),
            ("money", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("raw", pa.binary()),
        ]
    )
    with new_store(tmp_path, schema=schema) as store:
        store.streams.create("s/clock", schema=pa.schema([("key", pa.string()), ("noon", pa.time64("us"))]))
        row = {"device": "a", "small": 255, "large": 2**64 - 1, "half": 0.5, "money": Decimal("1.50"), "raw": b"\x00"}
        row |= {"nested": [{"of": 2**32 - 1, "when": 1}], "pairs": [("x", 65535)], "day": 1}
        with store.writer("s/in") as writer:
            writer.write_batch(pa.Table.from_pylist([row, {"device": "b"}], schema))
        found = {each["device"]: each.asDict(recursive=True) for each in batch(spark, store).collect()}
        assert (found["a"]["small"], found["a"]["large"], found["a"]["half"]) == (255, Decimal(2**64 - 1), 0.5)
        assert (found["a"]["nested"][0]["of"], found["a"]["pairs"], found["a"]["money"]) == (
            2**32 - 1,
            {"x": 65535},
            Decimal("1.50"),
        )
        assert bytes(found["a"]["raw"]) == b"\x00"
        assert [found["b"][name] for name in schema.names[1:]] == [None] * 8

        clock = spark.read.format("anabranch").option("stream", "s/clock")
        with pytest.raises(PySparkException, match=r"column 'noon' of type time64\[us\] has no counterpart in Spark"):
            clock.load(store.url)
        assert clock.option("columns", "key").load(store.url).count() == 0


def test_only_the_events_of_the_wanted_keys_are_read(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("device", pa.int64()), ("n", pa.int64())])
    with new_store(tmp_path, segments=8, schema=schema) as store:
        with store.writer("s/in") as writer:
            writer.write_batch(pa.table({"device": [*range(50), None], "n": list(range(51))}))
        found = batch(spark, store, keys="[7, 9, 1000]", columns="n")
        assert sorted(row["n"] for row in found.collect()) == [7, 9]
        assert batch(spark, store, keys="7").rdd.getNumPartitions() == 1
        store.streams.create("s/keyless", schema=SCHEMA)
        keyless = spark.read.format("anabranch").options(stream="s/keyless", keys="a").load(store.url)
        with pytest.raises(PySparkException, match="'s/keyless' has no routing key"):
            keyless.count()


@pytest.mark.slow
def test_what_is_wrong_with_a_read_is_said_clearly(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for options, message in [
            ({"stream": "s/none"}, "stream 's/none' not found"),
            ({"stream": "none"}, "'none' is not a stream name"),
            ({"columns": "n, m"}, "unknown column 'm'; the stream has device, at, n"),
            ({"maxEventPerTrigger": "5"}, "did you mean 'maxEventsPerTrigger'?"),
            ({"maxEventsPerTrigger": "0"}, "an integer of at least 1"),
            ({"create": "true"}, "option 'create' can't be used when reading from a stream"),
            ({"by": "time"}, "expected option 'by' as append or event"),
        ]:
            with pytest.raises(PySparkException) as raised:
                spark.read.format("anabranch").options(**{"stream": "s/in", **options}).load(store.url)
            assert message in str(raised.value)
        for start, message in [("yesterday", "is not a time"), ("0" * 48, "belongs to stream")]:
            with pytest.raises(PySparkException, match=message):
                batch(spark, store, start=start).count()
        with pytest.raises(PySparkException, match="no store found in"):
            spark.read.format("anabranch").option("stream", "s/in").load(str(tmp_path / "nowhere"))


# micro-batches


@pytest.mark.slow
def test_no_event_is_lost_or_out_of_order_across_splits_and_merges(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path, segments=2) as store:
        write(store, 0, 60, commits=6)
        store.streams.scale("s/in", split="0.0")
        write(store, 60, 60, commits=6)
        halves = [each.id for each in store.streams.view("s/in").current][:2]
        store.streams.scale("s/in", merge=halves)
        write(store, 120, 60, commits=6)
        view = store.streams.view("s/in")

        found = Batches(stream(spark, store, maxEventsPerTrigger=25), tmp_path / "ck").run()
        assert all(0 < len(each) <= 25 for each in found)
        assert sorted(row["n"] for each in found for row in each) == list(range(180))
        last: dict[str, int] = defaultdict(lambda: -1)
        for each in found:
            held = {SegmentId.unpack(row["_segment"]) for row in each}
            assert not any(heir.id in held for segment in held for heir in view.successors(segment))
            for row in each:
                assert row["n"] > last[row["device"]]
                last[row["device"]] = row["n"]
        # What was appended together is read together: commits of ten events are never divided.
        assert all(len(each) % 10 == 0 for each in found)


def test_a_scale_does_not_let_one_segment_run_ahead_of_the_others(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path, segments=2) as store:
        write(store, 0, 50)
        store.streams.scale("s/in", split="0.0")
        write(store, 50, 50, commits=2)
        found = Batches(stream(spark, store), tmp_path / "ck").run()
        # Without a limit too: what follows the split would be late if the other segment were read to its end before.
        assert [sorted(row["n"] for row in each) for each in found] == [list(range(50)), list(range(50, 100))]


def test_a_restarted_query_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        batches = Batches(stream(spark, store), tmp_path / "ck")
        assert [len(each) for each in batches.run()] == [10]
        assert batches.run() == []
        write(store, 10, 5)
        assert [sorted(row["n"] for row in each) for each in batches.run()] == [list(range(10, 15))]
        assert sorted(row["n"] for _, each in batches.found for row in each) == list(range(15))


@pytest.mark.slow
def test_a_replay_of_the_first_batch_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        batches = Batches(stream(spark, store), tmp_path / "ck")
        batches.fail = True
        with pytest.raises(PySparkException):
            batches.run()
        write(store, 10, 10)
        batches.fail = False
        first, second = batches.run()
        assert batches.found[0] == (0, first)
        assert sorted(row["n"] for row in second) == list(range(10, 20))


@pytest.mark.slow
def test_a_query_that_began_at_the_tail_remembers_where_that_was(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        batches = Batches(stream(spark, store, start="tail"), tmp_path / "ck")
        batches.fail = True
        query = batches.start()
        # Spark begins with a batch of nothing, which fails here after its offsets were written down.
        with pytest.raises(PySparkException):
            query.awaitTermination(int(PATIENCE_S))
        write(store, 10, 10)
        batches.fail = False
        assert sorted(row["n"] for each in batches.run() for row in each) == list(range(10, 20))


def test_a_following_query_wakes_for_new_events_and_stops_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        batches = Batches(stream(spark, store, pollMs=60_000), tmp_path / "ck")
        query = batches.start()
        query.processAllAvailable()
        write(store, 10, 10)
        query.processAllAvailable()
        assert sorted(row["n"] for _, each in batches.found for row in each) == list(range(20))
        query.stop()
        assert query.exception() is None


def test_an_end_ends_a_stream_read(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        end = store.cuts.tail("s/in")
        write(store, 10, 10)
        found = Batches(stream(spark, store, end=str(end)), tmp_path / "ck").run()
        assert sorted(row["n"] for each in found for row in each) == list(range(10))


@pytest.mark.slow
def test_what_was_truncated_or_made_anew_is_an_error_and_no_silence(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        frame = stream(spark, store)
        Batches(frame, tmp_path / "ck").run()
        write(store, 10, 10)
        store.streams.truncate("s/in", store.cuts.tail("s/in"))
        assert "the position in 's/in' was truncated" in failure(frame, tmp_path / "ck")
        store.streams.delete("s/in")
        store.streams.create("s/in", schema=SCHEMA, key="device", time="at")
        assert "is not the one that this query began with" in failure(frame, tmp_path / "ck")


@pytest.mark.slow
def test_a_query_whose_columns_were_widened_says_so_and_goes_on_when_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with new_store(tmp_path, segments=1, schema=SCHEMA.set(2, pa.field("n", pa.int16()))) as store:
        write(store, 0, 3)
        query, frame = Batches(stream(spark, store), tmp_path / "checkpoint"), batch(spark, store)
        assert [[row.n for row in found] for found in query.run()] == [[0, 1, 2]]
        store.streams.create("s/wide", schema=SCHEMA, key="device", time="at")
        write(store, 1 << 40, 2, stream="s/wide")
        store.streams.append("s/wide", "s/in")
        told = "column 'n' of 's/in' is bigint now, and was smallint when this query began: start it again"
        assert told in failure(query.frame, tmp_path / "checkpoint")
        with pytest.raises(PySparkException, match="start it again"):
            frame.collect()
        query.frame = stream(spark, store)
        assert [row.n for found in query.run() for row in found] == [1 << 40, (1 << 40) + 1]


@pytest.mark.slow
def test_a_query_may_go_on_behind_what_was_truncated(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        write(store, 0, 10)
        query = Batches(stream(spark, store, failOnDataLoss="false"), tmp_path / "ck")
        assert sorted(row["n"] for each in query.run() for row in each) == list(range(10))
        write(store, 10, 10)
        store.streams.truncate("s/in", store.cuts.tail("s/in"))
        write(store, 20, 5)
        assert sorted(row["n"] for each in query.run() for row in each) == list(range(20, 25))
        query.fail = True  # the batch is planned, and what it holds goes before it is tried again
        write(store, 25, 5)
        with pytest.raises(PySparkException):
            query.run()
        query.fail = False
        store.streams.truncate("s/in", store.cuts.tail("s/in"))
        write(store, 30, 5)
        assert sorted(row["n"] for each in query.run() for row in each) == list(range(30, 35))


@pytest.mark.slow
def test_long_ranges_are_read_by_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    with new_store(tmp_path, segments=1) as store:
        with store.writer("s/in") as writer:
            writer.write_batch(rows(0, 400_000))
        frame = batch(spark, store)
        assert frame.rdd.getNumPartitions() > 2
        assert frame.selectExpr("count(*)", "sum(n)", "count(distinct _offset)").first() == (
            400_000,
            sum(range(400_000)),
            400_000,
        )
