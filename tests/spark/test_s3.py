"""Spark over a store whose bytes are in S3: history by Spark's own reader, checkpoints in the bucket."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import urllib.request
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument, StoreUnavailable
from anabranch.spark import read
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.pipelines.admin import reset
from anabranch.spark.pipelines.checkpoint_places import checkpoint_root
from anabranch.spark.pipelines.run import run
from tests.postgres_server import drop
from tests.postgres_server import fresh_url as fresh_catalog
from tests.s3_server import Exchange, Proxy, Spoil, emulator, fresh_url
from tests.spark.pipelines import COUNTS, counted, expected, put, rows
from tests.spark.pipelines import SCHEMA as MEASUREMENTS
from tests.spark.pipelines import new_store as new_measurements
from tests.spark.streams import SCHEMA, by_place, numbers, table, write
from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_buckets = itertools.count()


def fresh_bucket() -> str:
    """A bucket of one test: Hadoop opens each in one way only."""
    name = f"anabranch-spark-{os.getpid()}-{next(_buckets)}"
    made = urllib.request.Request(f"http://127.0.0.1:{emulator().port}/{name}", method="PUT")
    with urllib.request.urlopen(made, timeout=PATIENCE_S):
        return name


@contextmanager
def filled(folder: Path, url: str) -> Iterator[ab.Store]:
    """A store with a stream of which the beginning is in Parquet and the end is not."""
    with ab.connect(folder / "river", blobs=url, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/in", schema=SCHEMA, key="device", time="at", scaling=2)
        write(store, 0, 5000, commits=2)
        store.compact(force=True)
        write(store, 5000, 500)
        yield store


def plan(frame: DataFrame) -> str:
    """What Spark says of how it will run, in all detail."""
    return str(frame._jdf.queryExecution().toString())


def told(spark: SparkSession, store: ab.Store) -> tuple[DataFrame, list[str]]:
    """The stream, and what was said when it was read."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        frame = read(spark, store, "s/in")
    return frame, [str(each.message) for each in said]


def assert_complete(frame: DataFrame, store: ab.Store) -> None:
    wanted = table(store)
    assert by_place(frame, wanted.column_names).cast(wanted.schema).equals(wanted)


# reading


@pytest.mark.slow
def test_history_in_a_bucket_is_scanned_by_spark_itself_beside_what_is_fresh(
    s3_spark: SparkSession, tmp_path: Path
) -> None:
    with filled(tmp_path, fresh_url()) as store:
        frame, said = told(s3_spark, store)
        assert said == []
        assert "FileScan parquet" in plan(frame)
        assert "s3a://" in plan(frame)
        assert_complete(frame, store)
        # The data source, which reads all of it through Python, gives the same.
        assert store.addresses is not None and store.addresses.blobs is not None
        source = s3_spark.read.format("anabranch").option("blobs", store.addresses.blobs)
        through_python = source.option("stream", "s/in").load(store.addresses.url)
        assert "FileScan" not in plan(through_python)
        assert_complete(through_python, store)


def test_only_history_may_lie_in_a_bucket(s3_spark: SparkSession, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", history=fresh_url(), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/in", schema=SCHEMA, key="device", time="at")
        write(store, 0, 1000)
        store.compact(force=True)
        frame = read(s3_spark, store, "s/in")
        assert "s3a://" in plan(frame)
        assert_complete(frame, store)


@pytest.mark.slow
def test_a_session_without_the_client_reads_through_python_and_says_so_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    client = hadoop.get("fs.s3a.impl")
    with filled(tmp_path, fresh_url()) as store:
        hadoop.set("fs.s3a.impl", "org.apache.hadoop.fs.s3a.NotHere")
        try:
            frame, said = told(spark, store)
            assert len(said) == 1
            assert "is read through Python, which is slower" in said[0]
            assert "spark.jars.packages=org.apache.hadoop:hadoop-aws:3." in said[0]
            assert "FileScan" not in plan(frame)
            assert_complete(frame, store)
            assert told(spark, store)[1] == []
            with pytest.raises(
                InvalidArgument, match=r"can't keep checkpoints in s3a://.* Or pass checkpoints= with a folder"
            ):
                run(new_measurements(tmp_path / "m"), COUNTS, name="p", spark=spark, checkpoints=fresh_url())
        finally:
            hadoop.set("fs.s3a.impl", client)


def test_one_bucket_by_two_ways_is_read_through_python_the_second_time(s3_spark: SparkSession, tmp_path: Path) -> None:
    bucket = fresh_bucket()
    with filled(tmp_path / "one", fresh_url(bucket=bucket)) as store:
        assert "s3a://" in plan(read(s3_spark, store, "s/in"))
    with Proxy() as proxy, filled(tmp_path / "two", fresh_url(bucket=bucket, port=proxy.port)) as store:
        frame, said = told(s3_spark, store)
        assert len(said) == 1 and "in another way already" in said[0]
        assert_complete(frame, store)


def test_credentials_that_spark_may_not_read_with_are_one_error_without_a_secret(
    s3_spark: SparkSession, tmp_path: Path
) -> None:
    def refuse_java(exchange: Exchange) -> Spoil | None:
        return Spoil(403, code="AccessDenied") if b"aws-sdk-java" in exchange.headers else None

    with Proxy() as proxy, filled(tmp_path, fresh_url(bucket=fresh_bucket(), port=proxy.port)) as store:
        proxy.spoil = refuse_java
        with pytest.raises(StoreUnavailable, match=r"can't read the history in s3a://.* its credentials") as caught:
            read(s3_spark, store, "s/in")
        assert "\n" not in str(caught.value)
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


