"""Windows that no new event closes: at the end of a run (`flush`), of sealed sources, and beside a source that is idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.spark.pipelines.run import Pipeline, run
from tests.spark.pipelines import BASE, COUNTS, SCHEMA, SECOND, counted, expected, new_store, put, rows
from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVERYTHING = 1e9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def finished(pipeline: Pipeline) -> Pipeline:
    assert pipeline.await_termination(240)
    return pipeline


def late_times(store: ab.Store) -> list[float]:
    if not store.streams.exists("out/counts_late"):
        return []
    return sorted(row["at"].timestamp() - BASE / SECOND for row in rows(store, "out/counts_late"))


@pytest.mark.slow
def test_a_flush_closes_the_windows_that_are_open_and_no_later_ones(spark: SparkSession, store: ab.Store) -> None:
    sql = COUNTS.replace("FROM STREAM iot.sensors", "FROM STREAM iot.sensors WHERE celsius >= 0 AND device <> 'x'")
    put(store, range(25))
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert counted(store) == expected(store, until=19)
    finished(run(store, sql, name="p", spark=spark, once=True, flush=True))
    whole = expected(store, until=EVERYTHING)
    assert counted(store) == whole

    put(store, [24.5, 29.75])  # of the window that is closed
    put(store, range(30, 45))  # of windows that had not begun: they are in time
    finished(run(store, sql, name="p", spark=spark, once=True, flush=True))
    assert late_times(store) == [24.5, 29.75]
    later = {window: number for window, number in expected(store, until=EVERYTHING).items() if window[0] >= 30}
    assert counted(store) == whole | later
    finished(run(store, sql, name="p", spark=spark, once=True, flush=True))
    assert counted(store) == whole | later, "nothing new, nothing twice"


@pytest.mark.slow
def test_statements_of_a_file_are_flushed_one_after_the_other(spark: SparkSession, store: ab.Store) -> None:
    sql = f"""{COUNTS};
    CREATE STREAM out.sums AS
    SELECT window.end AS closed, sum(events) AS events FROM STREAM out.counts GROUP BY window(closed, '20 seconds')"""
    put(store, range(25))
    finished(run(store, sql, name="p", spark=spark, once=True, flush=True))
    assert counted(store) == expected(store, until=EVERYTHING)
    assert sum(row["events"] for row in rows(store, "out/sums")) == 25


@pytest.mark.slow
def test_sliding_and_session_windows_and_joins_are_flushed(spark: SparkSession, store: ab.Store) -> None:
    store.streams.create("iot/orders", schema=SCHEMA, key="device", time="at")
    put(store, range(25))
    put(store, [3, 40], stream="iot/orders")
    sql = """
    CREATE STREAM out.sliding AS SELECT window.end AS closed, count(*) AS events
    FROM STREAM iot.sensors GROUP BY window(at, '10 seconds', '5 seconds');
    CREATE STREAM out.sessions AS SELECT session_window.end AS closed, device, count(*) AS events
    FROM STREAM iot.sensors GROUP BY session_window(at, '20 seconds'), device;
    CREATE STREAM out.unmatched WITH (time = at) AS SELECT o.at, o.device, s.celsius
    FROM STREAM iot.orders AS o LEFT JOIN STREAM iot.sensors AS s
    ON o.device = s.device AND s.at BETWEEN o.at AND o.at + INTERVAL 2 SECONDS
    """
    finished(run(store, sql, name="p", spark=spark, once=True, flush=True))
    assert sum(row["events"] for row in rows(store, "out/sliding")) == 50
    assert sorted(row["events"] for row in rows(store, "out/sessions")) == [8, 8, 9]
    matched = {row["at"].timestamp() - BASE / SECOND: row["celsius"] for row in rows(store, "out/unmatched")}
    assert matched == {3.0: 3.0, 40.0: None}


def test_the_windows_of_sealed_sources_are_closed_unasked(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(25))
    sql = f"""{COUNTS};
    CREATE STREAM out.sums AS
    SELECT window.end AS closed, sum(events) AS events FROM STREAM out.counts GROUP BY window(closed, '20 seconds')"""
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert counted(store) == expected(store, until=19)
    store.streams.scale("iot/sensors", 3)  # segments that are sealed, of a stream that is not
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert counted(store) == expected(store, until=19)
    store.streams.seal("iot/sensors")
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert counted(store) == expected(store, until=EVERYTHING)
    assert sum(row["events"] for row in rows(store, "out/sums")) == 25
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert counted(store) == expected(store, until=EVERYTHING)


@pytest.mark.slow
def test_events_that_arrive_during_a_flush_are_not_late_for_the_next_run(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(25))
    running = run(store, COUNTS, name="p", spark=spark, once=True, flush=True)
    put(store, range(100, 125))  # after the end of this run, which closes windows up to what it read
    finished(running)
    put(store, range(90, 100))
    finished(run(store, COUNTS, name="p", spark=spark, once=True, flush=True))
    assert late_times(store) == []
    assert counted(store) == expected(store, until=EVERYTHING)


@pytest.mark.slow
def test_an_idle_source_does_not_hold_the_others_back(spark: SparkSession, store: ab.Store) -> None:
    store.streams.create("iot/orders", schema=SCHEMA, key="device", time="at")
    put(store, [1], stream="iot/orders")
    put(store, range(60))
    sql = """CREATE STREAM out.unmatched WITH (time = at, watermark = '0 seconds'{}) AS SELECT s.at, o.celsius
    FROM STREAM iot.sensors AS s LEFT JOIN STREAM iot.orders AS o
    ON o.device = s.device AND o.at BETWEEN s.at AND s.at + INTERVAL 2 SECONDS"""
    finished(run(store, sql.format(""), name="p", spark=spark, once=True))
    held_back = len(rows(store, "out/unmatched"))
    assert held_back <= 2
    with run(store, sql.format(", idle = '10 milliseconds'"), name="p", spark=spark) as pipeline:
        until(lambda: len(rows(store, "out/unmatched")) > 50, 240)
        put(store, [70, 80])  # the idle source follows what the other one has since
        until(lambda: len(rows(store, "out/unmatched")) >= 61, 240)
        assert pipeline.active
    assert len({row["at"] for row in rows(store, "out/unmatched")}) == len(rows(store, "out/unmatched"))


def test_flush_goes_with_once(store: ab.Store) -> None:
    with pytest.raises(InvalidArgument, match="flush requires once"):
        run(store, COUNTS, name="p", flush=True)


# Runs a pipeline with a flush, and kills both halves of the driver, and the process that kills, at one moment of it.
_KILLED = """
import os, signal, sys
from anabranch.spark import session, sink
from anabranch.spark.pipelines import run, source_views, start
from anabranch.spark.source import source
from pyspark_anabranch import DefaultSource

