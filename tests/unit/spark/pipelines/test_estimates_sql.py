"""The SQL of estimates over random windows, computed by DuckDB, held to `anabranch.core.sample_estimates`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.core import sample_estimates
from anabranch.spark.pipelines.sql.parse import parse

SQL: Final = """CREATE STREAM out.means WITH (shed = 'rate > 5') AS
SELECT device, count(*) AS events, count(celsius) AS known, sum(celsius) AS total, avg(celsius) AS mean
FROM STREAM iot.sensors GROUP BY device HAVING count(*) >= 1 AND coalesce(avg(celsius), 0) > -100"""
SCHEMA: Final = pa.schema([("device", pa.string()), ("celsius", pa.int64()), ("_shed_rate", pa.float64())])
NAMES: Final = (
    *("events", "events_error", "known", "known_error", "total", "total_error", "mean", "mean_error", "_shed"),
)

Event = tuple[str, int | None, float]
"""A kept event: its device, its value, and the chance with which it was kept."""
EVENTS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.none() | st.integers(-9, 9), st.sampled_from([1.0, 0.9, 0.5, 0.3333, 0.1, 0.01])
    ),
    min_size=1,
    max_size=25,
)


def by_duckdb(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    (statement,) = parse(SQL)
    (stream,) = statement.sources
    (text,) = sqlglot.transpile(statement.query, read="spark", write="duckdb")
    columns: list[Any] = [list(each) for each in zip(*events, strict=True)]
    with duckdb.connect() as database:
        database.register(stream, pa.table(columns, SCHEMA))
        return {row["device"]: row for row in database.sql(text).to_arrow_table().to_pylist()}


def by_definition(events: Sequence[Event]) -> dict[str, Any]:
    weights = np.array([1 / rate for _, _, rate in events])
    known = np.array([value is not None for _, value, _ in events])
    values = np.array([value for _, value, _ in events if value is not None], np.float64)
    total = sample_estimates.total(values, weights[known]) if known.any() else (None, None)
    mean = sample_estimates.average(values, weights[known]) if known.any() else (None, 0.0)
    every, valued = sample_estimates.count(weights), sample_estimates.count(weights[known], weights[~known])
    shed = 1 - len(events) / float(weights.sum())
    return dict(zip(NAMES, (*every, *valued, *total, *mean, shed), strict=True))


def plain(value: float | None) -> float:
    """Null as NaN, which pytest compares."""
    return math.nan if value is None else value


@given(EVENTS)
@example([("a", None, 0.01)])
@example([("a", 3, 0.01)])
@example([("a", 0, 0.5), ("a", 0, 0.5)])
@example([("a", 3, 0.5), ("a", None, 0.01), ("a", 4, 1.0), ("b", 2, 1.0)])
def test_estimates_in_sql_are_those_of_the_formulas(events: list[Event]) -> None:
    found = by_duckdb(events)
    assert found.keys() == {device for device, _, _ in events}
    for device, row in found.items():
        expected = by_definition([each for each in events if each[0] == device])
        assert {name: plain(row[name]) for name in NAMES} == pytest.approx(
            {name: plain(value) for name, value in expected.items()}, rel=1e-9, abs=1e-9, nan_ok=True
        )
