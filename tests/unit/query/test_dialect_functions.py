"""Functions of other systems' SQL have the results of those systems in DuckDB. `tests/spark` holds Spark to the same cases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch.errors import InvalidSql
from anabranch.query.dialects import calls
from anabranch.query.dialects.translate import DialectOptions, Form, translate
from anabranch.query.dialects.written_calls import CALLS
from tests.unit.query.dialect_function_cases import APPROXIMATE, CASES, REFUSED, Case, typed

_TYPES = {"TIMESTAMP": "TIMESTAMPTZ", "STRING": "VARCHAR", "ARRAY<BIGINT>": "BIGINT[]"}


def results(case: Case) -> list[Any]:
    """The results of a case in DuckDB, in the order of its rows."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'; CREATE SCHEMA iot")
        columns = [each.split() for each in case.columns.split(",")]
        typed = ", ".join(f"{name} {_TYPES.get(kind, kind)}" for name, kind in columns)
        database.execute(f"CREATE TABLE iot.s (i BIGINT, {typed})")
        for number, row in enumerate(case.inputs):
            database.execute(f"INSERT INTO iot.s VALUES ({', '.join('?' * (1 + len(row)))})", [number, *row])
        found = translate(f"SELECT {case.statement} FROM s", case.dialect, "query", DialectOptions("iot"))
        return [row[-1] for row in sorted(database.sql(found.rstrip(";\n")).fetchall())]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_function_has_the_results_of_its_system(case: Case) -> None:
    assert typed(results(case)) == typed(case.results)


@pytest.mark.parametrize("case", APPROXIMATE, ids=str)
def test_an_approximate_quantile_is_near(case: Case) -> None:
    assert abs(results(case)[0] - case.result) <= 10


@pytest.mark.parametrize("form", ["query", "pipeline"])
@pytest.mark.parametrize(("dialect", "sql", "message"), REFUSED)
def test_a_form_that_differs_is_refused_at_its_line(form: Form, dialect: str, sql: str, message: str) -> None:
    """In both forms, with what to write instead."""
    text = f"SELECT d,\n {sql} AS v FROM s"
    if form == "pipeline":
        text = text.replace(" FROM s", " INTO r FROM s") if dialect == "azure" else f"CREATE TABLE r AS {text}"
    with pytest.raises(InvalidSql) as refused:
        translate(text, dialect, form, DialectOptions("iot"))
    assert message in str(refused.value) and refused.value.line == 2


@pytest.mark.parametrize("value", ["'1.7'", "x", "CAST(x AS STRING)", "REGEXP_EXTRACT(x, '1.*', 0)"])
@pytest.mark.parametrize("dialect", ["flink", "snowflake", "bigquery"])
def test_a_text_with_a_fraction_becomes_the_integer_of_its_system(dialect: str, value: str) -> None:
    """Flink cuts it off, Snowflake rounds it, and in the others it is no integer."""
    value = value.replace(", 0)", ")") if dialect == "bigquery" else value
    if dialect == "snowflake" and "REGEXP" in value:
        value = "SPLIT_PART(x, ',', 1)"
    for x, flink, snowflake in (("1.7", 1, 2), ("12", 12, 12)):
        sql = f"TRY_CAST({value} AS INT)" if dialect != "bigquery" else f"SAFE_CAST({value} AS INT64)"
        if x == "12":
            sql = sql.replace("'1.7'", "'12'")
        expected = {"flink": flink, "snowflake": snowflake, "bigquery": None if "." in x else 12}[dialect]
        assert results(Case(dialect, sql, "x STRING", [(x, expected)])) == [expected]


def test_a_text_that_is_no_integer_fails_where_its_system_fails() -> None:
    with pytest.raises(duckdb.ConversionException, match=r"'1\.7 is no whole number'"):
        results(Case("trino", "CAST(x AS integer)", "x STRING", [("1.7", None)]))


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        *((each, "SUBSTRING(x, 2, n)") for each in ("azure", "risingwave", "materialize", "bigquery")),
        *((each, "SUBSTRING(x, n, n)") for each in ("azure", "risingwave", "materialize", "bigquery")),
        *(("azure", "LEFT(x, n)"), ("bigquery", "RIGHT(x, n)")),
    ],
)
def test_a_negative_length_fails_where_its_system_fails(dialect: str, sql: str) -> None:
    with pytest.raises(duckdb.Error, match="the length of a text is negative"):
        results(Case(dialect, sql, "x STRING, n INT", [("abc", -1, None)]))


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "risingwave", "materialize", "azure"])
def test_a_division_by_zero_fails_where_its_system_fails(dialect: str) -> None:
    sql = f"a / CAST(b AS {'FLOAT64' if dialect == 'bigquery' else 'float'})"
    assert results(Case(dialect, sql, "a INT, b DOUBLE", [(3, 2.0, 1.5), (3, None, None), (None, 2.0, None)])) == [
        *(1.5, None, None)
    ]
    with pytest.raises(duckdb.Error, match="division by zero"):
        results(Case(dialect, sql, "a INT, b DOUBLE", [(3, 0.0, None)]))


