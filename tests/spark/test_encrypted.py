"""Spark over an encrypted store: the same rows, read through the store, since Spark's own reader has no keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import InvalidArgument, KeyMissing
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import MasterKeys, new_key_line
from anabranch.spark import read
from anabranch.spark.pipelines.run import run
from anabranch.spark.source import frame as frames
from tests.spark import pipelines
from tests.spark.streams import SCHEMA, by_place, rows, table, write

pytestmark = pytest.mark.spark


@pytest.fixture
def keys(tmp_path: Path) -> str:
    file = tmp_path / "river.keys"
    file.write_text(new_key_line("k", SystemIds()))
    file.chmod(0o600)
    return f"file:{file}"


@pytest.fixture
def store(tmp_path: Path, keys: str) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "store", keys=keys, create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/in", schema=SCHEMA, key="device", time="at", scaling=2)
        yield made


@pytest.mark.slow
def test_history_is_read_through_the_store(
    spark: SparkSession, store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, 0, 3000, commits=3)
    store.compact(force=True)
    write(store, 3000, 100)
    for limit in (frames._LOCAL_BYTES_MAX, 0):  # by this process, and by tasks
        monkeypatch.setattr(frames, "_LOCAL_BYTES_MAX", limit)
        frame = read(spark, store, "s/in")
        assert "FileScan parquet" not in str(frame._jdf.queryExecution().executedPlan().toString())
        assert by_place(frame).cast(table(store).schema).equals(table(store))


@pytest.mark.slow
def test_the_data_source_takes_and_gives_events_with_keys_and_says_so_without(
    spark: SparkSession, store: ab.Store, keys: str
) -> None:
    write(store, 0, 10)
    source = {"path": store.url, "stream": "s/in"}
    assert spark.read.format("anabranch").options(**source, encryptionKeys=keys).load().count() == 10
    events = spark.createDataFrame(rows(10, 5).to_pandas()).selectExpr("device", "cast(at as timestamp) at", "n")
    events.write.format("anabranch").options(**source, encryptionKeys=keys).mode("append").save()
    assert table(store).num_rows == 15
    with pytest.raises((PySparkException, KeyMissing), match="encrypted"):
        spark.read.format("anabranch").options(**source).load().count()
    with pytest.raises(KeyMissing):
        read(spark, store.url, "s/in")


@pytest.mark.slow
def test_a_pipeline_runs_over_an_encrypted_store(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    with ab.connect(tmp_path / "iot", keys=keys, create=True) as store:
        store.scopes.create("iot")
        store.streams.create(pipelines.SOURCE, schema=pipelines.SCHEMA, key="device", time="at", scaling=2)
        pipelines.put(store, range(0, 60, 2))
        store.compact(force=True)
        pipelines.put(store, range(60, 120, 3))
        ended = run(store, pipelines.COUNTS, name="p", spark=spark, once=True)
        assert ended.await_termination(240)
        assert pipelines.counted(store) == pipelines.expected(store, until=110)
        assert list(store.check()) == []


def test_a_key_service_of_this_process_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    service = MasterKeys({"k": bytes(32)}, SystemIds())
    with ab.connect(tmp_path / "other", keys=service, create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/in", schema=SCHEMA, key="device", time="at")
        with pytest.raises(InvalidArgument, match="key service"):
            read(spark, made, "s/in")