url, sql, moment = sys.argv[1:]

def die(now):
    if now == moment:
        for victim in (*victims, os.getpid()):
            os.kill(victim, signal.SIGKILL)

class Reader(source.StreamReader):
    marked = False
    def latestOffset(self, start, limit):
        if "marker" in start and self.marked:
            die("before the closing batch is planned")
        end = super().latestOffset(start, limit)
        self.marked = "marker" in end
        return end

class Writer(sink.StreamWriter):
    def commit(self, messages, batchId):
        name = {1: "the marker's batch", 2: "the closing batch"}.get(batchId)
        die(f"before {name} is published")
        super().commit(messages, batchId)
        die(f"after {name} is published")

def deadly(made, kind):
    made.__class__ = kind
    return made

class Deadly(DefaultSource):
    @classmethod
    def name(cls):
        return "deadly"
    def streamReader(self, schema):
        return deadly(super().streamReader(schema), Reader)
    def streamWriter(self, schema, overwrite):
        return deadly(super().streamWriter(schema, overwrite), Writer)

source_views.FORMAT = start.FORMAT = "deadly"
spark = session(name="killed")
victims = [os.getpid(), spark.sparkContext._gateway.proc.pid]
spark.dataSource.register(Deadly)
run.run(url, sql, name="p", spark=spark, once=True, flush=True).await_termination()
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize(
    "moment",
    [
        "before the marker's batch is published",
        "after the marker's batch is published",
        "before the closing batch is planned",
        "before the closing batch is published",
        "after the closing batch is published",
    ],
)
def test_a_run_that_is_killed_during_a_flush_closes_every_window_once(
    spark: SparkSession, store: ab.Store, moment: str
) -> None:
    """The batches of the killed run: 0 reads, without closing a window; 1 holds the marker; 2 closes."""
    sql = COUNTS.replace("5 seconds", "1 minute")
    put(store, range(25))
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, store.url, sql, moment],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = moment == "after the closing batch is published"
    assert counted(store) == (expected(store, until=EVERYTHING) if published else {})
    finished(run(store, sql, name="p", spark=spark, once=True, flush=True))
    assert counted(store) == expected(store, until=EVERYTHING)
    assert late_times(store) == []
    assert list(store.check()) == []
