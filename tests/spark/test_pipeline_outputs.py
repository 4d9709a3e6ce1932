"""Statements with several outputs: each row where its condition says, all outputs of a batch in one publication."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
