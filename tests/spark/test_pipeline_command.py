"""A pipeline from the command line, in this process and so with the Spark session of the other tests. The tutorial
(`docs/test_tutorial.py`) and `test_pipeline_process.py` run it as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.query.dialects.translate import DialectOptions, translate
from anabranch.spark.pipelines.sql.parse import parse
from tests.cli.kit import CSV, SCHEMA, Line
from tests.unit.query.dialect_cases import PIPELINES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQL = """\
CREATE STREAM iot.means WITH (key = device, time = closed, watermark = '1 second') AS
SELECT window.end AS closed, device, count(*) AS events
FROM STREAM iot.sensors GROUP BY window(at, '1 second'), device;
"""


def test_a_pipeline_runs_once_is_listed_and_reset(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    csv, file = tmp_path / "sensors.csv", tmp_path / "means.sql"
    csv.write_text(CSV)
    file.write_text(SQL)
    line("write", "iot/sensors", csv)
    done = line("pipeline", "run", file, "--once", "--collect", "--json")
    rows = sorted((row["closed"], row["device"], row["events"]) for row in done.rows)
    assert rows == [("2026-01-01T00:00:01.000000Z", "a", 1)]
    (listed,) = line("pipeline", "list", "--json").json
    assert (listed["name"], listed["state"]) == ("means", "stopped")
    assert "iot/means" in line("pipeline", "list").out
    shown = line("pipeline", "show", "means").out
    assert SQL.splitlines()[2] in shown
    assert line("pipeline", "show", "means", "--json").json["progress"][0]["read"] == 3
    assert line("pipeline", "stop", "means", "--json").json["state"] == "stopped"
    assert "iot/means is deleted" in line("pipeline", "reset", "means", "--drop-results", "--yes").err
    assert line.refused("read", "iot/means").startswith("stream 'iot/means' not found")
    assert line("check").code == 0
    assert not spark.streams.active


@pytest.mark.slow
def test_a_pipeline_in_the_sql_of_flink_has_the_same_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    csv, file = tmp_path / "sensors.csv", tmp_path / "means.sql"
    csv.write_text(CSV)
    file.write_text(
        """CREATE TABLE iot.sensors (device STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND);
        INSERT INTO iot.means SELECT window_end AS closed, device, count(*) AS events
        FROM TABLE(TUMBLE(TABLE iot.sensors, DESCRIPTOR(at), INTERVAL '1' SECOND))
        GROUP BY window_start, window_end, device;"""
    )
    line("write", "iot/sensors", csv)
    done = line("pipeline", "run", file, "--dialect", "flink", "--once", "--collect", "--json")
    rows = sorted((row["closed"], row["device"], row["events"]) for row in done.rows)
    assert rows == [("2026-01-01T00:00:01.000000Z", "a", 1)]


_LAST = "b,2026-01-01T00:01:00Z,1\n"  # later than every window that is expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "sql", "expected"),
    [
        (
            "azure",
            """SELECT System.Timestamp() AS closed, COUNT(*) AS events, CAST(MAX(celsius) AS bigint) AS top INTO iot.means
               FROM iot.sensors TIMESTAMP BY at GROUP BY TumblingWindow(second, 1)""",
            [("00:00:00", 1, 1), ("00:00:01", 1, 2), ("00:00:02", 1, 3)],  # an event at a window's end is in it
        ),
        (
            "ksqldb",
            """CREATE TABLE iot.means AS SELECT WINDOWEND AS closed, COUNT(*) AS events, CAST(MAX(celsius) AS INT) AS top
               FROM iot.sensors WINDOW SESSION (5 SECONDS) GROUP BY device EMIT FINAL""",
            [("00:00:01", 1, 2), ("00:00:02", 2, 3)],  # a session ends with its last event
        ),
        (
            "trino",
            """CREATE TABLE iot.means AS SELECT at AS closed, cast(1 AS bigint) AS events, cast(celsius AS integer) AS top
               FROM iot.sensors WHERE device = 'a'""",
            [("00:00:00", 1, 2), ("00:00:02", 1, 4)],  # a cast rounds a half away from zero
        ),
        (
            "azure",
            """SELECT DATEADD(second, -1, System.Timestamp()) AS closed, COUNT(*) AS events,
               CAST(PERCENTILE_CONT(1.0) OVER (ORDER BY celsius) AS bigint) AS top INTO iot.means
               FROM iot.sensors TIMESTAMP BY at WHERE DATEDIFF(second, '2026-01-01', at) > 0 GROUP BY TumblingWindow(second, 5)""",
            [("00:00:04", 2, 3)],
        ),
    ],
)
def test_a_pipeline_keeps_what_is_special_in_a_dialect(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    sql: str,
    expected: list[tuple[str, int, int]],
) -> None:
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    csv, file, translated = tmp_path / "sensors.csv", tmp_path / "means.other", tmp_path / "means.sql"
    csv.write_text(CSV + _LAST)
    file.write_text(sql)
    translated.write_text(line("query", "translate", "--from", dialect, "--time", "at", "--file", file).out)
    line("write", "iot/sensors", csv)
    done = line("pipeline", "run", translated, "--once", "--collect", "--json")
    rows = sorted((row["closed"], row["events"], row["top"]) for row in done.rows)
    assert rows == [(f"2026-01-01T{time}.000000Z", events, top) for time, events, top in expected]


def test_spark_parses_what_the_sql_of_other_systems_becomes(spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    for dialect, text, _ in PIPELINES:
        for statement in parse(translate(text, dialect, options=DialectOptions("iot", "at"))):
            assert parser.parsePlan(statement.query) is not None
