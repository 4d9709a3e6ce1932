"""Load shedding of a pipeline: how many of its intervals hold the true value, and how fast it reads with and without."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from bench.measure import Rounds, in_turn
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.pipelines.running import Pipeline

_KEYS = 20
_OVERLOAD = 10  # so many times the limit is appended
_SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("celsius", pa.float64())])
_WORK = "WHERE sha2(repeat(device, 50), 512) <> ''"  # about 2 µs an event
_SQL = """
CREATE STREAM out.{target} WITH (key = device, watermark = '0 seconds'{options}) AS
SELECT device, window.end AS closed, count(*) AS events, sum(celsius) AS total, avg(celsius) AS mean
FROM STREAM bench.sensors {where} GROUP BY device, window(at, '10 seconds')
"""


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """The same statement over the same events in micro-batches of the same number of commits, of which one keeps a tenth of
    the events."""
    from anabranch.spark.session.session import session

    rows_of_a_batch, batches = setting.scaled(1_000_000, 20_000), setting.scaled(5, 3)
    with ab.connect(setting.folder / "store", create=True) as store:
        store.scopes.create("bench")
        store.streams.create("bench/sensors", schema=_SCHEMA, key="device", time="at", scaling=2)
        for number in range(batches):
            store.write("bench/sensors", _events(number * rows_of_a_batch, rows_of_a_batch))
            time.sleep(1.1)  # what is appended within a second counts together
        spark, numbers = session(name="bench"), iter(range(100))
        # A limit of events is raised by what is shed.
        shed = f", shed = 'rate > {rows_of_a_batch // _OVERLOAD}'"
        kept_first = f", shed = 'rate > {rows_of_a_batch // _OVERLOAD}', shed_priority = 'celsius > 1000'"
        try:

            def timed(target: str, options: str, events_max: int, where: str = "") -> float:
                sql = _SQL.format(target=target, options=options, where=where)
                return _rate(_ran(spark, store, sql, f"bench-{next(numbers)}", events_max))

            def measured(where: str) -> Rounds:
                return in_turn(
                    setting.scaled(3, 1),
                    lambda: timed("shed", shed, rows_of_a_batch // _OVERLOAD, where),
                    lambda: timed("whole", "", rows_of_a_batch, where),
                )

            rounds, working = measured(""), measured(_WORK)
            filtered = timed("priority", kept_first, rows_of_a_batch // _OVERLOAD)
        finally:
            spark.stop()
        covered, windows = _covered(store)
    note = f"{batches} micro-batches of {rows_of_a_batch:,} events, {_KEYS} keys, windows of 10 s"
    return [
        Result(
            "queries_shed",
            "intervals that hold the true count, sum or average, one event in 10 read",
            "%",
            100 * covered,
            target=Target(Bound.AT_LEAST, 93, absolute=True),
            notes=(f"{note}; of {windows:,} windows and keys",),
        ),
        *(
            Result(
                "queries_shed",
                f"events passed a second, one in 10 of them read{what}",
                "k events/s",
                median(each.ours),
                median(each.other),
                "the same without shedding",
                each.ratio,
                each.spread,
                notes=(f"{note}{more}",),
            )
            for each, what, more in (
                (rounds, "", f"; with shed_priority, a filter in Spark: {filtered:,.0f} k"),
                (working, ", with work per event", "; SHA-512 of 450 bytes in WHERE"),
            )
        ),
    ]


def _events(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    chance = np.random.default_rng(first)
    devices = pa.array([f"device-{number}" for number in range(_KEYS)])
    return pa.table(
        {
            "device": devices.take(pa.array(chance.integers(_KEYS, size=count))),
            "at": pa.array(1_700_000_000_000_000 + numbers * 1_000, TIME_TYPE),
            "celsius": pa.array(chance.gamma(4, 5, count)),
        }
    )


def _ran(spark: SparkSession, store: ab.Store, sql: str, name: str, events_max: int) -> Pipeline:
    from anabranch.spark.pipelines.run import run as run_pipeline

    pipeline = run_pipeline(store, sql, name=name, spark=spark, once=True, flush=True, events_max=events_max, also=True)
    assert pipeline.await_termination(1_200)
    return pipeline


def _rate(pipeline: Pipeline) -> float:
    """Thousands of the stream's events that were passed a second, in all batches with events but the first."""
    (query,) = pipeline.queries.values()
    reports = [json.loads(each.json) for each in query.recentProgress][1:]
    reports = [each for each in reports if each["numInputRows"] > 1]
    passed = 0
    for report in reports:
        (source,) = report["sources"]
        start, end = (ab.StreamCut.parse(source[edge]["cut"]) for edge in ("startOffset", "endOffset"))
        passed += pipeline.store.cuts.distance(end.stream, start, end).events
    return float(passed / sum(each["durationMs"]["triggerExecution"] for each in reports))


def _covered(store: ab.Store) -> tuple[float, int]:
    """The part of the shed windows' intervals that hold the true values, and the number of windows."""
    whole = {(row["device"], row["closed"]): row for row in _rows(store, "out/whole")}
    # Each run appended the same results.
    shed = {(row["device"], row["closed"]): row for row in _rows(store, "out/shed")}
    held = [
        row[f"{name}_error"] is not None and abs(row[name] - whole[key][name]) <= row[f"{name}_error"]
        for key, row in shed.items()
        for name in ("events", "total", "mean")
    ]
    return float(np.mean(held)), len(shed)


def _rows(store: ab.Store, stream: str) -> list[dict[str, Any]]:
    with store.reader(stream) as reader:
        return [event.body for event in reader]


FIGURE = Benchmark("queries_shed", "load shedding: the coverage of its intervals, and its rate", run, heavy=True)
