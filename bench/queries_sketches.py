"""Sketches of windows in a pipeline, beside the same aggregates in Spark alone; and Bloom filters, beside Spark's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from bench.measure import in_turn, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SCHEMA: Final = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("user", pa.string()), ("ms", pa.int64())])
_SKETCHES: Final = {
    "distinct values (HLL)": "hll_sketch_agg(user)",
    "quantiles (KLL)": "kll_sketch_agg_bigint(ms)",
    "heavy hitters (top-k)": "approx_top_k_accumulate(user, 1000)",
    "frequencies (count-min)": "count_min_sketch(user, 0.01d, 0.95d, 1)",
}
_GROUPED: Final = "GROUP BY window(at, '1 minute'), device"
_BATCHES: Final = 4


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Both read the same events in micro-batches of the same size; the first, which starts workers, is not counted."""
    from anabranch.spark.session.session import session

    rows = setting.scaled(250_000, 2_000)
    files = setting.folder / "files"
    files.mkdir()
    with ab.connect(setting.folder / "store", create=True) as store:
        store.scopes.create("bench")
        store.streams.create("bench/requests", schema=_SCHEMA, key="device", time="at", scaling=2)
        for number in range(_BATCHES):
            table = _events(number * rows, rows)
            store.write("bench/requests", table)
            pq.write_table(table, files / f"{number}.parquet")
        spark, numbers = session(name="bench"), iter(range(1_000))
        try:
            results = []
            for name, aggregate in _SKETCHES.items():
                rounds = in_turn(
                    setting.scaled(3, 1),
                    lambda aggregate=aggregate: _ours(spark, store, aggregate, next(numbers), rows),  # type: ignore[misc]
                    lambda aggregate=aggregate: _bare(  # type: ignore[misc]
                        spark, files, aggregate, setting.folder / f"checkpoint-{next(numbers)}"
                    ),
                )
                results.append(
                    _result(name, rounds, "Spark from Parquet files to nowhere", f"{rows:,} rows a micro-batch")
                )
            results.append(_filters(spark, files, setting))
            return results
        finally:
            spark.stop()


def _result(name: str, rounds: Any, other: str, note: str) -> Result:
    return Result(
        "queries_sketches",
        f"sketches: {name}",
        "k rows/s",
        median(rounds.ours),
        median(rounds.other),
        other,
        rounds.ratio,
        rounds.spread,
        Target(Bound.AT_LEAST, 0.6),
        (note,),
    )


def _filters(spark: SparkSession, files: Path, setting: BenchmarkSetting) -> Result:
    """A filter of all users, of the same size: 32 KiB."""
    from anabranch.sketches.bloom import AGGREGATE, expression
    from anabranch.spark.pipelines.analyze import provide_functions

    provide_functions(spark, AGGREGATE)
    events = spark.read.parquet(str(files)).cache()
    rows = events.count()

    def rate(work: Any) -> float:
        return float(rows / seconds(work) / 1_000)

    def ours() -> float:
        return rate(lambda: events.selectExpr(f"{expression('user')} AS members").collect())

    def other() -> float:
        return rate(lambda: _java(events).stat().bloomFilter("user", 27_000, 8 * 32_768))

    ours(), other()
    rounds = in_turn(setting.scaled(5, 1), ours, other)
    events.unpersist()
    return _result("membership (Bloom)", rounds, "Spark's DataFrame.stat.bloomFilter", "a batch over cached rows")


def _java(frame: DataFrame) -> Any:
    return frame._jdf


def _events(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    devices, users = (
        pa.array([f"{kind}-{n}" for n in range(most)]) for kind, most in (("device", 100), ("user", 20_000))
    )
    return pa.table(
        {
            "device": devices.take(pa.array(numbers % 100)),
            "at": pa.array(1_700_000_000_000_000 + numbers * 1_000, TIME_TYPE),
            "user": users.take(pa.array(numbers * 7_919 % 20_000)),
            "ms": pa.array(numbers * 104_729 % 10_007),
        }
    )


def _ours(spark: SparkSession, store: ab.Store, aggregate: str, number: int, events_max: int) -> float:
    from anabranch.spark.pipelines.run import run as run_pipeline

    sql = (
        f"CREATE STREAM out.sketches_{number} WITH (key = device) AS SELECT window.end AS closed, device, {aggregate} AS sketch "
        f"FROM STREAM bench.requests {_GROUPED};"
    )
    pipeline = run_pipeline(store, sql, name=f"bench-{number}", spark=spark, once=True, events_max=events_max)
    assert pipeline.await_termination(600)
    return _rate(pipeline.queries[f"out/sketches_{number}"])


def _bare(spark: SparkSession, files: Path, aggregate: str, checkpoint: Path) -> float:
    (
        spark.readStream.schema("device STRING, at TIMESTAMP, user STRING, ms BIGINT")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(files))
        .withWatermark("at", "10 seconds")
        .createOrReplaceTempView("bench_requests")
    )
    query = (
        spark.sql(f"SELECT window.end AS closed, device, {aggregate} AS sketch FROM bench_requests {_GROUPED}")
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(600)
    return _rate(query)


def _rate(query: StreamingQuery) -> float:
    """Thousands of rows a second, of all batches but the first."""
    reports = [json.loads(each.json) for each in query.recentProgress][1:]
    reports = [each for each in reports if each["numInputRows"]]
    rows = sum(each["numInputRows"] for each in reports)
    return float(rows / sum(each["durationMs"]["triggerExecution"] for each in reports))


FIGURE = Benchmark("queries_sketches", "sketches of windows", run, heavy=True)
