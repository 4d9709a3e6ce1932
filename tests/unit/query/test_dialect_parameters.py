"""Parameters written `?` in SQL of other systems keep their values, whatever the translation repeats or reorders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import anabranch as ab
from anabranch.errors import InvalidSql
from anabranch.query.dialects.translate import translate
from anabranch.query.engine import Query


@pytest.fixture(scope="module")
def query() -> Iterator[Query]:
    with ab.connect("memory://") as store, Query(store) as made:
        yield made


@pytest.mark.parametrize(
    ("dialect", "sql", "values", "result"),
    [
        ("materialize", "SELECT position(? in ?) AS x", ["b", "abc"], 2),
        ("trino", "SELECT strpos(?, ?) AS x", ["abc", "b"], 2),
        ("bigquery", "SELECT SAFE_CAST(? AS INT64) + ? AS x", ["7", 1], 8),
        ("trino", "SELECT x FROM (SELECT ? AS x, ? AS y) WHERE y = ? LIMIT ?", [1, 2, 2, 5], 1),
        ("risingwave", "SELECT ? || '?' || \"?\" AS x -- ?\nFROM (SELECT 'c' AS \"?\")", ["a"], "a?c"),
        ("risingwave", "SELECT $2 || $1 AS x", ["a", "b"], "ba"),
        ("azure", "SELECT CASE WHEN ? > ? THEN 'more' ELSE 'less' END AS x", [1, 2], "less"),
        ("snowflake", "SELECT IFF(? = ?, ?, ?) AS x", [1, 1, "same", "other"], "same"),
        ("ksqldb", "SELECT ? AS x FROM (SELECT 1 AS n) WHERE n = ? EMIT CHANGES", ["a", 1], "a"),
    ],
)
def test_each_parameter_has_its_value(
    query: Query, dialect: str, sql: str, values: list[object], result: object
) -> None:
    found = query.run(sql, values, dialect=dialect)
    assert found is not None
    assert [batch.to_pylist() for batch in found] == [[{"x": result}]]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT n ? FROM a.b", r"a parameter stands for a value only; write the name itself here \(character 10\)"),
        ("SELECT n FROM ?", r"a parameter stands for a value only; write the name itself here \(character 15\)"),
        ("SELECT n, FROM a.b WHERE ? ?", r"near '\?'|a parameter stands for a value only; write the name itself here"),
        ("SELECT '\ue000', n FROM a.b WHERE n = ?", "private use"),
        ("INSERT INTO a.c SELECT n FROM a.b WHERE n = ?", r"has no value in a pipeline; write :name.*\(character 45\)"),
        ("SELECT\n nothing(?) FROM a.b", r"the function nothing is not translated.*\(character 2\)"),
    ],
)
def test_a_parameter_where_there_can_be_none_is_refused_at_its_place(sql: str, said: str) -> None:
    with pytest.raises(InvalidSql, match=said):
        translate(sql, "trino")


def test_parameters_with_names_are_those_of_a_pipeline() -> None:
    translated = translate("INSERT INTO a.c SELECT n FROM a.b WHERE n = :least", "trino")
    assert translated.split()[-3:] == ["n", "=", ":least;"]
    assert "\ue000" in translate("SELECT '\ue000' AS x, n FROM a.b", "trino")
