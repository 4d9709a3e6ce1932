"""What is added to the conditions of full joins, which `tests/spark/test_join_model.py` runs."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql.parse import parse


def _condition(query: str) -> str:
    (statement,) = parse(f"CREATE STREAM s.out AS SELECT * FROM STREAM s.a AS a {query}")
    return statement.query.partition(" ON ")[2]


_CASE = "CASE WHEN a.k = 'x' AND true THEN 1 ELSE 2 END"


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("FULL OUTER JOIN STREAM s.b AS b ON a.k = b.k AND b.at >= a.at", ["a.k", "b.k"]),
        ("full join STREAM s.b AS b ON (a.k = b.k and (a.n = b.n))", ["a.k", "b.k", "a.n", "b.n"]),
        ("FULL JOIN STREAM s.b AS b ON b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR AND a.k = b.k", ["a.k", "b.k"]),
        ("FULL JOIN STREAM s.b AS b ON left(a.k, 2) = b.k -- comment\n WHERE a.n = b.n", ["left(a.k, 2)", "b.k"]),
        (f"FULL JOIN STREAM s.b AS b ON {_CASE} = b.n", [_CASE, "b.n"]),
        ("FULL JOIN STREAM s.b AS b ON a.k = b.k FULL JOIN STREAM s.c AS c ON c.n = a.n", ["a.k", "b.k"]),
        ("FULL JOIN STREAM s.b AS b ON a.`the key` = b.k", ["a.`the key`", "b.k"]),
        ("FULL JOIN STREAM s.b AS b ON a.k <=> b.k AND a.at = b.at", ["a.at", "b.at"]),
        ("FULL JOIN STREAM s.b AS b ON a.k = b.k OR a.n = b.n", []),  # Spark refuses it
        ("FULL JOIN STREAM s.b AS b ON NOT a.k = b.k", []),
        ("LEFT JOIN STREAM s.b AS b ON a.k = b.k", []),
        ("JOIN STREAM s.b AS full ON a.k = full.k", []),
    ],
)
def test_keys_of_a_full_join_are_not_null(query: str, keys: list[str]) -> None:
    tests = "".join(f"({each}) IS NOT NULL AND " for each in keys)
    assert _condition(query).startswith(tests + query.partition(" ON ")[2][:9])


@pytest.mark.parametrize("join", ["NATURAL FULL JOIN STREAM s.b", "FULL OUTER JOIN STREAM s.b USING (k)"])
def test_a_full_join_without_a_condition_of_its_own_is_refused(join: str) -> None:
    with pytest.raises(InvalidSql, match="a FULL JOIN of streams needs a condition"):
        parse(f"CREATE STREAM s.out AS SELECT * FROM STREAM s.a {join}")