def test_secrets_stand_in_no_plan_and_in_no_setting(s3_spark: SparkSession, tmp_path: Path) -> None:
    with filled(tmp_path, fresh_url()) as store:
        frame = read(s3_spark, store, "s/in")
        shown = [plan(frame), *map(str, s3_spark.sparkContext.getConf().getAll()), str(s3_spark.conf.getAll)]
        assert not [text for text in shown if os.environ["AWS_SECRET_ACCESS_KEY"] in text]


@pytest.mark.slow
def test_a_private_authority_of_the_url_is_trusted_by_spark_too(s3_spark: SparkSession, tmp_path: Path) -> None:
    of_server = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE"
    for name, more in (("ca", "-subj /CN=ca"), ("server", f"-CA ca.crt -CAkey ca.key {of_server}")):
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 {more}"
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    with Proxy(tmp_path / "server.crt", tmp_path / "server.key") as proxy:
        options = f"&ca={tmp_path / 'ca.crt'}"
        url = fresh_url(bucket=fresh_bucket(), port=proxy.port, scheme="https", options=options)
        with filled(tmp_path, url) as store:
            frame = read(s3_spark, store, "s/in")
            assert "s3a://" in plan(frame)
            assert_complete(frame, store)


# checkpoints


def test_with_postgresql_checkpoints_lie_beside_the_blobs_in_the_bucket() -> None:
    catalog, blobs = fresh_catalog(), fresh_url()
    with ab.connect(catalog, blobs=blobs, create=True) as store:
        root = checkpoint_root(store, "means")
    drop(catalog)
    prefix, _, options = blobs.partition("?")
    assert root.text == f"{prefix}/pipelines/means?{options}"
    assert root.for_spark == "s3a" + prefix.removeprefix("s3") + "/pipelines/means"


@pytest.mark.slow
def test_a_streaming_query_with_its_checkpoint_in_a_bucket_goes_on_where_it_stopped(
    s3_spark: SparkSession, tmp_path: Path
) -> None:
    with filled(tmp_path, fresh_url()) as store:
        assert store.addresses is not None and store.addresses.blobs is not None
        blobs = store.addresses.blobs
        checkpoint = "s3a://" + blobs.partition("?")[0].removeprefix("s3://") + "/checkpoint"
        for stop in (5500, 6000):
            source = s3_spark.readStream.format("anabranch").option("blobs", blobs).option("stream", "s/in")
            query = (
                source.load(store.addresses.url)
                .writeStream.format("anabranch")
                .options(path=store.addresses.url, blobs=blobs, stream="s/out", create="true", key="device")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)
            assert numbers(store, "s/out") == list(range(stop))
            write(store, stop, 500)
        assert list(store.check()) == []


def wait_until(done: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    def ended() -> bool:
        assert child.poll() is None, child.communicate()
        return done()

    until(ended, 240)


@pytest.mark.slow
def test_a_killed_pipeline_goes_on_from_its_checkpoints_in_a_bucket(s3_spark: SparkSession, tmp_path: Path) -> None:
    seconds, url = 300, fresh_url()
    with new_measurements(tmp_path / "river") as store:
        unwritten = deque(range(0, seconds, 10))

        def write_on(times: int) -> None:
            for first in [unwritten.popleft() for _ in range(times)]:
                put(store, range(first, first + 10))

        write_on(10)
        (tmp_path / "p.sql").write_text(COUNTS)
        arguments = ["pipeline", "run", str(tmp_path / "p.sql"), "--checkpoints", url, "--events-max", "20"]
        child = subprocess.Popen(
            [sys.executable, "-m", "anabranch.cli.main", *arguments],
            env={**os.environ, "ANABRANCH_STORE": store.url},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

        def under_way() -> bool:
            """Some of it is counted, and there is more to do: not all is written before the kill."""
            write_on(len(unwritten) > 6)
            return store.streams.exists("out/counts") and counted(store).total() > 3

        try:
            wait_until(under_way, child)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
        write_on(len(unwritten))
        wanted = expected(store, until=seconds - 1 - 5)
        assert counted(store).total() < wanted.total()

        with run(store, COUNTS, name="p", spark=s3_spark, once=True) as pipeline:
            assert pipeline.await_termination(240)
            place = checkpoint_folder(pipeline.checkpoints["out/counts"], store.runtime)
        assert counted(store) == wanted
        assert list(store.check()) == []
        assert place.for_spark.startswith("s3a://") and place.for_spark.endswith("/p/out.counts/0001")
        assert place.names("commits")
        assert not (tmp_path / "river" / "pipelines").exists()
        reset(store, "p")
        assert not place.names("commits") and not place.names("offsets")


@pytest.mark.slow
def test_statements_that_read_one_stream_fetch_each_of_its_commits_once(spark: SparkSession, tmp_path: Path) -> None:
    sql = "; ".join(
        f"CREATE STREAM out.copy{n} AS SELECT device, at, celsius FROM STREAM iot.sensors" for n in range(4)
    )
    with Proxy() as proxy, ab.connect(tmp_path / "river", blobs=fresh_url(port=proxy.port), create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/sensors", schema=MEASUREMENTS, key="device", time="at", scaling=1)
        put(store, range(4000))
        with run(store, sql, name="copies", spark=spark, checkpoints=str(tmp_path / "checkpoints")) as pipeline:
            until(pipeline.caught_up)
            for number in range(1, 6):  # large enough not to be kept in the catalog
                put(store, range(number * 4000, number * 4000 + 4000))
                until(pipeline.caught_up)
            fetched = Counter(each.path for each in proxy.requests if each.method == "GET" and "/commits/" in each.path)
        assert sorted(fetched.values()) == [1] * 6
        for number in range(4):
            assert len(rows(store, f"out/copy{number}")) == 24_000
