"""The conditions of checks: what they mean is held to DuckDB, row by row."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from anabranch.core.check_condition import parse_condition
from anabranch.core.checks import refuse_unusable, violations
from anabranch.errors import InvalidSql
from anabranch.model.check import StreamCheck

_ROWS = pa.RecordBatch.from_pylist(
    [
        {"n": 5, "x": 1.5, "s": "Oslo", "at": datetime(2026, 1, 2, tzinfo=UTC), "d": date(2026, 1, 1), "e": Decimal("1.50"),
         "b": True, "p": {"q": 1}},
        {"n": -7, "x": float("nan"), "s": "it's", "at": datetime(2025, 1, 1, tzinfo=UTC), "d": date(2020, 2, 29),
         "e": Decimal("-3.25"), "b": False, "p": {"q": None}},
        {"n": 0, "x": -0.0, "s": "", "at": None, "d": None, "e": Decimal(0), "b": None, "p": None},
        {"n": None, "x": None, "s": None, "at": None, "d": None, "e": None, "b": None, "p": {"q": 3}},
    ],
    schema=pa.schema(
        [("n", pa.int32()), ("x", pa.float64()), ("s", pa.string()), ("at", pa.timestamp("us", "UTC")), ("d", pa.date32()),
         ("e", pa.decimal128(9, 2)), ("b", pa.bool_()), ("p", pa.struct([("q", pa.int64())]))]
    ),
)  # fmt: skip

_CONDITIONS = [
    "n > 0",
    "n >= -7 AND n <> 0",
    "NOT n = 5 OR s = 'Oslo'",
    "n IN (5, 0)",
    "n NOT IN (5, NULL)",
    "s IN ('Oslo', 'it''s')",
    "n BETWEEN -10 AND 0",
    "n NOT BETWEEN -10 AND e",
    "s LIKE 'O%' OR s LIKE '_t''s'",
    "s NOT ILIKE 'o_LO'",
    "n IS NULL OR s IS NOT NULL",
    "b",
    "NOT b OR n > 0",
    "b = TRUE AND NULL",
    "n % 3 = -1",
    "n / 2 > 2.4",
    "10 / n = 2",
    "-n * 2 + 1 < 3 - -n",
    "length(s) > 3",
    "lower(s) = 'oslo' AND upper(trim(s)) = 'OSLO'",
    "abs(n) = 7",
    "regexp_matches(s, '^[A-Z][a-z]+$')",
    "\"at\" >= TIMESTAMP '2025-06-01T00:00:00Z'",
    "\"at\" < '2025-06-01T00:00:00Z'",
    "d = DATE '2020-02-29' OR d > '2025-12-31'",
    "e > 1.25",
    "e BETWEEN -4 AND 0",
    "p.q = 1",
    '"n" = N',
    "x = 1.5e0",
    "(n > 0) = b",
    "(n > 0) IS NULL",
    "1 = 1",
]


@pytest.mark.parametrize("condition", _CONDITIONS)
def test_a_condition_means_what_it_means_in_sql(condition: str) -> None:
    with duckdb.connect() as database:
        database.execute("SET timezone = 'UTC'")
        database.register("rows", pa.Table.from_batches([_ROWS]))
        expected = [row[0] for row in database.execute(f"SELECT ({condition}) FROM rows").fetchall()]
    assert parse_condition(condition).holds(_ROWS).to_pylist() == expected
    assert len(parse_condition(condition).holds(_ROWS.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("n >", "unexpected its end"),
        ("n > 0 n", "unexpected 'n'"),
        ("n = 1; DROP TABLE x", "can't be read at"),
        ("missing = 1", "unknown column 'missing'; expected one of n, x"),
        ("n", "true or false"),
        ("s > 1", "can't compare string with int64"),
        ("exists(n)", "unknown function exists"),
        ("length(s, s)", "takes 1 argument"),
        ("s LIKE n", "pattern as a text literal"),
        ("regexp_matches(s, '(')", "regular expression"),
        ("at > 'yesterday'", "not a time"),
        ("n = 99999999999999999999", "too large"),
        ("(" * 60 + "n", "nested too deeply"),
        ("p.z = 1", "unknown column 'z'"),
        ("s.z = 1", "no field 'z'"),
        ("NOT", "its end"),
        ("n IN ()", "unexpected"),
        ("n BETWEEN 1 OR 2", "expected AND"),
    ],
)
def test_what_is_no_condition_is_one_clear_error(condition: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message.replace("(", r"\(")):
        refuse_unusable([StreamCheck("c", condition)], _ROWS.schema)


def test_the_first_broken_check_of_each_row_is_named_with_the_values() -> None:
    checks = [StreamCheck("positive", "n > 0"), StreamCheck("capital", "regexp_matches(s, '^[A-Z]') OR n > 3")]
    assert [(each.row, str(each)) for each in violations(_ROWS, checks, range(10, 14))] == [
        (11, "row 11 breaks the check 'positive' (n > 0): n = -7"),
        (12, "row 12 breaks the check 'positive' (n > 0): n = 0"),
    ]
    assert [str(each) for each in violations(_ROWS, checks[1:], range(4))] == [
        "row 1 breaks the check 'capital' (regexp_matches(s, '^[A-Z]') OR n > 3): s = \"it's\", n = -7",
        "row 2 breaks the check 'capital' (regexp_matches(s, '^[A-Z]') OR n > 3): s = '', n = 0",
    ]


def test_a_row_for_which_a_check_overflows_is_refused_by_it() -> None:
    rows = pa.record_batch({"n": pa.array([1, 2**63 - 1])})
    with pytest.raises(Exception, match=r"check 'c' \(n \+ 1 > 0\) can't be evaluated: overflow"):
        list(violations(rows, [StreamCheck("c", "n + 1 > 0")], range(2)))