def test_a_division_by_a_constant_is_written_as_it_is() -> None:
    assert "a / 2.0 " in " ".join(
        translate("SELECT a / 2.0 AS v FROM s", "snowflake", "query", DialectOptions("iot")).split()
    )
    assert results(Case("snowflake", "DIV0(a, b)", "a INT, b INT", [(3, 0, 0.0), (3, 2, 1.5)])) == [0.0, 1.5]


def test_a_quantile_over_neighbours_is_refused_in_a_pipeline() -> None:
    text = "CREATE TABLE r AS SELECT approx_percentile(x, 0.5) OVER (PARTITION BY y) AS v FROM s"
    with pytest.raises(InvalidSql, match="OVER is not supported in a pipeline"):
        translate(text, "trino", options=DialectOptions("iot"))


def test_the_bound_of_a_window_is_a_time_and_no_number() -> None:
    text = """CREATE TABLE r AS SELECT TIMESTAMPTOSTRING(WINDOWSTART, 'HH:mm') AS v FROM s
              WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY d EMIT CHANGES"""
    assert "date_format((window.start), 'HH:mm') AS v" in translate(text, "ksqldb", options=DialectOptions("iot", "at"))


def test_calls_that_would_grow_without_bound_are_refused() -> None:
    for dialect, deep in (
        ("flink", "REGEXP_EXTRACT(" * 40 + "x" + ", 'a')" * 40),
        ("flink", "CAST(" * 40 + "x" + " + 0.5 AS INT)" * 40),
        ("flink", "LEAST(a, " * 40 + "x" + ")" * 40),
        ("trino", "LEAST(a, GREATEST(" * 20 + "x" + ", b), c)" * 20),
        ("snowflake", "a / (" * 40 + "x" + ")" * 40),
        ("flink", "SUBSTRING(" * 40 + "x" + ", n)" * 40),
        ("bigquery", "LEFT(" * 40 + "x" + ", LENGTH(y) - n)" * 40),
    ):
        with pytest.raises(InvalidSql, match="nested too deeply"):
            translate(f"SELECT {deep} FROM s", dialect, "query", DialectOptions("iot"))


def _translated() -> list[tuple[str, str]]:
    """Dialects and names of the functions in the table, but for those that it has to refuse."""
    found = ((dialect, name, writer) for dialect, writers in CALLS.items() for name, writer in writers.items())
    return [(dialect, name) for dialect, name, writer in found if getattr(writer, "func", None) is not calls.refused]


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("function", ["zzz_qqq", "to_dat", "localtimestamp", "formt_date"])
def test_the_message_for_an_unknown_function_is_short(dialect: str, function: str) -> None:
    """Transports cut off long ones before their end, where the place is."""
    with pytest.raises(
        InvalidSql, match=r"docs/reference/dialects\.md lists those that are \(character 8\)$"
    ) as refused:
        translate(f"SELECT {function}(a) FROM s", dialect, "query", DialectOptions("iot"))
    assert f"the function {function} is not translated; " in str(refused.value) and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("function", "dialect", "alike"),
    [
        ("formt_date", "bigquery", "format_date or format_datetime"),
        ("dat_trunc", "snowflake", "date_trunc"),
        ("var_popp", "flink", "var_pop"),
    ],
)
def test_the_message_for_an_unknown_function_names_those_that_are_alike(
    function: str, dialect: str, alike: str
) -> None:
    with pytest.raises(InvalidSql, match=rf"did you mean {alike}\?"):
        translate(f"SELECT {function}(a) FROM s", dialect, "query", DialectOptions("iot"))


@pytest.mark.parametrize("form", ["query", "pipeline"])
def test_an_interval_with_its_sign_before_the_text_is_a_number_for_functions_too(form: Form) -> None:
    begin = "" if form == "query" else "INSERT INTO o "
    signed, number = (
        translate(f"{begin}SELECT DATETIME_ADD(t, INTERVAL {n} DAY) FROM s", "bigquery", form, DialectOptions("iot"))
        for n in ("-'3'", "-3")
    )
    assert signed == number


def test_every_function_has_a_case() -> None:
    texts: dict[str, str] = {}
    for case in [*CASES, *APPROXIMATE]:
        texts[case.dialect] = f"{texts.get(case.dialect, '')} {case.sql}".upper()
    missing = [
        (dialect, name)
        for dialect, name in _translated()
        if (name not in texts[dialect] if name == "~" else re.search(rf"\b{name}\(", texts[dialect]) is None)
    ]
    assert missing == []


def test_every_function_is_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "dialects.md").read_text()
    rows = [line.upper() for line in page.splitlines() if line.startswith("| `")]
    for dialect, name in _translated():
        if name not in ("TO_TIMESTAMP_NTZ", "TO_TIMESTAMP_LTZ", "TO_TIMESTAMP_TZ"):  # kinds of TO_TIMESTAMP
            assert any(f"`{dialect.upper()}`" in row and f"`{name}" in row for row in rows), (dialect, name)
