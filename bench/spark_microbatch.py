"""The minimum duration of a micro-batch of 100 rows: from our source, compared with Spark's own rate source."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.measure import in_turn
from bench.payloads import raw_table
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 100
_WARM_UP = 5  # batches that start workers and compile plans


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Both write to Spark's noop sink, batches back to back; a batch's duration is the one that Spark reports."""
    from anabranch.spark.session.session import session

    batches = setting.scaled(40, 3)
    folder = setting.folder / "store"
    numbers = iter(range(100))
    with fresh(folder, segments=1) as store:
        with store.writer("bench/events") as writer:
            writer.write_batch(raw_table((batches + _WARM_UP + 2) * ROWS, 1))
        spark = session(name="bench")
        try:

            def ours() -> float:
                frame = (
                    spark.readStream.format("anabranch")
                    .option("path", str(folder))
                    .option("stream", "bench/events")
                    .option("start", "head")
                    .option("maxEventsPerTrigger", ROWS)
                    .load()
                )
                return _median_ms(frame, setting.folder / f"checkpoint-{next(numbers)}", batches)

            def rate() -> float:
                # Advances by as many rows a batch without waiting for the clock.
                frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
                return _median_ms(frame, setting.folder / f"checkpoint-{next(numbers)}", batches)

            rounds = in_turn(setting.scaled(3, 1), ours, rate)
        finally:
            spark.stop()
    return [
        Result(
            "spark_microbatch",
            f"Spark micro-batch of {ROWS} rows, median",
            "ms",
            median(rounds.ours),
            median(rounds.other),
            "Spark's rate-micro-batch source, same session and sink",
            rounds.ratio,
            rounds.spread,
            Target(Bound.AT_MOST, 2.0),
            (f"triggerExecution of {batches} batches a round, after {_WARM_UP} of warm-up; noop sink, our settings",),
        )
    ]


def _median_ms(frame: DataFrame, checkpoint: Path, batches: int) -> float:
    """Returns the median duration of the batches, in ms, as the query's progress reports it."""
    query: Any = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .queryName(checkpoint.name)
        .start()
    )
    durations: dict[int, float] = {}
    deadline = time.monotonic() + 120
    try:
        while len(durations) < batches + _WARM_UP:
            if query.exception() is not None:
                raise query.exception()
            assert time.monotonic() < deadline, f"{len(durations)} batches in two minutes"
            for progress in query.recentProgress:
                if progress.numInputRows:
                    durations[progress.batchId] = progress.durationMs["triggerExecution"]
            time.sleep(0.1)
    finally:
        query.stop()
    return median(value for number, value in sorted(durations.items()) if number >= _WARM_UP)


FIGURE = Benchmark("spark_microbatch", "Spark micro-batches", run, heavy=True)
