"""Checking a query without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import InvalidSql
from anabranch.spark.queries.validate import validate
from tests.spark.pipelines import COUNTS, new_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def test_what_it_would_write_is_said_and_nothing_is_created(spark: SparkSession, store: ab.Store) -> None:
    sql = "DECLARE PARAMETER size INTERVAL DEFAULT '1 minute';" + COUNTS.replace("'10 seconds'", ":size", 1)
    sql += "; CREATE STREAM out.last AS SELECT device, events, closed FROM STREAM out.counts"
    found = validate(store, sql, parameters={"size": "20 seconds"}, spark=spark)
    counts, last = found.statements
    assert (counts.target, list(counts.columns)) == ("out/counts", ["opened", "closed", "device", "events", "total"])
    assert (counts.line, counts.sources, counts.late) == (2, ("iot/sensors",), "out/counts_late")
    assert (last.target, last.columns["events"], last.sources) == ("out/last", "int64", ("out/counts",))
    (size,) = found.parameters
    assert (size.name, size.type, size.default) == ("size", "INTERVAL", "1 minute")
    assert [str(info.name) for info in store.streams.list(internal=True)] == ["iot/sensors"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE STREAM out.a AS\nSELECT * FROM STREAM iot.nothing", "line 1: stream 'iot/nothing' not found"),
        ("CREATE STREAM out.a AS\nSELECT\n fahrenheit FROM STREAM iot.sensors", "line 3: .*`fahrenheit`"),
        ("CREATE STREAM out.a AS\nSELECT device, count(*) AS n FROM STREAM iot.sensors GROUP BY device", "line 2: "),
        ("CREATE STREAM out.a AS SELECT count(DISTINCT celsius) AS n FROM STREAM iot.sensors", "line 1: "),
        ("\nCREATE VIEW out.a AS SELECT 1", "line 2: expected CREATE STREAM"),
        ("CREATE STREAM iot.sensors AS SELECT device FROM STREAM iot.sensors", "line 1: "),
    ],
)
def test_what_can_not_run_is_refused_with_its_line(
    spark: SparkSession, store: ab.Store, sql: str, message: str
) -> None:
    with pytest.raises(InvalidSql, match=message):
        validate(store, sql, spark=spark)
