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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.core import sample_estimates
from anabranch.spark.pipelines.sql.parse import parse

SQL: Final = """CREATE STREAM out.means WITH (shed = 'rate > 5') AS
SELECT device, count(*) AS events, count(celsius) AS known, sum(celsius) AS total, avg(celsius) AS mean
FROM STREAM iot.sensors GROUP BY device HAVING count(*) >= 1 AND coalesce(avg(celsius), 0) > -100"""
SCHEMA: Final = pa.schema([("device", pa.int64()), ("celsius", pa.int64()), ("_shed_rate", pa.float64())])
NAMES: Final = (
    *("events", "events_error", "known", "known_error", "total", "total_error", "mean", "mean_error", "_shed"),
)

Event = tuple[int | None, float]
"""A kept event: its value, and the chance with which it was kept."""
WINDOWS = st.lists(
    st.lists(
        st.tuples(st.none() | st.integers(-9, 9), st.sampled_from([1.0, 0.9, 0.5, 0.3333, 0.1, 0.01])),
        min_size=1,
        max_size=20,
    ),
    min_size=1,
    max_size=20,
)
FEW: Final[list[list[Event]]] = [
    [(None, 0.01)],
    [(None, 0.01), (None, 1.0)],
    [(3, 0.01)],
    [(0, 0.5), (0, 0.5)],
    [(3, 0.5), (None, 0.01), (4, 1.0)],
    [(2, 1.0)],
    [(2, 1.0), (4, 0.5)],
]


def by_duckdb(windows: Sequence[Sequence[Event]]) -> list[dict[str, Any]]:
    """The results of each window. One query for all of them: DuckDB takes a second to plan it."""
    (statement,) = parse(SQL)
    (stream,) = statement.sources
    (text,) = sqlglot.transpile(statement.query, read="spark", write="duckdb")
    rows = [(number, *event) for number, window in enumerate(windows) for event in window]
    columns: list[Any] = [list(each) for each in zip(*rows, strict=True)]
    with duckdb.connect() as database:
        database.register(stream, pa.table(columns, SCHEMA))
        found = {row["device"]: row for row in database.sql(text).to_arrow_table().to_pylist()}
    assert found.keys() == set(range(len(windows)))
    return [found[number] for number in range(len(windows))]


def by_definition(events: Sequence[Event]) -> dict[str, Any]:
    weights = np.array([1 / rate for _, rate in events])
    known = np.array([value is not None for value, _ in events])
    values = np.array([value for value, _ in events if value is not None], np.float64)
    total = sample_estimates.total(values, weights[known]) if known.any() else (None, None)
    mean = sample_estimates.average(values, weights[known]) if known.any() else (None, 0.0)
    every, valued = sample_estimates.count(weights), sample_estimates.count(weights[known], weights[~known])
    shed = 1 - len(events) / float(weights.sum())
    return dict(zip(NAMES, (*every, *valued, *total, *mean, shed), strict=True))


def plain(value: float | None) -> float:
    """Null as NaN, which pytest compares."""
    return math.nan if value is None else value


@settings(max_examples=5)
@given(WINDOWS)
@example(FEW)
def test_estimates_in_sql_are_those_of_the_formulas(windows: list[list[Event]]) -> None:
    for events, row in zip(windows, by_duckdb(windows), strict=True):
        expected = by_definition(events)
        assert {name: plain(row[name]) for name in NAMES} == pytest.approx(
            {name: plain(value) for name, value in expected.items()}, rel=1e-9, abs=1e-9, nan_ok=True
        ), events
