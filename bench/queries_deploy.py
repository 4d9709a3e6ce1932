"""From the deployment of a query to its first result, and the memory of a driver that runs ten queries, beside the same windows
as queries of bare Spark in one session over files of Parquet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.catalog.state.pipeline import PIPELINE
from bench.query_host import EVENTS, LOAD, PATIENCE_S, has_idle_spare, load, serving, wait_until
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERIES = 10
_DEPLOYMENTS = 3
_TRIGGER_S = 0.5
_TRIGGER_OF_MANY_S = 5.0  # two processors are busy with a micro-batch of six queries each second


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Ours first, then bare Spark, while events arrive: a query is deployed and deleted some times, then many stay."""
    queries = setting.scaled(_QUERIES, 1)
    ours_s, ours_bytes = _ours(setting.folder, queries, setting.say)
    bare_s, bare_bytes = _bare_in_process(setting.folder / "bare", queries)
    about = f"{LOAD}, windows of one second, a micro-batch each {_TRIGGER_S:g} s"
    first = f"the first, in a warm spare driver: {ours_s[0]:.2f} s; bare Spark in a session that has just started: {bare_s[0]:.2f} s"
    each = f"all: {_seconds(ours_s)}; bare Spark: {_seconds(bare_s)}"
    return [
        Result(
            "queries_deploy",
            "a deployment to the first result, p50",
            "s",
            median(ours_s),
            median(bare_s),
            "the same windows, started in a session of bare Spark",
            median(ours_s) / median(bare_s),
            None,
            Target(Bound.AT_MOST, 5, absolute=True),
            (about, first, each),
        ),
        Result(
            "queries_deploy",
            f"memory of a driver with {queries} queries",
            "GB",
            ours_bytes / 1e9,
            bare_bytes / 1e9,
            "bare Spark with as many, which needs no Python workers",
            ours_bytes / bare_bytes,
            None,
            Target(Bound.AT_MOST, 3, absolute=True),
            (
                f"proportional set size of the driver, Java and all Python processes; a micro-batch each {_TRIGGER_OF_MANY_S:g} s",
            ),
        ),
    ]


def _seconds(found: Sequence[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in found) + " s"


def _sql(number: str) -> str:
    return f"""
    CREATE STREAM bench.counts{number} WITH (key = device, time = closed, watermark = '1 second', start = tail) AS
    SELECT window.end AS closed, device, count(*) AS events
    FROM STREAM bench.events GROUP BY window(at, '1 second'), device
    """


def _ours(folder: Path, queries: int, say: Callable[[str], None]) -> tuple[list[float], int]:
    with ab.connect(folder / "store", create=True) as store:
        store.scopes.create("bench")
        store.streams.create("bench/events", schema=EVENTS, key="device", time="at", scaling=2)
        with (
            serving(store.url, folder / "host.log", spares=1) as host,
            store.writer("bench/events") as writer,
            load(writer.write_batch),
        ):
            wait_until(lambda: has_idle_spare(host, 0, 1))
            found = []
            for number in range(_DEPLOYMENTS):
                found.append(_deployed(store, f"_{number}", _TRIGGER_S))
                say(f"deployment {number + 1}: {found[-1]:.2f} s")
                store.queries.delete(f"counts_{number}")
                time.sleep(2)
            for number in range(queries):
                say(f"query {number + 1} of {queries}: {_deployed(store, str(number), _TRIGGER_OF_MANY_S):.2f} s")
            with store.catalog.reading() as reading:
                rows = [reading.state(PIPELINE, f"counts{number}") for number in range(queries)]
            drivers = {row.holder.pid for row in rows if row is not None and row.holder is not None}
            assert len(drivers) == 1, "all run in one driver"
            return found, _memory(drivers.pop())


def _deployed(store: ab.Store, number: str, trigger_s: float) -> float:
    """Deploy a query; the seconds until its first result was published."""
    begun = time.time()
    store.queries.deploy(f"counts{number}", _sql(number), trigger=f"{trigger_s * 1000:g}ms")
    stream = f"bench/counts{number}"

    def published_at() -> float | None:
        if not store.streams.exists(stream):
            return None
        with store.reader(stream) as reader:
            return next((event.appended_us / 1e6 for event in reader if event.appended_us is not None), None)

    wait_until(lambda: published_at() is not None)
    at = published_at()
    assert at is not None
    return at - begun


def _memory(process: int) -> int:
    """Bytes of a process and all that it started; what several share counts once."""
    root, found = psutil.Process(process), 0
    for each in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            found += each.memory_full_info().pss
    return found


def _bare_in_process(folder: Path, queries: int) -> tuple[list[float], int]:
    """In a process of its own, whose memory is measured."""
    command = [sys.executable, "-m", "bench.queries_deploy", str(folder), str(queries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S * queries)
    *seconds, memory = done.stdout.split()
    return [float(each) for each in seconds], int(memory)


def _bare(folder: Path, queries: int) -> None:
    from anabranch.spark.session.java import ensure_java

    ensure_java()
    from pyspark.sql import SparkSession

    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    events = folder / "events"
    events.mkdir(parents=True)
    numbers = iter(range(1 << 30))

    def write(table: pa.Table) -> None:
        name = f"{next(numbers)}.parquet"
        pq.write_table(table, folder / name)
        (folder / name).rename(events / name)  # Spark sees whole files

    with load(write):
        time.sleep(2)
        for number in range(_DEPLOYMENTS):
            seconds, query = _started(spark, folder, f"_{number}", _TRIGGER_S)
            print(seconds, flush=True)
            query.stop()
        for number in range(queries):
            _started(spark, folder, str(number), _TRIGGER_OF_MANY_S)
        print(_memory(os.getpid()), flush=True)
    spark.stop()


def _started(spark: SparkSession, folder: Path, number: str, trigger_s: float) -> tuple[float, Any]:
    """Start a query; the seconds until its first result, and the query."""
    from pyspark.sql import functions

    begun, name = time.monotonic(), f"counts{number}"
    schema = spark.read.parquet(str(folder / "events")).schema
    windows = (
        spark.readStream.schema(schema)
        .parquet(str(folder / "events"))
        .withWatermark("at", "1 second")
        .groupBy(functions.window("at", "1 second"), "device")
        .count()
    )
    query: Any = (
        windows.writeStream.format("memory")
        .queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(folder / name))
        .trigger(processingTime=f"{trigger_s} seconds")
        .start()
    )
    wait_until(lambda: query.lastProgress is not None and (query.lastProgress["sink"].numOutputRows or 0) > 0)
    return time.monotonic() - begun, query


FIGURE = Benchmark("queries_deploy", "Deployments of queries", run, heavy=True)

if __name__ == "__main__":
    _bare(Path(sys.argv[1]), int(sys.argv[2]))
