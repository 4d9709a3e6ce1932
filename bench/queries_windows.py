"""Windows of a number of events by key in a pipeline, beside the stateful operator of Spark that one writes for them; and windows
of time with early results, beside those without."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from bench.measure import in_turn
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CORES = 2
_KEYS = 5_000
_SIZE = 20
_SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("celsius", pa.float64())])
_SQL = f"""
CREATE STREAM out.means WITH (key = device) AS
SELECT device, count_window.end AS closed, count(*) AS events, avg(celsius) AS celsius
FROM STREAM bench.sensors GROUP BY device, count_window({_SIZE})
"""
_EMIT = "EMIT EARLY EVERY 5 EVENTS, DISCARDING"
_TIMED = """
CREATE STREAM out.{target} WITH (key = device) AS
SELECT device, window.end AS closed, count(*) AS events, avg(celsius) AS celsius
FROM STREAM bench.sensors GROUP BY device, window(at, '1 minute') {emit}
"""


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Both read the same events in micro-batches of the same size; the first, which starts workers, is not counted."""
    from anabranch.spark.session.session import session

    rows_of_a_batch, batches = setting.scaled(200_000, 2_000), setting.scaled(4, 3)
    files = setting.folder / "files"
    files.mkdir()
    with ab.connect(setting.folder / "store", create=True) as store:
        store.scopes.create("bench")
        store.streams.create("bench/sensors", schema=_SCHEMA, key="device", time="at", scaling=2)
        for number in range(batches):
            table = _events(number * rows_of_a_batch, rows_of_a_batch)
            store.write("bench/sensors", table)
            pq.write_table(table, files / f"{number}.parquet")
        spark, numbers = session(name="bench"), iter(range(100))
        try:
            rounds = in_turn(
                setting.scaled(3, 1),
                lambda: _ours(spark, store, _SQL, "means", f"bench-{next(numbers)}", rows_of_a_batch),
                lambda: _bare(spark, files, setting.folder / f"checkpoint-{next(numbers)}"),
            )
            emit, plain = _TIMED.format(target="panes", emit=_EMIT), _TIMED.format(target="plain", emit="")
            panes = in_turn(
                setting.scaled(3, 1),
                lambda: _ours(spark, store, emit, "panes", f"bench-{next(numbers)}", rows_of_a_batch),
                lambda: _ours(spark, store, plain, "plain", f"bench-{next(numbers)}", rows_of_a_batch),
            )
        finally:
            spark.stop()
    note = f"{batches} micro-batches of {rows_of_a_batch:,} rows on {_CORES} cores"
    return [
        Result(
            "queries_windows",
            f"windows of {_SIZE} events a key, {_KEYS:,} keys",
            "k rows/s/core",
            median(rounds.ours),
            median(rounds.other),
            "Spark's transformWithStateInPandas with a key's state by key",
            rounds.ratio,
            rounds.spread,
            Target(Bound.AT_LEAST, 60, absolute=True),
            (f"{note}; ours also publishes its results",),
        ),
        Result(
            "queries_windows",
            f"windows of a minute with {_EMIT}",
            "k rows/s/core",
            median(panes.ours),
            median(panes.other),
            "the same without EMIT, of which Spark keeps only aggregates",
            panes.ratio,
            panes.spread,
            notes=(note,),
        ),
    ]


def _events(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    devices = pa.array([f"device-{number}" for number in range(_KEYS)])
    return pa.table(
        {
            "device": devices.take(pa.array(numbers * 7_919 % _KEYS)),
            "at": pa.array(1_700_000_000_000_000 + numbers * 1_000, TIME_TYPE),
            "celsius": pa.array((numbers % 100).astype(np.float64)),
        }
    )


def _ours(spark: SparkSession, store: ab.Store, sql: str, target: str, name: str, events_max: int) -> float:
    from anabranch.spark.pipelines.run import run as run_pipeline

    pipeline = run_pipeline(store, sql, name=name, spark=spark, once=True, events_max=events_max, also=True)
    assert pipeline.await_termination(600)
    return _rate(pipeline.queries[f"out/{target}"])


def _bare(spark: SparkSession, files: Path, checkpoint: Path) -> float:
    events = (
        spark.readStream.schema("device STRING, at TIMESTAMP, celsius DOUBLE")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(files))
    )
    windows = events.groupBy("device").transformWithStateInPandas(
        _processor(), "device STRING, closed TIMESTAMP, events BIGINT, celsius DOUBLE", "Append", "None"
    )
    query = (
        windows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(1_200)
    return _rate(query)


def _processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Windows(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._open = handle.getListState("open", "at TIMESTAMP, celsius DOUBLE")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            came = pd.concat(list(rows))
            kept = pd.DataFrame(list(self._open.get()), columns=["at", "celsius"])
            known = pd.concat([kept, came[["at", "celsius"]]]) if len(kept) else came[["at", "celsius"]]
            full = len(known) // _SIZE
            for number in range(full):
                window = known.iloc[number * _SIZE : (number + 1) * _SIZE]
                closed, celsius = window["at"].max(), window["celsius"].mean()
                yield pd.DataFrame(
                    [[key[0], closed, _SIZE, celsius]], columns=["device", "closed", "events", "celsius"]
                )
            rest = [tuple(row) for row in known.iloc[full * _SIZE :].itertuples(index=False)]
            if rest:
                self._open.put(rest)
            else:
                self._open.clear()

    return Windows()


def _rate(query: StreamingQuery) -> float:
    """Thousands of rows a second and core, of all batches but the first."""
    reports = [json.loads(each.json) for each in query.recentProgress][1:]
    reports = [each for each in reports if each["numInputRows"]]
    rows = sum(each["numInputRows"] for each in reports)
    return float(rows / sum(each["durationMs"]["triggerExecution"] for each in reports) / _CORES)


FIGURE = Benchmark("queries_windows", "windows of a number of events, and early results", run, heavy=True)
