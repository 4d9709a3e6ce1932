"""Statements with several outputs: each row where its condition says, all outputs of a batch in one publication."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidSql, StreamHasPipeline
from anabranch.spark.pipelines import admin
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import BASE, SECOND, SOURCE, new_store, put, rows
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQL = """
DECLARE PARAMETER warm DOUBLE DEFAULT '4';
CREATE STREAM out.cold WITH (key = device)
  INTO out.hot WHEN celsius > 5
  INTO out.warm
    WHEN celsius >= :warm
  COPY INTO out.d1 WHEN device = 'd1'
AS SELECT device, at, celsius FROM STREAM iot.sensors
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        (tmp_path / "p.sql").write_text(SQL)
        yield opened


def _found(store: ab.Store) -> dict[str, list[Any]]:
    names = ("cold", "warm", "hot", "d1")
    return {name: sorted((row["at"], row["device"]) for row in rows(store, f"out/{name}")) for name in names}


def _expected(store: ab.Store) -> dict[str, list[Any]]:
    outputs: dict[str, list[Any]] = {name: [] for name in ("cold", "warm", "hot", "d1")}
    for row in rows(store, SOURCE):
        name = "hot" if row["celsius"] > 5 else "warm" if row["celsius"] >= 4 else "cold"
        for each in (name, *(["d1"] if row["device"] == "d1" else [])):
            outputs[each].append((row["at"], row["device"]))
    return {name: sorted(found) for name, found in outputs.items()}


def test_rows_go_where_the_conditions_say_once_even_if_a_batch_is_repeated(
    spark: SparkSession, store: ab.Store
) -> None:
    put(store, range(40))
    with run(store, SQL, name="p", spark=spark, once=True, events_max=15) as pipeline:
        assert pipeline.await_termination(240)
        checkpoint = Path(pipeline.checkpoints["out/cold"])
        assert pipeline.collect("out/hot").num_rows == len(rows(store, "out/hot")) > 0
    assert _found(store) == _expected(store)
    # As after a crash between the publication and Spark's own commit of the batch.
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    put(store, range(40, 55))
    with run(store, SQL, name="p", spark=spark, once=True) as pipeline:
        assert pipeline.await_termination(240)
    assert _found(store) == _expected(store)
    with pytest.raises(StreamHasPipeline, match="out/warm"):
        run(store, "CREATE STREAM out.warm AS SELECT * FROM STREAM iot.sensors", name="other", spark=spark)
    assert admin.delete(store, "p", drop_results=True) == ("out/cold", "out/hot", "out/warm", "out/d1")


@pytest.mark.slow
def test_late_events_and_a_second_statement_have_their_outputs(spark: SparkSession, store: ab.Store) -> None:
    put(store, [1, 2, 3, 25, 26])
    put(store, [27] * 5)
    put(store, [4, 28])
    sql = """
        CREATE STREAM out.counts WITH (watermark = '2 seconds')
        INTO out.many WHEN events > 1
        INTO LATE out.stragglers
        AS SELECT window.end AS closed, count(*) AS events FROM STREAM iot.sensors GROUP BY window(at, '10 seconds');
        CREATE STREAM out.copy AS SELECT events FROM STREAM out.many
    """
    with run(store, sql, name="p", spark=spark, once=True, flush=True, events_max=5) as pipeline:
        assert pipeline.await_termination(240)
    assert [row["events"] for row in rows(store, "out/many")] == [3, 8]
    assert rows(store, "out/counts") == []
    assert sorted(row["events"] for row in rows(store, "out/copy")) == [3, 8]
    late = rows(store, "out/stragglers")
    assert [round(row["at"].timestamp() * SECOND) - BASE for row in late] == [4 * SECOND]
    assert not store.streams.exists("out/counts_late")


