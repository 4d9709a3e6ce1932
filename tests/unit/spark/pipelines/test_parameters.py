"""Parameters of a pipeline's file: declared, given, used, refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.sql.parse import parse

SQL = """\
DECLARE PARAMETER size INTERVAL DEFAULT '10 seconds';
DECLARE PARAMETER least DOUBLE;
CREATE STREAM out.a WITH (watermark = :size) AS SELECT count(*) AS n FROM STREAM iot.s
WHERE c > :least GROUP BY window(at, :size);
CREATE STREAM out.b AS SELECT n FROM STREAM out.a"""


def test_a_statement_has_the_values_that_it_names() -> None:
    first, second = parse(SQL, {"least": "1.5"})
    assert dict(first.arguments) == {"size": "10 seconds", "least": 1.5}
    assert (first.windows[0].size_us, first.options.watermark_us, first.line) == (10_000_000, 10_000_000, 3)
    assert ":least" in first.query and "1.5" not in first.query
    assert dict(second.arguments) == {}
    (given, _) = parse(SQL, {"least": "1", "size": "1 minute"})
    assert given.windows[0].size_us == 60_000_000


def test_a_value_is_part_of_what_checkpoints_belong_to() -> None:
    def fingerprints(**values: str) -> list[str]:
        return [step.output.fingerprint for step in plan(SQL, values)]

    first, again, other = fingerprints(least="1"), fingerprints(least="1"), fingerprints(least="2")
    assert first == again
    assert first[0] != other[0] and first[1] == other[1]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("STRING", "a'b", "a'b"),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", "false", False),
        ("INT", "-7", -7),
        ("BIGINT", str(1 << 40), 1 << 40),
        ("DOUBLE", "1e3", 1000.0),
        ("DATE", "2026-01-31", date(2026, 1, 31)),
        ("TIMESTAMP", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("INTERVAL", "1 minute 30 seconds", "1 minute 30 seconds"),
    ],
)
def test_values_have_the_types_that_are_declared(kind: str, text: str, value: Any) -> None:
    sql = f"DECLARE PARAMETER x {kind}; CREATE STREAM out.a AS SELECT :x AS x FROM STREAM iot.s"
    (statement,) = parse(sql, {"x": text})
    assert dict(statement.arguments) == {"x": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BOOLEAN", "yes"),
        ("INT", str(1 << 31)),
        ("INT", "1.5"),
        ("BIGINT", str(1 << 63)),
        ("DOUBLE", "much"),
        ("DATE", "31.1.2026"),
        ("TIMESTAMP", "noon"),
        ("INTERVAL", "1 month"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: str, text: str) -> None:
    sql = f"\nDECLARE PARAMETER x {kind}; CREATE STREAM out.a AS SELECT :x AS x FROM STREAM iot.s"
    with pytest.raises(InvalidSql, match=f"line 2: parameter 'x' is of type {kind}, not '"):
        parse(sql, {"x": text})


@pytest.mark.parametrize(
    ("sql", "values", "message"),
    [
        (SQL, {}, r"line 2: these parameters have no default, so they need values: least \(DOUBLE\)"),
        (SQL, {"least": "1", "most": "2"}, "declares no parameter 'most'; it declares size, least"),
        ("CREATE STREAM out.a AS SELECT :x FROM STREAM iot.s", {}, "line 1: parameter ':x' is not declared"),
        ("CREATE STREAM out.a AS SELECT 1 FROM STREAM iot.s", {"x": "1"}, "it declares none"),
        ("DECLARE PARAMETER x INT; DECLARE PARAMETER x INT; SELECT 1", {}, "'x' is declared twice"),
        ("DECLARE PARAMETER x FLOAT; SELECT 1", {}, "with a type of STRING"),
        ("DECLARE PARAMETER x INT DEFAULT; SELECT 1", {}, "expected a value after DEFAULT"),
        ("DECLARE PARAMETER x INT 5; SELECT 1", {}, "expected ; after the declaration"),
    ],
)
def test_mistakes_are_refused(sql: str, values: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSql, match=message):
        parse(sql, values)


NAMED = """\
DECLARE PARAMETER source STREAM;
DECLARE PARAMETER target STREAM DEFAULT 'out/counts';
DECLARE PARAMETER key COLUMN;
DECLARE PARAMETER at COLUMN DEFAULT at;
CREATE STREAM :target WITH (key = :key, time = closed) AS
SELECT window.end AS closed, s.:key, ':key', count(*) AS n FROM STREAM :source AS s
GROUP BY window(:at, '1 minute'), s.:key"""


def test_names_of_streams_and_columns_are_parameters() -> None:
    (statement,) = parse(NAMED, {"source": "my-scope/in.1", "key": "de`vice"})
    assert (str(statement.target), [str(name) for name in statement.sources.values()]) == (
        "out/counts",
        ["my-scope/in.1"],
    )
    assert (statement.options.key, statement.windows[0].column) == ("de`vice", "at")
    assert statement.query.splitlines() == [
        "SELECT window.end AS closed, s.`de``vice`, ':key', count(*) AS n FROM anabranch_1_stream_1 AS s",
        "GROUP BY window(`at`, '1 minute'), s.`de``vice`",
    ]
    assert dict(statement.arguments) == {}


@pytest.mark.parametrize(
    "given",
    [
        {"source": "sensors", "key": "device"},
        {"source": "iot/sensors; DROP", "key": "device"},
        {"source": "iot/sensors`", "key": "device"},
        {"source": "iot/a/b", "key": "device"},
        {"source": "iot/sensors", "key": ""},
        {"source": "iot/sensors", "key": "a\nb"},
        {"source": "iot/sensors", "key": "a" * 300},
    ],
)
def test_what_is_no_name_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSql, match=r"line [13]: parameter '(source|key)' is of type (STREAM|COLUMN), not"):
        parse(NAMED, given)


def test_a_column_s_name_can_not_end_where_it_is_quoted() -> None:
    hostile = "a`, (SELECT 1) AS `b"
    (statement,) = parse(NAMED, {"source": "iot/sensors", "key": hostile})
    assert "s.`a``, (SELECT 1) AS ``b`, ':key'" in statement.query
