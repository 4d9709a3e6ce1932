"""Joins in pipelines over random events, held to a model that compares every pair of rows, and to DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import BASE, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string()), ("at", TIME_TYPE)])
_SPREAD_S: Final = 200  # of event times; many watermarks of 30 s pass meanwhile
_DISORDER_S: Final = 25  # less than the watermark's delay, so no event is late


@dataclass(frozen=True)
class _Row:
    n: int
    k: str | None
    at: int  # in seconds


@dataclass(frozen=True)
class _Bounds:
    """Of the partner's time relative to a row's, both inclusive, in seconds."""

    low: int
    high: int

    @property
    def sql(self) -> str:
        return f"BETWEEN o.at + INTERVAL '{self.low} seconds' AND o.at + INTERVAL '{self.high} seconds'"

    def hold(self, left: _Row, right: _Row) -> bool:
        return left.k is not None and left.k == right.k and self.low <= right.at - left.at <= self.high


_Pairs = Counter[tuple[int | None, int | None]]
_events = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, _SPREAD_S), st.integers(0, _DISORDER_S)),
    min_size=60,
    max_size=120,
)
_bounds = st.builds(lambda low, width: _Bounds(low, low + width), st.integers(-9, 9), st.integers(0, 12))
_ON: Final = "p.k = o.k AND p.at {bounds}"
_QUERIES: Final = {
    "joined": f"SELECT o.n, p.n AS m, o.at FROM {{orders}} AS o JOIN {{payments}} AS p ON {_ON}",
    "lefts": f"SELECT o.n, p.n AS m, o.at FROM {{orders}} AS o LEFT JOIN {{payments}} AS p ON {_ON}",
    "rights": f"SELECT o.n, p.n AS m, p.at FROM {{orders}} AS o RIGHT JOIN {{payments}} AS p ON {_ON}",
    "all": f"SELECT o.n, p.n AS m, coalesce(o.at, p.at) AS at FROM {{orders}} AS o FULL OUTER JOIN {{payments}} AS p ON {_ON}",
    "semi": f"SELECT o.n, o.n AS m, o.at FROM {{orders}} AS o LEFT SEMI JOIN {{payments}} AS p ON {_ON}",
    "selves": f"SELECT o.n, p.n AS m, o.at FROM {{orders}} AS o JOIN {{orders}} AS p ON {_ON}",
}
_VERSIONS: Final = """SELECT o.n, r.n AS m, o.at FROM STREAM shop.orders AS o LEFT JOIN VERSIONS shop.rates AS r
    ON r.k = o.k AND o.at >= r._valid_from AND o.at < r._valid_until"""
_MODELS: Final[dict[str, Callable[[Sequence[_Row], Sequence[_Row], _Bounds], _Pairs]]] = {
    "joined": lambda left, right, bounds: _inner(left, right, bounds),
    "lefts": lambda left, right, bounds: _inner(left, right, bounds) + _alone(left, right, bounds),
    "rights": lambda left, right, bounds: _inner(left, right, bounds) + _alone_right(left, right, bounds),
    "all": lambda left, right, bounds: (
        _inner(left, right, bounds) + _alone(left, right, bounds) + _alone_right(left, right, bounds)
    ),
    "semi": lambda left, right, bounds: Counter(
        (row.n, row.n) for row in left if any(bounds.hold(row, each) for each in right)
    ),
    "selves": lambda left, right, bounds: _inner(left, left, bounds),
}
_runs = count()


@settings(
    max_examples=4,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # each example starts Spark's queries: shrinking one takes too long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(orders=_events, payments=_events, bounds=_bounds)
def test_joins_of_random_events_equal_the_pairs_of_a_model(
    spark: SparkSession,
    tmp_path: Path,
    orders: list[tuple[str | None, int, int]],
    payments: list[tuple[str | None, int, int]],
    bounds: _Bounds,
) -> None:
    left, right = _rows(orders), _rows(payments)
    rates = [row for row in right if row.k is not None]
    folder = tmp_path / f"river-{next(_runs)}"
    with ab.connect(folder, create=True) as store:
        store.scopes.create("shop")
        for name, rows in (("orders", left), ("payments", right), ("rates", rates)):
            store.streams.create(f"shop/{name}", schema=_SCHEMA, key="k", time="at", scaling=2)
            with store.writer(f"shop/{name}") as writer:
                for begin in range(0, len(rows), 20):
                    writer.write_batch(_table(rows[begin : begin + 20]), atomic=True)
        texts = {
            name: query.format(orders="STREAM shop.orders", payments="STREAM shop.payments", bounds=bounds.sql)
            for name, query in _QUERIES.items()
        }
        texts["versions"] = _VERSIONS
        sql = ";\n".join(
            f"CREATE STREAM out.{name} WITH (watermark = '30 seconds') AS {query}" for name, query in texts.items()
        )
        with run(store, sql, name="joins", spark=spark, once=True, flush=True, events_max=20) as pipeline:
            pipeline.await_termination()
        found = {name: _pairs(_stored(store, f"out/{name}")) for name in texts}
    expected = {name: model(left, right, bounds) for name, model in _MODELS.items()}
    assert {name: _by_duckdb(query, left, right, bounds) for name, query in _QUERIES.items()} == expected
    expected["versions"] = _as_of(left, rates)
    assert _as_of_by_duckdb(left, rates) == expected["versions"]
    differences = {name: (found[name] - pairs, pairs - found[name]) for name, pairs in expected.items()}
    assert differences == dict.fromkeys(expected, (Counter(), Counter())), (left, right)  # too many, missing


def _rows(drawn: Sequence[tuple[str | None, int, int]]) -> list[_Row]:
    """In the order in which they are appended: by time, but for a delay of each."""
    ordered = sorted(drawn, key=lambda each: each[1] + each[2])
    return [_Row(number, key, at) for number, (key, at, _) in enumerate(ordered)]


def _table(rows: Sequence[_Row]) -> pa.Table:
    columns = [{"n": row.n, "k": row.k, "at": BASE + row.at * SECOND} for row in rows]
    return pa.Table.from_pylist(columns, _SCHEMA)


def _stored(store: ab.Store, stream: str) -> pa.Table:
    with store.reader(stream) as reader:
        return pa.Table.from_batches(list(reader.batches()), schema=reader.schema)


def _pairs(table: pa.Table) -> _Pairs:
    return Counter(zip(table.column("n").to_pylist(), table.column("m").to_pylist(), strict=True))


def _inner(left: Sequence[_Row], right: Sequence[_Row], bounds: _Bounds) -> _Pairs:
    return Counter((row.n, each.n) for row in left for each in right if bounds.hold(row, each))


def _alone(left: Sequence[_Row], right: Sequence[_Row], bounds: _Bounds) -> _Pairs:
    return Counter((row.n, None) for row in left if not any(bounds.hold(row, each) for each in right))


def _alone_right(left: Sequence[_Row], right: Sequence[_Row], bounds: _Bounds) -> _Pairs:
    return Counter((None, row.n) for row in right if not any(bounds.hold(each, row) for each in left))


def _as_of(left: Sequence[_Row], rates: Sequence[_Row]) -> _Pairs:
    def version(row: _Row) -> int | None:
        valid = [each for each in rates if each.k == row.k and each.at <= row.at]
        return max(valid, key=lambda each: (each.at, each.n)).n if valid else None

    return Counter((row.n, version(row)) for row in left)


def _as_of_by_duckdb(left: Sequence[_Row], rates: Sequence[_Row]) -> _Pairs:
    """Of versions with the same time, the last one is valid."""
    with duckdb.connect() as database:
        database.register("orders", _table(left))
        database.register("rates", _table(rates))
        result: Any = database.sql("""SELECT o.n, r.n AS m FROM orders AS o
            ASOF LEFT JOIN (SELECT k, "at", max(n) AS n FROM rates GROUP BY ALL) AS r
                ON r.k = o.k AND r."at" <= o."at"
            """)
        return _pairs(result.to_arrow_table())


def _by_duckdb(query: str, left: Sequence[_Row], right: Sequence[_Row], bounds: _Bounds) -> _Pairs:
    with duckdb.connect() as database:
        database.register("orders", _table(left))
        database.register("payments", _table(right))
        text = query.format(orders="orders", payments="payments", bounds=bounds.sql).replace("LEFT SEMI", "SEMI")
        result: Any = database.sql(text).to_arrow_table()
        return _pairs(result)