@pytest.mark.parametrize(
    ("clause", "line", "message"),
    [
        ("INTO out.b\nWHEN celsius + 1", 3, "(?i)boolean"),
        ("INTO out.b WHEN true\nINTO out.c WHEN nothing", 3, "nothing"),
    ],
)
def test_a_condition_that_spark_refuses_is_answered_with_its_line(
    spark: SparkSession, store: ab.Store, clause: str, line: int, message: str
) -> None:
    sql = f"CREATE STREAM out.a\n{clause}\nAS SELECT * FROM STREAM iot.sensors"
    with pytest.raises(InvalidSql, match=message) as error:
        run(store, sql, name="p", spark=spark, once=True)
    assert error.value.line == line
    assert not store.streams.exists("out/a")


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_pipeline_leaves_no_row_out_and_none_twice(spark: SparkSession, store: ab.Store) -> None:
    for begin in range(0, 600, 20):
        put(store, range(begin, begin + 20))
    command = [sys.executable, "-m", "anabranch.cli.main", "pipeline", "run", str(Path(store.url).parent / "p.sql")]
    child = subprocess.Popen(
        [*command, "--events-max", "20"], env={**os.environ, "ANABRANCH_STORE": store.url}, start_new_session=True
    )
    try:
        until(lambda: store.streams.exists("out/hot") and len(rows(store, "out/hot")) > 10, 240)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    with run(store, SQL, name="p", spark=spark, once=True) as pipeline:
        assert pipeline.await_termination(240)
    assert _found(store) == _expected(store)


HALVES = """
CREATE STREAM out.done
  FEEDBACK WITHIN 3 HOPS INTO iot.work WHEN n > 1
AS SELECT n DIV 2 AS n, hops FROM STREAM iot.work
"""


def _halved(numbers: list[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What comes out, and what goes round, each with its hops."""
    done, round_ = [], []
    left = [(number, 0) for number in numbers]
    while left:
        number, hops = left.pop()
        if number // 2 > 1 and hops < 3:
            left.append((number // 2, hops + 1))
            round_.append(left[-1])
        else:
            done.append((number // 2, hops))
    return sorted(done), sorted(round_)


def test_results_go_round_as_often_as_they_may(spark: SparkSession, store: ab.Store) -> None:
    store.streams.create("iot/work", schema=pa.schema([("n", pa.int64()), ("hops", pa.int64())]))

    def work() -> list[tuple[int, int]]:
        return sorted((row["n"], row["hops"]) for row in rows(store, "iot/work") if row["hops"] is not None)

    def done() -> list[tuple[int, int]]:
        return sorted((row["n"], row["hops"] or 0) for row in rows(store, "out/done"))

    numbers = [*range(1, 12), 100]
    with store.writer("iot/work") as writer:
        writer.write_batch(pa.table({"n": numbers}))
    with run(store, HALVES, name="halves", spark=spark) as pipeline:
        until(lambda: pipeline.active and store.streams.exists("out/done") and len(done()) == len(numbers), 240)
    assert (done(), work()) == _halved(numbers)
    assert max(hops for _, hops in done()) == 3
    with pytest.raises(InvalidSql, match=r"loop forever: iot/work \(by 'back'\) → out/copy \(by 'copy'\)"):
        _run_in_a_circle(spark, store)
    other = (
        "CREATE STREAM out.other FEEDBACK WITHIN 2 HOPS INTO iot.work WHEN n = 1000 AS SELECT n FROM STREAM iot.work"
    )
    with pytest.raises(InvalidSql, match=r"has the column hops, an integer: select hops, or with GROUP BY max\(hops\)"):
        run(store, other, name="forgets", spark=spark, once=True)
    with pytest.raises(InvalidSql, match="no source of the statement has: hops BIGINT"):
        run(
            store,
            other.replace("n FROM STREAM iot.work", "1 AS hops FROM STREAM iot.sensors"),
            name="counts",
            spark=spark,
        )


def _run_in_a_circle(spark: SparkSession, store: ab.Store) -> None:
    """Two pipelines of which neither says that it feeds back."""
    assert run(
        store, "CREATE STREAM out.copy AS SELECT * FROM STREAM iot.work", name="copy", spark=spark, once=True
    ).await_termination(240)
    run(store, "CREATE STREAM iot.work AS SELECT * FROM STREAM out.copy", name="back", spark=spark, also=True)
