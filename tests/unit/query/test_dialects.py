"""SQL of other systems is translated, with the same results, or refused at its place."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress

import duckdb
import pytest
import sqlglot

from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.query.dialects.translate import DIALECTS, DialectOptions, translate
from anabranch.spark.pipelines.sql.parse import parse
from tests.unit.query.dialect_cases import PIPELINES, QUERIES, REFUSED

OPTIONS = DialectOptions(scope="iot", time="at")


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute("SET TimeZone = 'UTC'; CREATE SCHEMA iot")
        made.execute(
            """CREATE TABLE iot.sensors AS SELECT 'd' || (i % 3) AS device, i * 1.25 AS celsius, (i % 7)::VARCHAR AS note,
               make_timestamptz(1700000000000000 + i * 2300000) AS "at" FROM range(100) AS r(i)"""
        )
        made.execute(
            """CREATE TABLE iot.marks AS SELECT half, half::DECIMAL(9, 2) AS tenths, n::BIGINT AS whole, '12' AS note,
               make_timestamptz(1700000000000000 + us) AS "at"
               FROM (VALUES (-2.5::DOUBLE, 1, -1), (-1.5, 2, 0), (1.5, 3, 1), (2.5, 4, 10000000)) AS r(half, n, us)"""
        )
        made.execute("""CREATE TABLE iot.marked AS SELECT "at" AS "the time" FROM iot.marks""")
        yield made


def plain(sql: str) -> str:
    return re.sub(r"\s+", " ", sql).replace("( ", "(").replace(" )", ")").strip()


@pytest.mark.parametrize(("dialect", "text", "expected"), PIPELINES)
def test_a_statement_that_writes_becomes_one_of_a_pipeline(dialect: str, text: str, expected: str) -> None:
    found = translate(text, dialect, options=OPTIONS)
    assert plain(found) == plain(expected)
    (statement,) = parse(found)
    assert statement.target.scope == "iot" and statement.sources


@pytest.mark.parametrize(("dialect", "text", "same"), QUERIES)
def test_a_query_has_the_same_result(dialect: str, text: str, same: str, database: duckdb.DuckDBPyConnection) -> None:
    found = database.sql(translate(text, dialect, "query", OPTIONS).rstrip(";\n")).fetchall()
    assert found and sorted(map(repr, found)) == sorted(map(repr, database.sql(same).fetchall()))


@pytest.mark.parametrize(
    ("dialect", "aggregate", "kind", "result"),
    [
        ("bigquery", "COUNTIF(celsius > 3)", "BIGINT", 97),
        ("bigquery", "COUNTIF(DISTINCT celsius > 3)", "BIGINT", 1),
        ("bigquery", "COUNTIF(note IS NULL)", "BIGINT", 0),
        ("snowflake", "COUNT_IF(celsius > 3)", "BIGINT", 97),
        ("trino", "count_if(celsius > 3) FILTER (WHERE device = 'd0')", "BIGINT", 33),
        ("trino", "sum(1) FILTER (WHERE device = 'd0')", "BIGINT", 34),
        ("flink", "SUM(CASE WHEN celsius > 3 THEN 1 ELSE 0 END)", "BIGINT", 97),
        ("flink", "SUM(CAST(note AS INT) * 2 + 1)", "BIGINT", 690),
        ("azure", "SUM(LEN(note))", "BIGINT", 100),
        ("ksqldb", "SUM(INSTR(device, '1'))", "BIGINT", 66),
        ("bigquery", "SUM(DISTINCT CAST(note AS INT64))", "BIGINT", 21),
        ("bigquery", "SUM(IF(celsius > 3, 1, NULL))", "BIGINT", 97),
        ("bigquery", "SUM(COALESCE(CAST(note AS INT64), 0))", "BIGINT", 295),
        ("materialize", "sum(note::int)", "BIGINT", 295),
        ("risingwave", "sum(length(note))", "BIGINT", 100),
        # Decimals of 38 digits there.
        ("risingwave", "sum(note::bigint)", "HUGEINT", 295),
        ("snowflake", "SUM(CASE WHEN celsius > 3 THEN 1 ELSE 0 END)", "HUGEINT", 97),
        ("trino", "sum(floor(celsius / 2e0))", "DOUBLE", 3050.0),
    ],
)
def test_an_aggregate_has_the_type_of_its_system(
    dialect: str, aggregate: str, kind: str, result: object, database: duckdb.DuckDBPyConnection
) -> None:
    found = database.sql(translate(f"SELECT {aggregate} AS v FROM sensors", dialect, "query", OPTIONS).rstrip(";\n"))
    assert ([str(each) for each in found.types], found.fetchall()) == ([kind], [(result,)])


def test_an_aggregate_over_neighbours_has_the_type_of_its_system(database: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT COUNTIF(celsius > 3) OVER (PARTITION BY CAST(note AS INT64)) AS n, SUM(1) OVER (PARTITION BY device) AS m FROM sensors"
    found = database.sql(translate(text, "bigquery", "query", OPTIONS).rstrip(";\n"))
    assert [str(each) for each in found.types] == ["BIGINT", "BIGINT"]
    assert {row[1] for row in found.fetchall()} == {33, 34}


@pytest.mark.parametrize(("dialect", "text", "line", "char", "message"), REFUSED)
def test_what_has_no_translation_is_refused_at_its_place(
    dialect: str, text: str, line: int | None, char: int | None, message: str
) -> None:
    with pytest.raises(InvalidSql) as refused:
        translate(text, dialect, options=OPTIONS)
    assert message in str(refused.value) and refused.value.line == line
    if char is not None:
        assert f"(character {char})" in str(refused.value)


def test_a_form_that_a_statement_cannot_have_is_refused() -> None:
    for text, form, message in (
        ("INSERT INTO a SELECT b FROM c", "query", "a query can't write to a stream"),
        ("SELECT b FROM c", "pipeline", "a pipeline must write to a stream"),
    ):
        with pytest.raises(InvalidSql, match=message):
            translate(text, "flink", form, OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(InvalidSql, match="say its scope with --scope"):
        translate("SELECT b FROM c", "trino")
    with pytest.raises(InvalidSql, match="name its column with --time"):
        translate("CREATE TABLE a AS SELECT b FROM c WINDOW SESSION (5 SECONDS) GROUP BY b", "ksqldb")
    with pytest.raises(InvalidArgument, match="'oracle' is not a supported dialect"):
        translate("SELECT 1", "oracle")
    assert len(DIALECTS) == 8


def test_every_statement_is_a_pipeline_of_its_own() -> None:
    found = translate("INSERT INTO a SELECT b FROM c; INSERT INTO d SELECT b FROM a;", "flink", options=OPTIONS)
    assert [str(statement.target) for statement in parse(found)] == ["iot/a", "iot/d"]


@pytest.mark.parametrize(
    "begin", ["EXECUTE STATEMENT SET BEGIN", "execute statement set\nbegin", "BEGIN STATEMENT SET;"]
)
def test_each_statement_of_a_set_is_a_pipeline_of_its_own(begin: str) -> None:
    inner = "INSERT INTO a SELECT b FROM c; INSERT INTO d SELECT b FROM a WHERE b = 'END';"
    found = translate(f"{begin} {inner} END; INSERT INTO e SELECT b FROM a", "flink", options=OPTIONS)
    assert found == translate(f"{inner} INSERT INTO e SELECT b FROM a", "flink", options=OPTIONS)
    assert [str(statement.target) for statement in parse(found)] == ["iot/a", "iot/d", "iot/e"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT b FROM c;", 1, "this STATEMENT SET has no END;"),
        ("INSERT INTO a SELECT b FROM c;\nEND;", 2, "this END ends no STATEMENT SET"),
        ("BEGIN STATEMENT SET;\nBEGIN STATEMENT SET; END; END;", 2, "a STATEMENT SET in another one is not supported"),
        ("EXECUTE STATEMENT SET BEGIN\nSELECT nothing_known(b) FROM c; END;", 2, "nothing_known is not translated"),
        ("SELECT b FROM c;\nEXECUTE q", 2, "only SELECT, CREATE"),
    ],
)
def test_what_is_wrong_with_a_set_is_refused_at_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(InvalidSql, match=message) as refused:
        translate(text, "flink", options=OPTIONS)
    assert refused.value.line == line


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "text",
    [
        *(
            "SHOW TABLES",
            "CALL f()",
            "GRANT a TO b",
            "EXPLAIN SELECT 1",
            "ALTER TABLE x y z",
            "SET 'a' = 'b'",
            "EXECUTE q",
        ),
        *("USE x", "DESCRIBE x", "EXECUTE STATEMENT SET BEGIN SELECT 1; END;", "ALTER SESSION SET x = 1", "KILL 1"),
        *("CREATE FUNCTION f AS 'g'", "CREATE TABLE t AS CALL f()", "DECLARE x INT", "COMMENT ON TABLE x IS 'y'"),
    ],
)
def test_the_parser_logs_nothing(dialect: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with suppress(InvalidSql):
        translate(text, dialect, options=OPTIONS)
    assert caplog.records == []


def test_what_the_parser_warns_of_is_refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tree = sqlglot.parse_one("SELECT 1")

    def parsed(*arguments: object, **options: object) -> object:
        logging.getLogger("sqlglot").warning("the parser %s", "is not sure")
        return tree

    monkeypatch.setattr(sqlglot, "parse_one", parsed)
    with pytest.raises(InvalidSql, match=r"line 2: the statement is not translated: the parser is not sure"):
        translate("\nSELECT 1", "trino")
    assert caplog.records == []
    logging.getLogger("sqlglot").warning("of somebody else")
    assert [record.getMessage() for record in caplog.records] == ["of somebody else"]
