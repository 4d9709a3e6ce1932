"""Spark reads and writes streams through brokers, without access to the store's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import InvalidArgument, StoreNotFound
from anabranch.spark.stores import BrokerAccess, chosen_places
from anabranch.store import StoreAddresses
from tests.server.kit import NO_GRPC, BrokerProcess
from tests.spark.streams import SCHEMA, by_place, new_store, numbers, rows, table, write
from tests.waiting import until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("brokers")


@pytest.fixture(scope="module")
def brokers(folder: Path) -> Iterator[list[BrokerProcess]]:
    """Two brokers of one store; a test may kill the first."""
    new_store(folder).close()
    with (
        BrokerProcess(folder / "store", *NO_GRPC, folder=folder) as first,
        BrokerProcess(folder / "store", *NO_GRPC, folder=folder) as second,
    ):
        yield [first, second]


@pytest.fixture(scope="module")
def address(brokers: list[BrokerProcess]) -> str:
    ports = [str(each.addresses["flight"]).rpartition(":")[2] for each in brokers]
    return "anabranch://" + ",".join(f"127.0.0.1:{port}" for port in ports)


@pytest.fixture(scope="module")
def store(brokers: list[BrokerProcess], folder: Path) -> Iterator[ab.Store]:
    """The store itself, to write to and to compare with."""
    with ab.connect(folder / "store") as opened:
        yield opened


@pytest.fixture
def source(store: ab.Store, request: pytest.FixtureRequest) -> str:
    """A new stream."""
    name = f"s/{request.node.name}"
    store.streams.create(name, schema=SCHEMA, key="device", time="at", scaling=2)
    return name


def batch(spark: SparkSession, address: str, stream: str, **options: Any) -> DataFrame:
    return spark.read.format("anabranch").options(stream=stream, **options).load(address)


def copy(spark: SparkSession, address: str, stream: str, target: str, checkpoint: Path, **options: Any) -> list[Any]:
    """Run a streaming query from one stream to another until all is done; what Spark tells of its batches."""
    frame = spark.readStream.format("anabranch").options(stream=stream, **options).load(address)
    written = frame.writeStream.format("anabranch").options(stream=target, create="true", path=address)
    query = written.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def test_a_batch_read_yields_the_rows_of_the_store(
    spark: SparkSession, address: str, store: ab.Store, source: str
) -> None:
    write(store, 0, 600, commits=3, stream=source)
    store.streams.scale(source, 3)
    write(store, 600, 200, stream=source)
    assert by_place(batch(spark, address, source)).equals(table(store, source))
    some = batch(spark, address, source, columns="n", keys="d1, d2", start=str(store.cuts.after(source, events=100)))
    expected = table(store, source, start=store.cuts.after(source, events=100)).to_pylist()
    wanted = sorted(each["n"] for each in expected if each["device"] in ("d1", "d2"))
    assert sorted(row.n for row in some.collect()) == wanted
    assert batch(spark, address, source).count() == 800


def test_times_and_pointers_are_resolved_by_the_broker(
    spark: SparkSession, address: str, store: ab.Store, source: str
) -> None:
    write(store, 0, 100, commits=4, stream=source)
    with store.reader(source) as reader:
        pointer = list(reader)[50].pointer
    for place, options in ((str(pointer), {}), ("1970-01-01T00:00:00.050Z", {"by": "event"})):
        found = batch(spark, address, source, start=place, **options)
        assert by_place(found).equals(table(store, source, start=place, **options))


@pytest.mark.slow
def test_a_saved_dataframe_is_appended_or_replaces_what_was_there(
    spark: SparkSession, address: str, store: ab.Store, source: str
) -> None:
    frame = spark.createDataFrame(rows(0, 500).to_pandas()).repartition(3)
    writer = frame.write.format("anabranch").option("stream", source)
    writer.mode("append").save(address)
    writer.mode("append").save(address)
    assert numbers(store, source) == sorted([*range(500), *range(500)])
    writer.mode("overwrite").save(address)
    assert numbers(store, source) == list(range(500))
    assert store.transactions.list() == []


@pytest.mark.slow
def test_a_failed_job_leaves_nothing(spark: SparkSession, address: str, store: ab.Store, source: str) -> None:
    # The task that fails waits first: Spark forgets what a task has staged that ends while the job fails, and only its lease
    # ends that.
    waits = "if(id = 500, java_method('java.lang.Thread', 'sleep', 4000L), null)"
    frame = spark.range(0, 1000, numPartitions=2).selectExpr(
        f"coalesce({waits}, 'd') as device",
        "timestamp_millis(id) as at",
        "if(id = 999, raise_error('no more'), id) as n",
    )
    with pytest.raises(PySparkException, match="no more"):
        frame.write.format("anabranch").option("stream", source).mode("append").save(address)
    assert numbers(store, source) == []
    assert store.transactions.list(ended=False) == []


@pytest.mark.slow
def test_a_query_whose_batch_is_repeated_doubles_nothing(
    spark: SparkSession, address: str, store: ab.Store, source: str, tmp_path: Path
) -> None:
    target, checkpoint = f"{source}-out", tmp_path / "checkpoint"
    write(store, 0, 400, commits=4, stream=source)
    ran = copy(spark, address, source, target, checkpoint, maxEventsPerTrigger="100")
    assert len([each for each in ran if each.numInputRows]) == 4
    assert numbers(store, target) == list(range(400))
    commits = sorted(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda each: int(each.name))
    commits[-1].unlink()  # as if the driver had been killed before Spark noted its last batch
    checkpoint.joinpath("commits", f".{commits[-1].name}.crc").unlink(missing_ok=True)
    write(store, 400, 50, stream=source)
    copy(spark, address, source, target, checkpoint, maxEventsPerTrigger="100")
    assert numbers(store, target) == list(range(450))
    assert store.transactions.list(ended=False) == []


@pytest.mark.slow
def test_what_was_truncated_is_an_error_or_is_skipped(
    spark: SparkSession, address: str, store: ab.Store, source: str, tmp_path: Path
) -> None:
    write(store, 0, 100, stream=source)
    copy(spark, address, source, f"{source}-out", tmp_path / "strict")
    write(store, 100, 100, stream=source)
    cut = store.cuts.tail(source)
    write(store, 200, 100, stream=source)
    store.streams.truncate(source, cut)
    with pytest.raises(PySparkException, match="truncated"):
        copy(spark, address, source, f"{source}-out", tmp_path / "strict")
    copy(spark, address, source, f"{source}-out", tmp_path / "strict", failOnDataLoss="false")
    assert numbers(store, f"{source}-out") == [*range(100), *range(200, 300)]


@pytest.mark.slow
def test_a_query_goes_on_at_another_broker_and_loses_and_doubles_nothing(
    spark: SparkSession, address: str, store: ab.Store, brokers: list[BrokerProcess], source: str, tmp_path: Path
) -> None:
    target = f"{source}-out"
    write(store, 0, 500, commits=5, stream=source)
    frame = spark.readStream.format("anabranch").options(stream=source, maxEventsPerTrigger=100).load(address)
    written = frame.writeStream.format("anabranch").options(stream=target, create="true", path=address)
    query = written.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        until(lambda: store.streams.exists(target) and numbers(store, target) != [])
        brokers[0].kill()  # kill -9, in mid-stream
        write(store, 500, 500, commits=5, stream=source)
        query.processAllAvailable()
    finally:
        query.stop()
    assert numbers(store, target) == list(range(1000))


def test_what_is_wrong_is_said_clearly_and_no_token_is_shown(
    spark: SparkSession, address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for options, message in (
        ({"token": "s3cret-token"}, "Spark shows options in its plans and logs"),
        ({"blobs": "s3://bucket"}, "which opens the store itself"),
        ({"stream": "s/none"}, "s/none"),
    ):
        with pytest.raises(PySparkException, match=message) as raised:
            batch(spark, address, **{"stream": "s/in", **options}).collect()
        assert "s3cret" not in str(raised.value)
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    frame = batch(spark, address, "s/in", tokenFile=str(token))
    assert frame.collect() == []
    assert "s3cret" not in frame._jdf.queryExecution().toString()
    assert "s3cret" not in caplog.text


# natively, beside the brokers


def ways(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "spark_path"]


def test_the_way_is_chosen_by_what_the_driver_finds(
    address: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "anabranch.spark")
    own = StoreAddresses.of(str(folder / "store"))
    with new_store(tmp_path) as another:
        ident = another.id
    other, missing = StoreAddresses.of(str(tmp_path / "store")), StoreAddresses.of(str(tmp_path / "none"))
    for native, access, taken, reason in (
        (None, "auto", False, "through its brokers: option 'nativePath' does not say where the store is"),
        (own, "auto", True, "natively: the driver reaches the brokers' store there"),
        (own, "broker", False, "through its brokers: option 'access' says so"),
        (own, "native", True, "natively: option 'access' says so"),
        (other, "auto", False, f"through its brokers: 'nativePath' is another store .* {ident}, and anabranch://"),
        (missing, "auto", False, "through its brokers: .*none"),
    ):
        caplog.clear()
        found = chosen_places(BrokerAccess(address, native=native, access=access))  # type: ignore[arg-type]
        assert found == (native if taken else BrokerAccess(address))
        (said,) = ways(caplog)
        assert re.match(f"the store of {address} is used {reason}", said)
    for native, error in ((other, InvalidArgument), (missing, StoreNotFound)):
        with pytest.raises(error):
            chosen_places(BrokerAccess(address, native=native, access="native"))


@pytest.mark.slow
def test_a_query_that_goes_natively_needs_its_brokers_no_more(
    spark: SparkSession, folder: Path, store: ab.Store, source: str, tmp_path: Path
) -> None:
    write(store, 0, 100, stream=source)
    place = str(folder / "store")
    with BrokerProcess(folder / "store", *NO_GRPC, folder=tmp_path) as broker:
        address = "anabranch://" + str(broker.addresses["flight"]).rpartition("/")[2]
        assert batch(spark, address, source, nativePath=place).count() == 100
        frame = spark.readStream.format("anabranch").options(stream=source, nativePath=place).load(address)
        written = frame.writeStream.format("anabranch").options(stream=f"{source}-out", create="true", path=place)
        query = written.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            until(lambda: store.streams.exists(f"{source}-out") and len(numbers(store, f"{source}-out")) == 100)
            broker.kill()
            write(store, 100, 100, stream=source)
            query.processAllAvailable()
        finally:
            query.stop()
    assert numbers(store, f"{source}-out") == list(range(200))


@pytest.mark.slow
def test_a_batch_that_is_repeated_another_way_doubles_nothing(
    spark: SparkSession, address: str, folder: Path, store: ab.Store, source: str, tmp_path: Path
) -> None:
    target, checkpoint = f"{source}-out", tmp_path / "checkpoint"
    native = {"nativePath": str(folder / "store")}

    def run(**options: Any) -> None:
        frame = spark.readStream.format("anabranch").options(stream=source, **options).load(address)
        written = frame.writeStream.format("anabranch").options(stream=target, create="true", path=address, **options)
        query = written.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    write(store, 0, 100, stream=source)
    for count, options in enumerate((native, {**native, "access": "broker"}, {**native, "access": "native"}), 1):
        run(**options)
        assert numbers(store, target) == list(range(100 * count))
        commits = sorted(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda each: int(each.name))
        commits[-1].unlink()  # as if the driver had been killed before Spark noted its last batch
        checkpoint.joinpath("commits", f".{commits[-1].name}.crc").unlink(missing_ok=True)
        write(store, 100 * count, 100, stream=source)
    assert store.transactions.list(ended=False) == []


def test_natively_or_not_at_all(spark: SparkSession, address: str, source: str, tmp_path: Path) -> None:
    new_store(tmp_path).close()
    with pytest.raises(PySparkException, match="is another store than that of the brokers"):
        batch(spark, address, source, access="native", nativePath=str(tmp_path / "store")).collect()
    assert batch(spark, address, source, nativePath=str(tmp_path / "store")).collect() == []
