"""History read by Spark: our DataFrame of compacted history compared with Spark's own reader on the same files."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import anabranch as ab
from bench.measure import in_turn, seconds
from bench.payloads import raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import blob_files, fresh

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Query: TypeAlias = "Callable[[DataFrame], None]"

SEGMENTS = 8


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Appends and compacts 20 M rows; then runs three queries, each alternating with the same query on the plain
    files."""
    from anabranch.spark import read  # type: ignore[attr-defined]
    from anabranch.spark.session.session import session

    folder = setting.folder / "store"
    count = setting.scaled(20_000_000, 200_000)
    store = fresh(folder, segments=SEGMENTS)
    with store:
        _fill(store, count)
        begun = time.perf_counter()
        store.compact("bench/events", force=True)
        setting.say(f"compacted {count:,} rows in {time.perf_counter() - begun:.1f} s")
        files = [str(path) for path in blob_files(folder) if path.suffix == ".parquet"]
        size = sum(Path(path).stat().st_size for path in files)
        spark = session(name="bench")
        try:
            ours, plain = read(spark, store, "bench/events"), spark.read.parquet(*files)
            assert ours.count() == plain.count() == count
            rounds = setting.scaled(7, 1)
            notes = (f"{count:,} rows in {len(files)} files of {size / len(files) / 2**20:.0f} MiB, 2 cores",)
            results = []
            for name, query in _QUERIES.items():
                query(ours), query(plain)
                found = in_turn(rounds, partial(_seconds, query, ours), partial(_seconds, query, plain))
                results.append(
                    Result(
                        "spark_history",
                        f"Spark over compacted history: {name}",
                        "s",
                        median(found.ours),
                        median(found.other),
                        "spark.read.parquet on the same files",
                        found.ratio,
                        found.spread,
                        Target(Bound.AT_MOST, 1.1),
                        notes,
                    )
                )
            return results
        finally:
            spark.stop()


def _fill(store: ab.Store, count: int) -> None:
    rows = min(rows_for(16), count)
    with store.writer("bench/events") as writer:
        for begin in range(0, count, rows):
            writer.write_batch(raw_table(min(rows, count - begin), begin))


def _seconds(query: Query, frame: DataFrame) -> float:
    return seconds(lambda: query(frame))


def _count(frame: DataFrame) -> None:
    frame.count()


def _group(frame: DataFrame) -> None:
    _drain(frame.groupBy("key").count())


def _scan(frame: DataFrame) -> None:
    # Only the stream's own columns: each side adds different ones.
    _drain(frame.select("key", "time", "payload"))


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


_QUERIES: dict[str, Query] = {"count": _count, "groupBy key": _group, "full scan": _scan}

FIGURE = Benchmark("spark_history", "Spark over compacted history", run, heavy=True)
