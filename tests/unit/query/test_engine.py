"""Queries of one object, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import anabranch as ab
from anabranch.errors import Closed, InvalidArgument, InvalidSql, NotFound
from anabranch.query.engine import Query
from anabranch.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    with ab.connect("memory://") as made:
        for scope in ("iot", "old"):
            made.scopes.create(scope)
            made.streams.create(f"{scope}/a")
        yield made


def count(query: Query, sql: str) -> int:
    found = query.run(sql)
    assert found is not None
    return sum(batch.num_rows for batch in found)


def test_a_query_does_not_depend_on_streams_and_scopes_of_earlier_ones(store: Store) -> None:
    with Query(store) as query:
        assert count(query, "SELECT * FROM old.a") == 0
        store.streams.delete("old/a")
        assert count(query, "SELECT * FROM iot.a") == 0
        store.scopes.delete("old")
        assert count(query, "SELECT * FROM iot.a") == 0
        with pytest.raises((InvalidSql, NotFound), match="old"):
            query.run("SELECT * FROM old.a")


def test_a_closed_query_neither_runs_nor_describes(store: Store) -> None:
    query = Query(store)
    query.close()
    with pytest.raises(Closed):
        query.run("SELECT 1")
    with pytest.raises(Closed):
        query.describe("SELECT 1")


def test_sql_of_another_system_is_translated_or_refused(store: Store) -> None:
    with Query(store) as query:
        found = query.run("SELECT SAFE_CAST(? AS INT64) AS n", ["x"], dialect="bigquery")
        assert found is not None
        assert [batch.to_pylist() for batch in found] == [[{"n": None}]]
        with pytest.raises(InvalidSql, match="syntax error"):
            query.run("SELECT SAFE_CAST(1 AS INT64) AS n")
        with pytest.raises(InvalidSql, match="line 2: DATE_DIFF in whole months") as refused:
            query.run("SELECT 1,\n date_diff('month', key, key) FROM iot.a", dialect="trino")
        assert refused.value.line == 2
        with pytest.raises(InvalidArgument, match="expected one of flink"):
            query.run("SELECT 1", dialect="oracle")
