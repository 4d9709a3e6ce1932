"""Joins in pipelines, each held to DuckDB's result over the same events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidSql
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.run import run
from tests.parameters import rest_is_slow
from tests.spark.pipelines import BASE, SECOND, new_store, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_ORDERS = pa.schema([("id", pa.int64()), ("buyer", pa.string()), ("at", TIME_TYPE)])
_PAYMENTS = pa.schema([("order_id", pa.int64()), ("euros", pa.int64()), ("paid", TIME_TYPE)])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ab.Store]:
    """Orders, and payments of two of three: every fifth of them too late, every seventh paid twice."""
    with ab.connect(tmp_path_factory.mktemp("joins") / "river", create=True) as opened:
        opened.scopes.create("shop")
        opened.streams.create("shop/orders", schema=_ORDERS, key="id", time="at", scaling=2)
        opened.streams.create("shop/payments", schema=_PAYMENTS, key="order_id", time="paid")
        orders = [{"id": n, "buyer": f"b{n * n % 7}", "at": BASE + n * SECOND} for n in range(60)]
        payments = [
            {"order_id": n, "euros": n, "paid": BASE + (n + (20 if n % 5 == 0 else 3)) * SECOND}
            for n in range(64)
            if n % 3
        ]
        payments += [{"order_id": n, "euros": 1, "paid": BASE + (n + 5) * SECOND} for n in range(0, 60, 7)]
        payments.sort(key=lambda each: each["paid"])
        for stream, rows, schema in (("shop/orders", orders, _ORDERS), ("shop/payments", payments, _PAYMENTS)):
            with opened.writer(stream) as writer:
                for begin in range(0, len(rows), 25):
                    writer.write_batch(pa.Table.from_pylist(rows[begin : begin + 25], schema), atomic=True)
        yield opened


def _result(store: ab.Store, spark: SparkSession, name: str, query: str) -> Counter[tuple[Any, ...]]:
    sql = f"CREATE STREAM shop.{name} WITH (watermark = '30 seconds') AS {query}"
    with run(store, sql, name=name, spark=spark, once=True, flush=True, events_max=25) as pipeline:
        pipeline.await_termination()
        return _rows(pipeline.collect())


def _by_duckdb(store: ab.Store, query: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("SET timezone = 'UTC'")
        for name in ("orders", "payments"):
            with store.reader(f"shop/{name}") as reader:
                database.register(name, pa.Table.from_batches(list(reader.batches()), schema=reader.schema))
        return _rows(database.sql(query).to_arrow_table())


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


_INTERVAL = "p.order_id = o.id AND p.paid BETWEEN o.at AND o.at + INTERVAL 10 seconds"
_JOINS = {
    "full_outer": f"""SELECT o.id, p.order_id, p.euros, coalesce(p.paid, o.at) AS at
        FROM {{orders}} AS o FULL OUTER JOIN {{payments}} AS p ON {_INTERVAL}""",
    "inner_join": f"SELECT o.id, p.euros, p.paid FROM {{orders}} AS o JOIN {{payments}} AS p ON {_INTERVAL}",
    "left_outer": f"SELECT o.id, o.at, p.euros FROM {{orders}} AS o LEFT JOIN {{payments}} AS p ON {_INTERVAL}",
    "left_semi": f"SELECT o.id, o.at FROM {{orders}} AS o LEFT SEMI JOIN {{payments}} AS p ON {_INTERVAL}",
    "right_outer": f"SELECT o.buyer, p.euros, p.paid FROM {{orders}} AS o RIGHT JOIN {{payments}} AS p ON {_INTERVAL}",
    "self_join": """SELECT o.id, n.id AS next, n.at FROM {orders} AS o JOIN {orders} AS n
        ON n.buyer = o.buyer AND n.at > o.at AND n.at <= o.at + INTERVAL 6 seconds""",
    "self_left": """SELECT o.id, n.id AS next, o.at FROM {orders} AS o LEFT JOIN {orders} AS n
        ON n.buyer = o.buyer AND n.at > o.at AND n.at <= o.at + INTERVAL 6 seconds""",
}


@pytest.mark.parametrize("name", rest_is_slow(["self_left", *sorted(set(_JOINS) - {"self_left"})]))
def test_joins_of_streams_equal_joins_of_their_events(spark: SparkSession, store: ab.Store, name: str) -> None:
    found = _result(
        store, spark, name, _JOINS[name].format(orders="STREAM shop.orders", payments="STREAM shop.payments")
    )
    query = _JOINS[name].format(orders="orders", payments="payments").replace("LEFT SEMI", "SEMI")
    assert found == _by_duckdb(store, query)
    assert len(found) > 10


def test_rows_are_joined_with_the_version_as_of_their_time(spark: SparkSession, store: ab.Store) -> None:
    rates = pa.schema([("buyer", pa.string()), ("rate", pa.int64()), ("since", TIME_TYPE)])
    store.streams.create("shop/rates", schema=rates, key="buyer", time="since", scaling=2)
    versions = [
        {"buyer": f"b{n % 4}", "rate": n, "since": BASE + (n * 7 % 50) * SECOND}
        for n in (*range(20), *range(20, 60, 9))
    ]
    versions.append({"buyer": "b0", "rate": 1000, "since": versions[0]["since"]})  # of two at once, the later one
    with store.writer("shop/rates") as writer:
        writer.write_batch(pa.Table.from_pylist(versions, rates))
    found = _result(
        store,
        spark,
        "rated",
        """SELECT o.id, o.at, r.rate FROM STREAM shop.orders AS o LEFT JOIN VERSIONS shop.rates AS r
        ON r.buyer = o.buyer AND o.at >= r._valid_from AND o.at < r._valid_until""",
    )
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in rows(store, "shop/orders"):
        until = [each for each in versions if each["buyer"] == row["buyer"] and each["since"] <= _micros(row["at"])]
        newest = max(enumerate(until), key=lambda each: (each[1]["since"], each[0]), default=None)
        expected[row["id"], row["at"], None if newest is None else newest[1]["rate"]] += 1
    assert found == expected
    assert len({rate for _, _, rate in found}) > 8
    store.streams.create("shop/plain", schema=rates, key="buyer")
    with pytest.raises(InvalidSql, match="VERSIONS needs a stream with a key and an event time"):
        _result(store, spark, "no", "SELECT o.id FROM STREAM shop.orders AS o JOIN VERSIONS shop.plain AS r ON true")


@pytest.mark.slow
def test_a_checkpoint_with_an_earlier_format_of_state_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.sql.streaming.join.stateFormatVersion"
    assert spark.conf.get(name) == "4"
    sql = """CREATE STREAM out.pairs WITH (watermark = '30 seconds') AS
        SELECT a.at, b.at AS next FROM STREAM iot.sensors AS a JOIN STREAM iot.sensors AS b
        ON b.device = a.device AND b.at > a.at AND b.at <= a.at + INTERVAL 5 seconds"""
    with new_store(tmp_path / "river") as store:
        for version, first in (("2", 0), ("4", 4)):
            put(store, range(first, first + 4))
            spark.conf.set(name, version)
            with run(store, sql, name="p", spark=spark, once=True) as pipeline:
                pipeline.await_termination()
        found = sorted(_micros(row["at"]) - BASE for row in rows(store, "out/pairs"))
    assert found == [n * SECOND for n in range(5)]  # a device has an event each three seconds


def _micros(time: datetime) -> int:
    return round(time.timestamp() * SECOND)
