"""Calls of functions in the SQL of other systems, with the results that those systems have.

The unit tests run their translation in DuckDB, those of Spark run it in Spark. Times are in UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """An expression over columns; of each row its result. For an aggregate it is one result, of all rows."""

    dialect: str
    sql: str
    columns: str
    """Names and types, of TIMESTAMP, BIGINT, INT, DOUBLE and STRING."""
    rows: list[tuple[Any, ...]]
    """The values of the columns and, unless `result` is given, the result."""
    result: Any = ...

    @property
    def is_aggregate(self) -> bool:
        return self.result is not ...

    @property
    def inputs(self) -> list[tuple[Any, ...]]:
        count = len(self.columns.split(","))
        return [tuple(map(_value, row[:count], self.columns.split(","))) for row in self.rows]

    @property
    def results(self) -> list[Any]:
        return [self.result] if self.is_aggregate else [_value(row[-1], "") for row in self.rows]

    @property
    def statement(self) -> str:
        return f"{self.sql} AS v" if self.is_aggregate else f"i, {self.sql} AS v"

    def __str__(self) -> str:
        return f"{self.dialect}-{self.sql}"


_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d(\.\d+)?)?)?")


def _value(value: Any, column: str) -> Any:
    """A text such as 2026-01-31 is a time, unless it is of a column of texts. A result that is a text begins with =."""
    if isinstance(value, str) and value.startswith("="):
        return value[1:]
    if isinstance(value, str) and "STRING" not in column and _TIME.fullmatch(value):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value


def typed(values: list[Any]) -> list[tuple[str, Any]]:
    """The values with their types: 1 and 1.0 are not the same result."""
    return [(type(value).__name__, value) for value in values]


_AT = "a TIMESTAMP"
_AN = "a TIMESTAMP, n BIGINT"
_AB = "a TIMESTAMP, b TIMESTAMP"
_X = "x STRING"
_MONTH_ENDS = [
    ("2026-01-31 10:00:00", "2026-02-28 10:00:00"),
    ("2024-01-31", "2024-02-29"),
    ("2026-12-31 23:59:59.999999", "2027-01-31 23:59:59.999999"),
    ("1969-12-31 23:59:59.5", "1970-01-31 23:59:59.5"),
    (None, None),
]
_HOURS = [
    ("2026-01-31 23:30:00", 1, "2026-02-01 00:30:00"),
    ("1970-01-01 00:30:00", -1, "1969-12-31 23:30:00"),
    ("2026-03-29 01:30:00", 24, "2026-03-30 01:30:00"),
    ("2026-01-01", 0, "2026-01-01"),
    (None, 1, None),
    ("2026-01-01", None, None),
]


def _units(sign: int = 1) -> list[tuple[Any, ...]]:
    """Whole units of 1 s between two times, which are cut off towards zero."""
    return [
        ("2026-01-01 00:00:00.9", "2026-01-01 00:00:02.8", sign * 1),
        ("2026-01-01 00:00:02.8", "2026-01-01 00:00:00.9", sign * -1),
        ("2026-01-01 00:00:00.1", "2026-01-01 00:00:00.9", 0),
        ("1969-12-31 23:59:59.5", "1970-01-01 00:00:00.5", sign * 1),
        (None, "2026-01-01", None),
        ("2026-01-01", None, None),
    ]


_SECONDS_CROSSED = [
    ("2026-01-01 00:00:00.9", "2026-01-01 00:00:02.8", 2),
    ("2026-01-01 00:00:02.8", "2026-01-01 00:00:00.9", -2),
    ("2026-01-01 00:00:00.1", "2026-01-01 00:00:00.9", 0),
    ("1969-12-31 23:59:59.9", "1970-01-01 00:00:00.1", 1),
    (None, "2026-01-01", None),
]
_YEARS_CROSSED = [
    ("2025-12-31 23:59:59.999999", "2026-01-01", 1),
    ("2026-01-01", "2026-12-31 23:59:59.9", 0),
    ("2026-01-01", "2024-12-31", -2),
]
_MONTHS_CROSSED = [
    ("2026-01-31", "2026-02-01", 1),
    ("2026-02-28", "2026-01-31 23:59:59", -1),
    ("2026-01-01", "2026-01-31 23:59:59", 0),
]
_MILLISECONDS = [
    (0, "1970-01-01"),
    (-1, "1969-12-31 23:59:59.999"),
    (1767225600123, "2026-01-01 00:00:00.123"),
    (None, None),
]
_SECONDS = [(0, "1970-01-01"), (-1, "1969-12-31 23:59:59"), (1767225600, "2026-01-01"), (None, None)]
_SINCE_1970 = [
    ("1970-01-01 00:00:01.999999", 1),
    ("1969-12-31 23:59:59.5", -1),
    ("1969-12-31 23:59:59", -1),
    ("2026-01-01", 1767225600),
    (None, None),
]
_WRITTEN = [
    ("2026-01-02 03:04:05.678901", "=2026-01-02 03:04:05"),
    ("1969-12-31 23:59:59.999999", "=1969-12-31 23:59:59"),
    ("0999-10-11 12:00:00", "=0999-10-11 12:00:00"),
    (None, None),
]
_WRITTEN_ISO = [
    ("2026-01-02 03:04:05.678901", "=2026-01-02T03:04:05.678Z"),
    ("1970-01-01", "=1970-01-01T00:00:00.000Z"),
]

_CUT_OFF: dict[int, list[tuple[Any, ...]]] = {
    0: [
        *(("2026-01-01 00:00:01.999999", "2026-01-01 00:00:01"), ("1969-12-31 23:59:59.5", "1969-12-31 23:59:59")),
        (None, None),
    ],
    3: [
        ("2026-01-01 00:00:01.001999", "2026-01-01 00:00:01.001"),
        ("1969-12-31 23:59:59.9995", "1969-12-31 23:59:59.999"),
        (None, None),
    ],
    6: [("2026-01-01 00:00:01.999999", "2026-01-01 00:00:01.999999"), (None, None)],
}
_ROUNDED: dict[int, list[tuple[Any, ...]]] = {
    0: [
        *(("2026-01-01 00:00:01.499999", "2026-01-01 00:00:01"), ("2026-01-01 00:00:01.5", "2026-01-01 00:00:02")),
        *(("1969-12-31 23:59:59.5", "1970-01-01"), ("1969-12-31 23:59:59.4", "1969-12-31 23:59:59"), (None, None)),
    ],
    3: [
        ("2026-01-01 00:00:01.001499", "2026-01-01 00:00:01.001"),
        ("2026-01-01 00:00:01.9995", "2026-01-01 00:00:02"),
        ("1969-12-31 23:59:59.9985", "1969-12-31 23:59:59.999"),
        (None, None),
    ],
    6: [("2026-01-01 00:00:01.999999", "2026-01-01 00:00:01.999999"), (None, None)],
}
_AT_TWO_MS = [("2026-01-01 00:00:01.002", True), ("2026-01-01 00:00:01.0015", False)]

TIMES = [
    # Sums. A month after the last day of a longer one is the last day of the shorter one, in all systems.
    *(
        Case(dialect, sql, _AT, _MONTH_ENDS)
        for dialect, sql in (
            ("flink", "TIMESTAMPADD(MONTH, 1, a)"),
            ("azure", "DATEADD(month, 1, a)"),
            ("azure", "DATEADD(mm, 1, a)"),
            ("snowflake", "DATEADD(month, 1, a)"),
            ("snowflake", "DATEADD('mon', 1, a)"),
            ("snowflake", "TIMESTAMPADD(MONTH, 1, a)"),
            ("bigquery", "DATETIME_ADD(a, INTERVAL 1 MONTH)"),
            ("bigquery", "DATETIME_SUB(a, INTERVAL -1 MONTH)"),
            ("trino", "date_add('month', 1, a)"),
            ("flink", "a + INTERVAL '1' MONTH"),
            ("risingwave", "a + INTERVAL '1 month'"),
            ("materialize", "a - INTERVAL '-1' MONTH"),
            ("snowflake", "a + INTERVAL '1 month'"),
            ("trino", "a + INTERVAL '1' MONTH"),
            ("trino", "a - INTERVAL -'1' MONTH"),
        )
    ),
    *(
        Case(dialect, sql, _AN, _HOURS)
        for dialect, sql in (
            ("flink", "TIMESTAMPADD(HOUR, n, a)"),
            ("ksqldb", "TIMESTAMPADD(HOURS, n, a)"),
            ("ksqldb", "TIMESTAMPSUB(HOURS, -n, a)"),
            ("azure", "DATEADD(hh, n, a)"),
            ("snowflake", "TIMEADD(hours, n, a)"),
            ("bigquery", "TIMESTAMP_ADD(a, INTERVAL n HOUR)"),
            ("bigquery", "TIMESTAMP_SUB(a, INTERVAL (0 - n) HOUR)"),
            ("trino", "date_add('hour', n, a)"),
            ("flink", "a + n * INTERVAL '1' HOUR"),
            ("materialize", "a + n * INTERVAL '1 hour'"),
        )
    ),
    Case("azure", "DATEADD(quarter, n, a)", _AN, [("2026-01-31", 1, "2026-04-30"), ("2026-01-31", -4, "2025-01-31")]),
    Case("trino", "date_add('quarter', 1, a)", _AT, [("2025-11-30", "2026-02-28")]),
    Case("flink", "a - INTERVAL '1' QUARTER", _AT, [("2026-05-31", "2026-02-28")]),
    Case("flink", "a + INTERVAL -'1' QUARTER", _AT, [("2026-05-31", "2026-02-28")]),
    Case("snowflake", "DATEADD(year, n, a)", _AN, [("2024-02-29", 1, "2025-02-28"), ("2024-02-29", 4, "2028-02-29")]),
    Case("trino", "date_add('week', n, a)", _AN, [("2026-01-31", 1, "2026-02-07"), ("2026-01-31", -1, "2026-01-24")]),
    Case("trino", "date_add('millisecond', n, a)", _AN, [("1970-01-01", -1, "1969-12-31 23:59:59.999")]),
    Case(
        "bigquery", "TIMESTAMP_ADD(a, INTERVAL n MICROSECOND)", _AN, [("1970-01-01", -1, "1969-12-31 23:59:59.999999")]
    ),
    Case("ksqldb", "TIMESTAMPSUB(DAYS, n, a)", _AN, [("2026-03-01", 1, "2026-02-28"), ("2026-03-01", None, None)]),
    # "rounds the value to the nearest integer" there, and cuts the fraction off in Azure.
    Case(
        "snowflake",
        "DATEADD(day, n, a)",
        "a TIMESTAMP, n DOUBLE",
        [("2026-01-01", 1.5, "2026-01-03"), ("2026-01-01", -1.4, "2025-12-31")],
    ),
    Case(
        "azure",
        "DATEADD(dd, n, a)",
        "a TIMESTAMP, n DOUBLE",
        [("2026-01-01", 1.9, "2026-01-02"), ("2026-01-01", -1.9, "2025-12-31")],
    ),
    Case(
        "azure", "DATEADD(second, n, '1970-01-01')", "n INT", [(1767225600, "2026-01-01"), (-1, "1969-12-31 23:59:59")]
    ),
    # Differences in whole units.
    Case("flink", "TIMESTAMPDIFF(SECOND, a, b)", _AB, _units()),
    Case("bigquery", "TIMESTAMP_DIFF(b, a, SECOND)", _AB, _units()),
    Case("bigquery", "TIMESTAMP_DIFF(a, b, SECOND)", _AB, _units(-1)),
    Case("trino", "date_diff('second', a, b)", _AB, _units()),
    # BigQuery's documentation: "only the number of whole specified HOUR intervals are included".
    Case("bigquery", "TIMESTAMP_DIFF(a, b, HOUR)", _AB, [("2001-02-01 01:00:00", "2001-02-01 00:00:01", 0)]),
    Case(
        "bigquery",
        "TIMESTAMP_DIFF(a, b, DAY)",
        _AB,
        [("2018-08-14 10:00", "2018-08-15 09:59", 0), ("2018-08-15 10:00", "2018-08-14 10:00", 1)],
    ),
    Case("bigquery", "TIMESTAMP_DIFF(a, b, MICROSECOND)", _AB, [("1970-01-01", "1969-12-31 23:59:59.999999", 1)]),
    # Both systems cut the times off at milliseconds before.
    Case("flink", "TIMESTAMPDIFF(SECOND, a, b)", _AB, [("2026-01-01 00:00:00.0005", "2026-01-01 00:00:01", 1)]),
    Case("trino", "date_diff('second', a, b)", _AB, [("2026-01-01 00:00:00.0005", "2026-01-01 00:00:01", 1)]),
    Case("trino", "date_diff('millisecond', a, b)", _AB, [("1969-12-31 23:59:59.9999", "1970-01-01 00:00:00.0009", 1)]),
    Case(
        "flink",
        "TIMESTAMPDIFF(DAY, a, b)",
        _AB,
        [("2026-01-31 12:00", "2026-02-01 11:59", 0), ("2026-02-01 12:00", "2026-01-31 12:00", -1)],
    ),
    Case(
        "flink",
        "TIMESTAMPDIFF(WEEK, a, b)",
        _AB,
        [("2026-01-01", "2026-01-15", 2), ("2026-01-08", "2026-01-01 00:00:01", 0)],
    ),
    Case("trino", "date_diff('week', a, b)", _AB, [("2026-01-01", "2026-01-14 23:59:59", 1)]),
    Case(
        "trino",
        "date_diff('hour', a, b)",
        _AB,
        [("2026-01-01 00:59:59", "2026-01-01 01:00:00", 0), ("2026-01-02", "2026-01-01", -24)],
    ),
    Case(
        "flink",
        "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', a)",
        _AT,
        [("2026-01-01 00:00:00.5", 1767225600)],
    ),
    # Differences in boundaries.
    *(
        Case(dialect, f"{function}({unit}, a, b)", _AB, rows)
        for dialect, function in (
            ("azure", "DATEDIFF"),
            ("snowflake", "DATEDIFF"),
            ("snowflake", "TIMESTAMPDIFF"),
            ("snowflake", "TIMEDIFF"),
        )
        for unit, rows in (
            ("second", _SECONDS_CROSSED),
            ("year", _YEARS_CROSSED),
            ("month", _MONTHS_CROSSED),
            ("quarter", [("2026-03-31 23:59:59", "2026-04-01", 1), ("2026-04-01", "2026-06-30", 0)]),
            ("day", [("2026-01-31 23:59:59", "2026-02-01", 1), ("1970-01-01", "1969-12-31 23:59:59", -1)]),
            ("hour", [("2026-01-01 10:59:59", "2026-01-01 11:00:00", 1)]),
            ("minute", [("1969-12-31 23:59:30", "1969-12-31 23:59:59", 0), ("1969-12-31 23:58:59", "1970-01-01", 2)]),
            ("millisecond", [("1969-12-31 23:59:59.9999", "1970-01-01 00:00:00.0001", 1)]),
            ("microsecond", [("1970-01-01", "1969-12-31 23:59:59.999999", -1)]),
        )
    ),
    Case("azure", "DATEDIFF(n, a, b)", _AB, [("2026-01-01 10:59:59", "2026-01-01 11:00:00", 1)]),
    Case("azure", "DATEDIFF(second, '2026-01-01T00:00', a)", _AT, [("2026-01-01 00:01:00", 60)]),
    Case("azure", "DATEDIFF(second, '2026-01-01T00:00:00.5Z', a)", _AT, [("2026-01-01 00:01:00", 60)]),
    # Epochs.
    Case("flink", "TO_TIMESTAMP_LTZ(n, 3)", "n BIGINT", _MILLISECONDS),
    Case("flink", "TO_TIMESTAMP_LTZ(n, 0)", "n INT", _SECONDS),
    Case("ksqldb", "FROM_UNIXTIME(n)", "n BIGINT", _MILLISECONDS),
    Case("bigquery", "TIMESTAMP_MILLIS(n)", "n BIGINT", _MILLISECONDS),
    Case("bigquery", "TIMESTAMP_SECONDS(n)", "n BIGINT", _SECONDS),
    Case("bigquery", "TIMESTAMP_MICROS(n)", "n BIGINT", [(-1, "1969-12-31 23:59:59.999999"), (None, None)]),
    Case("trino", "from_unixtime(n)", "n INT", _SECONDS),
    Case("risingwave", "to_timestamp(n)", "n BIGINT", _SECONDS),
    Case("materialize", "to_timestamp(n)", "n INT", _SECONDS),
    Case("snowflake", "TO_TIMESTAMP(n, 3)", "n BIGINT", _MILLISECONDS),
    Case("snowflake", "TO_TIMESTAMP_TZ(n, 0)", "n BIGINT", _SECONDS),
    Case("snowflake", "TO_TIMESTAMP_NTZ(n, 0)", "n BIGINT", _SECONDS),
    Case("snowflake", "TO_TIMESTAMP_LTZ(n, 6)", "n BIGINT", [(-1, "1969-12-31 23:59:59.999999")]),
    # BigQuery "truncates higher levels of precision by rounding down to the beginning of the second".
    Case("bigquery", "UNIX_SECONDS(a)", _AT, _SINCE_1970),
    Case(
        "bigquery",
        "UNIX_MILLIS(a)",
        _AT,
        [("1969-12-31 23:59:59.9995", -1), ("1970-01-01 00:00:00.0019", 1), (None, None)],
    ),
    Case("bigquery", "UNIX_MICROS(a)", _AT, [("1969-12-31 23:59:59.999999", -1), (None, None)]),
    Case(
        "ksqldb",
        "UNIX_TIMESTAMP(a)",
        _AT,
        [("2026-01-01 00:00:00.123", 1767225600123), ("1969-12-31 23:59:59.999", -1), (None, None)],
    ),
    Case(
        "trino",
        "to_unixtime(a)",
        _AT,
        [("1969-12-31 23:59:59.9999", -0.0001), ("2026-01-01 00:00:00.25", 1767225600.25), (None, None)],
    ),
    *(
        Case(dialect, sql, columns, rows)
        for dialect in ("risingwave", "materialize")
        for sql, columns, rows in (
            (
                "EXTRACT(EPOCH FROM a)",
                _AT,
                [
                    ("2026-01-01 00:00:00.25", Decimal("1767225600.25")),
                    ("1969-12-31 23:59:59.9999", Decimal("-0.0001")),
                    (None, None),
                ],
            ),
            (
                "EXTRACT(EPOCH FROM (b - a))",
                _AB,
                [("2026-01-01", "2026-03-01 00:00:00.5", Decimal("5097600.5")), ("2026-01-01", None, None)],
            ),
            ("EXTRACT(EPOCH FROM a) / 60 = 1.5", _AT, [("1970-01-01 00:01:30", True), ("1970-01-01 00:01:00", False)]),
            (
                "CAST(EXTRACT(EPOCH FROM a) AS bigint)",
                _AT,
                [("1970-01-01 00:00:01.6", 2), ("1969-12-31 23:59:58.4", -2)],
            ),
        )
    ),
    # Casts to times of fewer digits: Flink cuts off, Trino rounds.
    *(
        Case("flink", f"{cast}(a AS {kind})", _AT, _CUT_OFF[digits])
        for cast in ("CAST", "TRY_CAST")
        for kind, digits in (
            *(("TIMESTAMP(3)", 3), ("TIMESTAMP_LTZ(3)", 3), ("TIMESTAMP(3) WITH LOCAL TIME ZONE", 3)),
            *(("TIMESTAMP(0)", 0), ("TIMESTAMP(6)", 6), ("TIMESTAMP", 6), ("TIMESTAMP(9)", 6)),
        )
    ),
    *(
        Case("trino", f"{cast}(a AS {kind} WITH TIME ZONE)", _AT, _ROUNDED[digits])
        for cast in ("CAST", "TRY_CAST")
        for kind, digits in (("TIMESTAMP", 3), ("TIMESTAMP(3)", 3), ("TIMESTAMP(0)", 0), ("TIMESTAMP(6)", 6))
    ),
    Case(
        "trino",
        "format_datetime(CAST(a AS TIMESTAMP), 'ss.SSS')",
        _AT,
        [("2026-01-01 00:00:01.0015", "01.002"), ("2026-01-01 00:00:01.001499", "01.001"), (None, None)],
    ),
    Case("trino", "format_datetime(TIMESTAMP '2026-01-01 00:00:01.9', 'ss.SSS')", _AT, [("2026-01-01", "01.900")]),
    Case("trino", "a = TIMESTAMP '2026-01-01 00:00:01.000001 UTC'", _AT, [("2026-01-01 00:00:01.000001", True)]),
    Case("trino", "a = CAST('2026-01-01 00:00:01.0015Z' AS timestamp with time zone)", _AT, _AT_TWO_MS),
    Case("flink", "a = TIMESTAMP '2026-01-01 00:00:01.0019'", _AT, [("2026-01-01 00:00:01.0019", True)]),
    *(
        Case(dialect, sql, _AT, [("2026-01-01 00:00:01.0019", "2026-01-01 00:00:01.001"), (None, None)])
        for dialect, sql in (
            *(("flink", "FLOOR(a TO MILLISECOND)"), ("trino", "date_trunc('millisecond', a)")),
            *(("bigquery", "TIMESTAMP_TRUNC(a, MILLISECOND)"), ("snowflake", "DATE_TRUNC('millisecond', a)")),
            *(("materialize", "date_trunc('milliseconds', a)"), ("risingwave", "date_trunc('milliseconds', a)")),
        )
    ),
    # Parts.
    *(
        Case(
            dialect,
            f"{function}(a)",
            _AT,
            [("2026-05-31 23:58:59.999999", late), ("1969-12-31 00:00:00.5", early), (None, None)],
        )
        for dialect, functions in (
            ("flink", "YEAR QUARTER MONTH DAYOFMONTH HOUR MINUTE SECOND"),
            ("snowflake", "YEAR QUARTER MONTH DAY DAYOFMONTH HOUR MINUTE SECOND"),
            ("trino", "year quarter month day day_of_month hour minute second"),
            ("azure", "YEAR MONTH DAY"),
        )
        for function in functions.split()
        for late, early in (
            {
                "YEAR": (2026, 1969),
                "QUARTER": (2, 4),
                "MONTH": (5, 12),
                "HOUR": (23, 0),
                "MINUTE": (58, 0),
                "SECOND": (59, 0),
            }.get(function.upper(), (31, 31)),
        )
    ),
    *(
        Case(
            dialect,
            "DATE(a)",
            _AT,
            [
                ("2026-05-31 23:58:59.999999", date(2026, 5, 31)),
                ("1969-12-31 23:59:59", date(1969, 12, 31)),
                (None, None),
            ],
        )
        for dialect in ("bigquery", "trino")
    ),
    # Texts.
    *(
        Case(dialect, sql, _AT, _WRITTEN)
        for dialect, sql in (
            ("flink", "DATE_FORMAT(a, 'yyyy-MM-dd HH:mm:ss')"),
            ("ksqldb", "FORMAT_TIMESTAMP(a, 'yyyy-MM-dd HH:mm:ss')"),
            ("ksqldb", "FORMAT_TIMESTAMP(a, 'yyyy-MM-dd HH:mm:ss', 'UTC')"),
            ("snowflake", "TO_CHAR(a, 'YYYY-MM-DD HH24:MI:SS')"),
            ("snowflake", "TO_VARCHAR(a, 'YYYY-MM-DD HH24:MI:SS')"),
            ("bigquery", "FORMAT_TIMESTAMP('%Y-%m-%d %H:%M:%S', a)"),
            ("bigquery", "FORMAT_TIMESTAMP('%F %T', a, 'UTC')"),
            ("bigquery", "FORMAT_DATETIME('%F %T', a)"),
            ("trino", "date_format(a, '%Y-%m-%d %H:%i:%s')"),
            ("trino", "date_format(a, '%Y-%m-%d %T')"),
            ("trino", "format_datetime(a, 'yyyy-MM-dd HH:mm:ss')"),
            ("risingwave", "to_char(a, 'YYYY-MM-DD HH24:MI:SS')"),
            ("materialize", "to_char(a, 'YYYY-MM-DD HH24:MI:SS')"),
        )
    ),
    *(
        Case(dialect, sql, _AT, _WRITTEN_ISO)
        for dialect, sql in (
            ("flink", "DATE_FORMAT(a, 'yyyy-MM-dd''T''HH:mm:ss.SSS''Z''')"),
            ("ksqldb", "FORMAT_TIMESTAMP(a, 'yyyy-MM-dd''T''HH:mm:ss.SSS''Z''')"),
            ("snowflake", """TO_CHAR(a, 'YYYY-MM-DD"T"HH24:MI:SS.FF3"Z"')"""),
            ("materialize", """to_char(a, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""),
            ("bigquery", "FORMAT_TIMESTAMP('%Y-%m-%dT%H:%M:%E3SZ', a)"),
        )
    ),
    Case("snowflake", """TO_CHAR(a, 'YYYY""MM"a''''b"')""", _AT, [("2026-01-02", "=202601a''b")]),
    Case("flink", "DATE_FORMAT(a, '''at'' HHmm é 100% ''''')", _AT, [("2026-01-02 03:04:05", "=at 0304 é 100% '")]),
    Case("bigquery", "FORMAT_DATE('%Y%m%d %% [T]', a)", _AT, [("2026-01-02 03:04:05", "=20260102 % [T]")]),
    Case(
        "flink",
        "FROM_UNIXTIME(n)",
        "n BIGINT",
        [(0, "=1970-01-01 00:00:00"), (-1, "=1969-12-31 23:59:59"), (None, None)],
    ),
    Case("flink", "FROM_UNIXTIME(n, 'yyyyMMdd')", "n BIGINT", [(1767225600, "20260101")]),
    Case("ksqldb", "FORMAT_DATE(a, 'dd.MM.yyyy')", _AT, [("2026-01-02", "02.01.2026"), (None, None)]),
    Case("ksqldb", "TIMESTAMPTOSTRING(n, 'yyyy-MM-dd HH:mm:ss.SSS')", "n BIGINT", [(-1, "=1969-12-31 23:59:59.999")]),
]

_JSON = [
    ('{"a": "x\\"é😀\\n"}', '=x"é😀\n'),
    ('{"a": ""}', ""),
    ('{"a": "{}"}', "{}"),
    ('{"a": -5}', "-5"),
    ('{"a": 12345678901234567890123}', "12345678901234567890123"),
    ('{"a": 1.5}', "1.5"),
    ('{"a": true}', "true"),
    ('{"a": null}', None),
    ('{"a": {"a": 1}}', None),
    ('{"a": [1]}', None),
    ('{"b": 1}', None),
    ("[1]", None),
    ("{a", None),
    ("{'a': 1}", None),
    ("", None),
    (None, None),
]
_NESTED = [
    ('{"a": [{"b": 1}, {"b": "x"}]}', "x"),
    ('{"a": [{"b": 1}]}', None),
    ('{"a": {"1": {"b": 1}}}', None),
    ('{"a": [[2], {"b": [0]}]}', None),
    ('{"a": [0, {"b": null}]}', None),
]

JSON_TEXTS = [
    *(
        Case(dialect, f"{function}(x, {path})", _X, rows)
        for dialect, function in (
            ("flink", "JSON_VALUE"),
            ("bigquery", "JSON_VALUE"),
            ("bigquery", "JSON_EXTRACT_SCALAR"),
            ("trino", "json_extract_scalar"),
        )
        for path, rows in (("'$.a'", _JSON), ("'$.a[1].b'", _NESTED))
    ),
    Case("trino", """json_extract_scalar(x, '$["a b"][0]')""", _X, [('{"a b": [7]}', "7"), ('{"a b": 7}', None)]),
    Case(
        "flink", "JSON_VALUE(x, '$[1]')", _X, [("[0, null]", None), ("[0, 1]", "1"), ("[0, []]", None), ("[0]", None)]
    ),
    Case("ksqldb", "EXTRACTJSONFIELD(x, '$[1]')", _X, [("[0, null]", "null"), ("[0, [ 1 ]]", "[1]"), ("[0]", None)]),
    Case("flink", "JSON_VALUE(x, '$[''a b'']')", _X, [('{"a b": 7}', "7")]),
    # What is no text is the text of its JSON there, and null is "null".
    Case(
        "ksqldb",
        "EXTRACTJSONFIELD(x, '$.a')",
        _X,
        [
            *(row for row in _JSON if row[1] is not None or row[0] in ('{"b": 1}', "{a", "{'a': 1}", "", None)),
            ('{"a": null}', "null"),
            ('{"a": {"z": 1, "b": [true, "é" ]}}', '{"z":1,"b":[true,"é"]}'),
            ('{"a": [ ]}', "[]"),
        ],
    ),
    Case("ksqldb", "EXTRACTJSONFIELD(x, '$.a[1].b')", _X, _NESTED[:2]),
    Case("flink", "CAST(JSON_VALUE(x, '$.a') AS DOUBLE)", _X, [('{"a": 1.50}', 1.5), ('{"a": "2"}', 2.0)]),
    Case("bigquery", "CAST(JSON_VALUE(x, '$.a') AS INT64)", _X, [('{"a": 9223372036854775807}', 9223372036854775807)]),
]

_PLACES = [("abcb", 2), ("b", 1), ("ac", 0), ("", 0), ("😀éb", 3), ("B", 0), (None, None)]
_PADDED = [("abc", "00abc"), ("abcdefg", "abcde"), ("", "00000"), ("😀é", "000😀é"), (None, None)]
_FILLED = [("abc", "abcxy"), ("abcdefg", "abcde"), ("", "xyxyx"), ("😀é", "😀éxyx"), (None, None)]
_SPACES = [("abc", "  abc"), ("", "     "), (None, None)]
_SPLIT = [("a,b,c", "b"), ("a,,c", ""), (",b", "b"), ("é,😀", "😀"), (None, None)]
_OF_ONE = [("a", "a"), (",b", ""), ("a,b", "a")]
_ENDS = [("abcdef", 3, "ab"), ("abcdef", 9, "abcdef"), ("abcdef", 1, ""), ("abcdef", 0, ""), ("abcdef", None, None)]
_STARTS = [("abcdef", 1, "abc"), ("abcdef", -1, "a"), ("abcdef", -7, ""), ("abcdef", 5, "ef"), (None, 1, None)]
_FROM_END = {
    "flink": [("abc", 0, "ab"), ("abc", -2, "bc"), ("abc", -3, "ab"), ("abc", -4, ""), ("", -1, ""), ("", 0, "")],
    "trino": [("abc", 0, ""), ("abc", -2, "bc"), ("abc", -3, "ab"), ("abc", -4, ""), ("", -1, ""), ("", 1, "")],
    "ksqldb": [("abc", 0, "ab"), ("abc", -2, "bc"), ("abc", -3, "ab"), ("abc", -4, "ab"), ("", -1, ""), ("", 0, "")],
    "bigquery": [("abc", 0, "ab"), ("abc", -2, "bc"), ("abc", -3, "ab"), ("abc", -4, "ab"), ("", -1, ""), ("", 0, "")],
}
"""Two characters from a place on."""
_TO_END = {
    "flink": [("abc", 0, "abc"), ("abc", -1, "c"), ("abc", -3, "abc"), ("abc", -4, "")],
    "trino": [("abc", 0, ""), ("abc", -1, "c"), ("abc", -3, "abc"), ("abc", -4, "")],
    "ksqldb": [("abc", 0, "abc"), ("abc", -1, "c"), ("abc", -4, "abc")],
    "bigquery": [("abc", 0, "abc"), ("abc", -1, "c"), ("abc", -4, "abc")],
}
_ANYWHERE = [
    ("😀éb", 1, "😀é"),
    ("😀éb", -2, "éb"),
    ("abc", 3, "c"),
    ("abc", 4, ""),
    ("abc", None, None),
    (None, 1, None),
]
_LENGTHS = [("abc", 0, ""), ("abc", 2, "bc"), ("abc", 9, "bc"), ("abc", None, None), (None, 1, None)]
_COUNTS = [("abc", 2, "ab"), ("abc", 0, ""), ("abc", 4, "abc"), ("abc", None, None), (None, 1, None)]
_SPACED = " \t\u00a0 é \u00a0\t "

TEXTS = [
    # What is before the text counts as a part of the length, and is nothing.
    *(
        Case(dialect, sql, "x STRING, n INT", rows)
        for dialect in ("azure", "risingwave", "materialize")
        for sql, rows in (
            ("SUBSTRING(x, n, 3)", _STARTS),
            ("SUBSTRING(x, n - 9, 9)", _ENDS),
        )
    ),
    *(
        Case(dialect, "SUBSTRING(x, n)", "x STRING, n INT", [("abc", 2, "bc"), ("abc", -1, "abc"), ("abc", None, None)])
        for dialect in ("risingwave", "materialize")
    ),
    # Places from the end, and those before the text.
    *(
        Case(dialect, f"SUBSTRING(x, {place}, 2)", f"x STRING, n {kind}", [*rows, *_ANYWHERE])
        for dialect, rows in _FROM_END.items()
        for place, kind in (("n", "INT"), ("n", "BIGINT"), ("n + 0", "INT"))
    ),
    *(
        Case(dialect, "SUBSTRING(x, n)", "x STRING, n INT", [*rows, (None, 1, None), ("abc", None, None)])
        for dialect, rows in _TO_END.items()
    ),
    *(
        Case(dialect, "SUBSTRING(x, -3, 2)", _X, [("abcd", "bc"), ("ab", short), ("", ""), (None, None)])
        for dialect, short in (("flink", ""), ("trino", ""), ("ksqldb", "ab"), ("bigquery", "ab"))
    ),
    *(
        Case(dialect, "SUBSTRING(x, 2, n)", "x STRING, n INT", [*_LENGTHS, *negative])
        for dialect, negative in (
            *(("flink", [("abc", -1, None)]), ("trino", [("abc", -1, "")]), ("ksqldb", [("abc", -1, "")])),
            *(("snowflake", [("abc", -1, "")]), ("bigquery", []), ("azure", []), ("risingwave", [])),
        )
    ),
    Case(
        "snowflake",
        "SUBSTR(x, GREATEST(n, 1), 2)",
        "x STRING, n INT",
        [("abc", 0, "ab"), ("abc", -9, "ab"), ("abc", 2, "bc"), ("abc", None, None)],
    ),
    *(
        Case(dialect, sql, "x STRING, y STRING", [("a", "b", "ab"), ("a", None, null), (None, None, nulls)])
        for dialect, sql, null, nulls in (
            *((each, "CONCAT(x, y)", None, None) for each in ("flink", "snowflake", "bigquery", "trino")),
            *((each, "CONCAT(x, y)", "a", "") for each in ("ksqldb", "azure", "risingwave", "materialize")),
            *((each, "x || y", None, None) for each in ("flink", "snowflake", "trino", "risingwave")),
        )
    ),
    Case("snowflake", "SUBSTR(x, POSITION('b' IN x) + 1, 1)", _X, [("abc", "c"), ("c", "c"), (None, None)]),
    *(
        Case(dialect, f"{function}(x, n)", "x STRING, n INT", [*rows, *negative])
        for function, rows, but_one in (("LEFT", _COUNTS, "ab"), ("RIGHT", [("abc", 2, "bc"), *_COUNTS[1:]], "bc"))
        for dialect, negative in (
            *(("flink", [("abc", -1, "")]), ("snowflake", [("abc", -1, "")]), ("bigquery", []), ("azure", [])),
            *((each, [("abc", -1, but_one), ("abc", -4, "")]) for each in ("risingwave", "materialize")),
        )
    ),
    *(
        Case(dialect, sql, _X, _PLACES)
        for dialect, sql in (
            ("flink", "POSITION('b' IN x)"),
            ("flink", "INSTR(x, 'b')"),
            ("flink", "LOCATE('b', x)"),
            ("ksqldb", "INSTR(x, 'b')"),
            ("risingwave", "position('b' IN x)"),
            ("risingwave", "strpos(x, 'b')"),
            ("materialize", "position('b' IN x)"),
            ("materialize", "strpos(x, 'b')"),
            ("snowflake", "POSITION('b' IN x)"),
            ("snowflake", "POSITION('b', x)"),
            ("snowflake", "CHARINDEX('b', x)"),
            ("bigquery", "STRPOS(x, 'b')"),
            ("bigquery", "INSTR(x, 'b')"),
            ("trino", "position('b' IN x)"),
            ("trino", "strpos(x, 'b')"),
        )
    ),
    Case(
        "trino", "strpos(x, y)", "x STRING, y STRING", [("ab", "", 1), ("", "", 1), ("ab", "b", 2), ("ab", None, None)]
    ),
    # Places are of code points, also where several make one sign.
    Case("flink", "POSITION('c' IN x)", _X, [("e\u0301c", 3), ("👩\u200d🚀c", 4)]),
    *(
        Case(dialect, sql, _X, rows)
        for dialect in ("flink", "ksqldb", "trino", "risingwave", "materialize", "snowflake", "bigquery")
        for sql, rows in (
            ("LPAD(x, 5, '0')", _PADDED),
            ("RPAD(x, 5, 'xy')", _FILLED),
            ("LPAD(x, 0, 'a')", [("abc", ""), (None, None)]),
        )
    ),
    *(
        Case(dialect, "REVERSE(x)", _X, [("abc", "cba"), ("", ""), ("e\u0301😀", "😀\u0301e"), (None, None)])
        for dialect in ("flink", "trino", "risingwave", "materialize", "snowflake", "bigquery")
    ),
    *(
        Case(dialect, sql, _X, rows)
        for dialect in ("risingwave", "materialize", "snowflake", "bigquery")
        for sql, rows in (("LPAD(x, 5)", _SPACES), ("REPEAT(x, 3)", [("ab", "ababab"), ("", ""), (None, None)]))
    ),
    Case("flink", "REPEAT(x, 0)", _X, [("ab", ""), (None, None)]),
    *(
        Case(dialect, "SPLIT_PART(x, ',', 2)", _X, [*_SPLIT, ("a", ""), ("", "")])
        for dialect in ("risingwave", "materialize", "snowflake")
    ),
    Case("snowflake", "SPLIT_PART(x, ',', 1)", _X, [*_OF_ONE, ("", "")]),
    Case("trino", "split_part(x, ',', 2)", _X, [*_SPLIT, ("a", None), ("", None)]),
    Case("trino", "split_part(x, ',', 1)", _X, [*_OF_ONE, ("", "")]),
    Case("trino", "split_part(x, '.|', 2)", _X, [("a.|b", "b"), ("a|b", None), ("ab", None)]),
    Case("trino", "split_part(x, '\\', 2)", _X, [("a\\b", "b")]),
    Case("flink", "SPLIT_INDEX(x, ',', 1)", _X, [*_SPLIT, ("a", None), ("", None)]),
    # An empty text has no parts there.
    Case("flink", "SPLIT_INDEX(x, ',', 0)", _X, [*_OF_ONE, ("", None)]),
    *(
        Case(dialect, sql, _X, [(_SPACED, f"={result}"), ("", ""), (None, None)])
        for dialects, left, right in (
            (("flink", "azure", "materialize", "snowflake"), "\t\u00a0 é \u00a0\t ", " \t\u00a0 é \u00a0\t"),
            (("trino",), "\u00a0 é \u00a0\t ", " \t\u00a0 é \u00a0"),
            (("bigquery", "risingwave"), "é \u00a0\t ", " \t\u00a0 é"),
        )
        for dialect in dialects
        for sql, result in (("LTRIM(x)", left), ("RTRIM(x)", right))
    ),
    Case("ksqldb", "TRIM(x)", _X, [(_SPACED, "=\u00a0 é \u00a0"), ("\x01\x1fa\x1a", "a")]),
    Case("trino", "trim(x)", _X, [("\u3000\u2007a\x1c\u205f", "\u2007a")]),
    Case("bigquery", "TRIM(x)", _X, [("\u3000\u2007a\x85\u205f", "a"), ("\x1ca", "\x1ca")]),
    Case("snowflake", "LTRIM(x, 'ab')", _X, [("abbac", "c"), ("é", "é")]),
]

_WHOLE = [("12", 12), (" -7 ", -7), ("+5", 5), ("0", 0), (None, None)]
_FRACTIONS = [("1.7", 1, 2), ("-1.5", -1, -2), ("2.", 2, 2), ("0.4", 0, 0)]
_LARGE = [("9223372036854775807", 9223372036854775807), ("-9223372036854775808", -9223372036854775808)]
_NONE = [("x", None), ("", None), ("1.2.3", None)]

CASTS = [
    # A text with a fraction is cut off in Flink, rounded in Snowflake, and no integer in the others.
    *(
        Case("flink", f"{cast}(x AS BIGINT)", _X, [*_WHOLE, *_LARGE, *((x, cut) for x, cut, _ in _FRACTIONS), *rows])
        for cast, rows in (("CAST", []), ("TRY_CAST", _NONE))
    ),
    *(
        Case(
            "snowflake",
            f"{cast}(x AS BIGINT)",
            _X,
            [*_WHOLE, *_LARGE, *((x, near) for x, _, near in _FRACTIONS), *rows],
        )
        for cast, rows in (("CAST", []), ("TRY_CAST", _NONE))
    ),
    Case("flink", "CAST(SPLIT_INDEX(x, ',', 0) AS INT)", _X, [("1.9,2", 1)]),
    Case("flink", "TRY_CAST(SPLIT_INDEX(x, ',', 0) AS INT)", _X, [("x,2", None)]),
    Case("snowflake", "CAST(SPLIT_PART(x, ',', 1) AS INT)", _X, [("1.5,2", 2)]),
    Case("snowflake", "TRY_CAST(SPLIT_PART(x, ',', 1) AS INT)", _X, [("x,2", None)]),
    *(
        Case(dialect, f"{cast}(x AS BIGINT)", _X, [*_WHOLE, *_LARGE, *((x, None) for x, _, _ in _FRACTIONS), *_NONE])
        for dialect, cast in (("trino", "try_cast"), ("ksqldb", "CAST"), ("azure", "TRY_CAST"))
    ),
    *(
        Case(dialect, f"CAST(x AS {kind})", _X, [*_LARGE, ("12", 12)])
        for dialect in ("bigquery", "snowflake")
        for kind in ("INT", "INTEGER", "SMALLINT", "TINYINT", "BIGINT")
    ),
    Case("snowflake", "CAST(x AS REAL)", "x DOUBLE", [(0.1, 0.1), (None, None)]),
    *(
        Case(dialect, sql, "x STRING, y STRING", [("a", "b", result), ("a", None, null)])
        for dialect in ("azure", "ksqldb")
        for sql, result, null in (
            *(("x + '-' + y", "a-b", None), ("'<' + x", "<a", "<a"), ("x + UPPER(y)", "aB", None)),
            ("x + (y + '!')", "ab!", None),
        )
    ),
    Case("ksqldb", "x + 1", "x BIGINT", [(1, 2)]),
    Case("ksqldb", "CAST(x AS DOUBLE)", _X, [("1.5", 1.5), ("x", None), (None, None)]),
    *(
        Case(dialect, sql, "x DOUBLE", [(1.5, cut), (-1.5, -cut), (None, None)])
        for dialect, sql, cut in (
            *(("flink", "CAST(x AS INT)", 1), ("snowflake", "CAST(x AS INT)", 2), ("ksqldb", "CAST(x AS INT)", 1)),
            *(
                ("azure", "CAST(x AS bigint)", 1),
                ("trino", "CAST(x AS integer)", 2),
                ("bigquery", "CAST(x AS INT64)", 2),
            ),
        )
    ),
]

NULLS = [
    *(
        Case(
            dialect,
            sql,
            "a BIGINT, b BIGINT",
            [(1, 2, both), (3, None, one), (None, 4, other), (None, None, None), (-1, -1, -1)],
        )
        for dialects, of_null in (
            (("flink", "snowflake", "bigquery", "trino"), False),
            (("ksqldb", "risingwave", "materialize"), True),
        )
        for dialect in dialects
        for sql, both in (("GREATEST(a, b)", 2), ("LEAST(a, b)", 1), ("LEAST(a, LEAST(b, a))", 1))
        for one, other in ((3, 4) if of_null else (None, None),)
    ),
    Case("flink", "GREATEST(a, 0)", "a BIGINT", [(5, 5), (-5, 0), (None, None)]),
]

_XS = "xs ARRAY<BIGINT>, n INT"
_ARRAY = [5, 6, 7]
ELEMENTS = [
    *(
        Case(dialect, f"xs[{index}]", _XS, [(_ARRAY, 1, 5), (_ARRAY, 3, 7), (None, 1, None), *behind])
        for dialect, behind in (
            *((each, [(_ARRAY, 4, None)]) for each in ("flink", "ksqldb", "risingwave", "materialize")),
            ("trino", []),
        )
        for index in ("n", "n + 0")
    ),
    *(
        Case(dialect, "xs[2]", _XS, [(_ARRAY, 0, 6), (None, 0, None), *behind])
        for dialect, behind in (
            *((each, [([5], 0, None)]) for each in ("flink", "ksqldb", "risingwave", "materialize")),
            ("trino", []),
        )
    ),
    Case("ksqldb", "xs[-1]", _XS, [(_ARRAY, 0, 7), ([5], 0, 5)]),
    Case("snowflake", "xs[1]", _XS, [(_ARRAY, 0, 6), ([5], 0, None)]),
    *(
        Case("bigquery", sql, _XS, [(_ARRAY, 1, 6), (None, 1, None)])
        for sql in (
            "xs[1]",
            "xs[OFFSET(1)]",
            "xs[ORDINAL(2)]",
            "xs[OFFSET(n)]",
            "xs[ORDINAL(n + 1)]",
            "xs[SAFE_OFFSET(n)]",
        )
    ),
    Case("bigquery", "xs[SAFE_OFFSET(n)]", _XS, [(_ARRAY, 3, None)]),
    Case("flink", "xs[1] + xs[2] * 10", _XS, [(_ARRAY, 1, 65)]),
]

_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_ESCAPED = "".join(f"\\{sign}" for sign in _PUNCTUATION)

PATTERNS = [
    # `.` leaves out all line breaks of Java, but only \n in RE2 and Joni. `$` is also before a last one in Java and Joni.
    Case(
        "flink",
        "REGEXP(x, '^a.c$')",
        _X,
        [
            *(("abc", True), ("abc\n", True), ("abc\r\n", True), ("abc\u2028", True), ("abc\n\n", False)),
            *(("a\nc", False), ("a\rc", False), ("a😀c", True), ("xabc", False), ("", False), (None, None)),
        ],
    ),
    Case(
        "trino",
        "regexp_like(x, '^a.c$')",
        _X,
        [
            *(("abc", True), ("abc\n", True), ("abc\r", False), ("abc\n\n", False), ("a\nc", False)),
            *(("a\rc", True), ("a😀c", True), ("xabc", False), ("", False), (None, None)),
        ],
    ),
    Case(
        "bigquery",
        "REGEXP_CONTAINS(x, r'^a.c$')",
        _X,
        [
            *(("abc", True), ("abc\n", False), ("a\nc", False), ("a\rc", True), ("a😀c", True)),
            *(("xabc", False), ("", False), (None, None)),
        ],
    ),
    # \x0b is a space in Java, and none in RE2.
    Case(
        "flink",
        r"REGEXP(x, '^\s\S\d\D\w\W\z')",
        _X,
        [("\x0bé1é1é", True), (" a1a1-", True), (" a1a1-\n", False), (" aaa1-", False), (" a1aé-", False)],
    ),
    Case("bigquery", r"REGEXP_CONTAINS(x, r'^\s\d$')", _X, [(" 1", True), ("\x0b1", False), (" ٣", False)]),
    Case(
        "flink",
        r"REGEXP(x, '^[a-c\d_.-]{2,3}$')",
        _X,
        [("a-", True), ("9.", True), ("_", False), ("abca", False), ("d-", False), ("éé", False)],
    ),
    Case("flink", r"REGEXP(x, '[^,\]\\]')", _X, [(",", False), ("]\\", False), ("\n", True), ("é", True), ("", False)]),
    Case(
        "trino",
        r"regexp_like(x, '^(?:\+|00)[1-9][0-9]*?$')",
        _X,
        [("+49", True), ("0049", True), ("+0", False), ("049", False)],
    ),
    Case(
        "materialize",
        "x ~ '^a.c$'",
        _X,
        [("abc", True), ("abc\n", False), ("a\nc", False), ("a\rc", True), (None, None)],
    ),
    Case("risingwave", "NOT x ~ '[0-9]+'", _X, [("a1", False), ("é", True), (None, None)]),
    Case(
        "flink",
        "REGEXP(x, '^" + _ESCAPED.replace("'", "''") + "[" + _ESCAPED.replace("'", "''") + r"]{2}\z')",
        _X,
        [(_PUNCTUATION + "\\]", True), (_PUNCTUATION + "a]", False)],
    ),
    Case("flink", "REGEXP(x, 'a|bc')", _X, [("bc", True), ("b", False), ("xa", True), ("A", False)]),
    Case(
        "flink",
        "REGEXP_EXTRACT(x, '([a-z]+)=([0-9]+)', 2)",
        _X,
        [("x=1,y=2", "1"), ("x=", None), ("", None), (None, None)],
    ),
    Case("flink", "REGEXP_EXTRACT(x, 'a+?b*')", _X, [("caabb", "a"), ("b", None)]),
    Case("flink", "REGEXP_EXTRACT(x, 'a+b*', 0)", _X, [("caabb", "aabb"), ("b", None)]),
    Case("flink", "REGEXP_EXTRACT(x, '/([a-z]*?)$', 1)", _X, [("a/b\n", "b"), ("a/b\r\n", "b"), ("a/", "")]),
    Case("trino", "regexp_extract(x, '([^/]*?)$', 1)", _X, [("a/b\n", "b"), ("a/b\r\n", "b\r"), ("a/", "")]),
    Case(
        "ksqldb",
        "REGEXP_EXTRACT('(.*) (.*)', x, 2)",
        _X,
        [("hello there", "there"), ("hello", None), (None, None)],
    ),
    Case("ksqldb", "REGEXP_EXTRACT('(?:hello|hi) .*', x)", _X, [("oh, hi you", "hi you"), ("hey", None)]),
    Case(
        "bigquery",
        "REGEXP_EXTRACT(x, r'^([a-zA-Z0-9_.+-]+)@')",
        _X,
        [("foo@example.com", "foo"), ("@", None), (None, None)],
    ),
    Case(
        "bigquery", r"REGEXP_EXTRACT(x, r'[a-z]+\.com$')", _X, [("foo@example.com", "example.com"), ("a.com\n", None)]
    ),
    Case("trino", "regexp_extract(x, '([0-9]+)-([a-z])', 1)", _X, [("é12-a", "12"), ("12-", None), (None, None)]),
    Case(
        "flink",
        "REGEXP_REPLACE(x, 'foo|ba+r', 'é''')",
        _X,
        [("foobaar", "é'é'"), ("x", "x"), ("", ""), (None, None)],
    ),
    Case("ksqldb", "REGEXP_REPLACE(x, '[0-9]', '')", _X, [("a1b22", "ab"), (None, None)]),
    Case("bigquery", r"REGEXP_REPLACE(x, r'\s+', ' ')", _X, [("a \t\n b", "a b"), ("a\x0bb", "a\x0bb")]),
    Case("trino", "regexp_replace(x, '[^a-z]')", _X, [("a1é\nb", "ab"), (None, None)]),
]

_NUMBERS = [(1,), (2,), (None,), (10,), (4,)]
_AVAILABILITY = [(0.98,), (0.93,), (0.78,), (0.99,), (0.89,)]

QUANTILES = [
    # The example of Azure's documentation.
    Case("azure", "ROUND(PERCENTILE_CONT(0.95) OVER (ORDER BY x), 6)", "x DOUBLE", _AVAILABILITY, 0.988),
    Case("snowflake", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)", "x INT", _NUMBERS, 3.0),
    Case("snowflake", "PERCENTILE_CONT(0) WITHIN GROUP (ORDER BY x)", "x INT", _NUMBERS, 1.0),
    Case("snowflake", "PERCENTILE_CONT(1) WITHIN GROUP (ORDER BY x)", "x DOUBLE", [(1.0,), (None,), (10.0,)], 10.0),
    Case("snowflake", "MEDIAN(x)", "x BIGINT", _NUMBERS, 3.0),
    Case("snowflake", "MEDIAN(x)", "x BIGINT", [(None,)], None),
    Case("risingwave", "percentile_cont(0.25) WITHIN GROUP (ORDER BY x)", "x INT", _NUMBERS, 1.75),
    Case("flink", "PERCENTILE(x, 0.25)", "x INT", [(10,), (20,), (30,), (40,)], 17.5),  # as its documentation has it
    Case("flink", "PERCENTILE(x, 0.75)", "x INT", _NUMBERS, 5.5),
    *(
        Case(dialect, sql, "x BIGINT", [(7,), (None,), (7,)], result)
        for dialect, sql, result in (
            ("trino", "approx_percentile(x, 0.9)", 7),
            ("snowflake", "APPROX_PERCENTILE(x, 0.9)", 7.0),
            ("bigquery", "APPROX_QUANTILES(x, 100)[OFFSET(90)]", 7),
            ("bigquery", "APPROX_QUANTILES(x, 4)[SAFE_OFFSET(4)]", 7),
        )
    ),
]

CASES = [*TIMES, *CASTS, *NULLS, *ELEMENTS, *JSON_TEXTS, *TEXTS, *PATTERNS, *QUANTILES]

APPROXIMATE = [
    Case("trino", "approx_percentile(x, 0.95)", "x BIGINT", [(n,) for n in range(1, 1002)], 951),
    Case("snowflake", "APPROX_PERCENTILE(x, 0.5)", "x BIGINT", [(n,) for n in range(1, 1002)], 501),
    Case("bigquery", "APPROX_QUANTILES(x, 4)[OFFSET(1)]", "x BIGINT", [(n,) for n in range(1, 1002)], 251),
]
"""Of these the result may be 10 less or more."""

# Dialect, expression, part of the message.
REFUSED = [
    ("flink", "CAST(x AS CHAR(3))", "write SUBSTRING(CAST(x AS STRING), 1, 3)"),
    ("flink", "TRY_CAST(x AS VARCHAR(3))", "write SUBSTRING(CAST(x AS STRING), 1, 3)"),
    ("trino", "CAST(x AS CHAR)", "write SUBSTRING(CAST(x AS VARCHAR), 1, 1)"),
    ("azure", "CAST(x AS nvarchar(3))", "write SUBSTRING(CAST(x AS nvarchar(max)), 1, 3)"),
    ("materialize", "x::varchar(3)", "write SUBSTRING(CAST(x AS VARCHAR), 1, 3)"),
    ("flink", "CAST(n AS DECIMAL)", "write both: DECIMAL(18, 3)"),
    ("bigquery", "CAST(n AS NUMERIC)", "write both: DECIMAL(18, 3)"),
    ("flink", "CAST(a AS TIMESTAMP(2))", "with 2 digits of a second is not translated; write a precision of 0 or 3"),
    *(
        (
            dialect,
            sql,
            "with 3 digits of a second is not translated; write CAST(x AS TIMESTAMP), which keeps microseconds",
        )
        for dialect, sql in (
            *(("materialize", "a::timestamp(3)"), ("risingwave", "CAST(a AS TIMESTAMPTZ(3))")),
            *(("snowflake", "CAST(a AS TIMESTAMP_NTZ(3))"), ("bigquery", "CAST(a AS TIMESTAMP(3))")),
            ("ksqldb", "CAST(a AS TIMESTAMP(3))"),
        )
    ),
    ("snowflake", "SUBSTR(x, n, 2)", "write GREATEST(n, 1) for the start"),
    ("snowflake", "SUBSTR(x, -3)", "or RIGHT(x, n) for the end of a text"),
    ("trino", "SUBSTRING(x, 0, 2)", "start at 1 or later"),
    ("trino", "xs[0]", "an element before the first is not translated; indexes count from 1"),
    ("flink", "xs[-1]", "an element before the first"),
    ("materialize", "xs[1:2]", "a part of an array is not translated; write one index"),
    ("snowflake", "xs[n]", "an element at a computed index is not translated; write a constant"),
    ("trino", "a AT TIME ZONE 'Asia/Tokyo'", "AT TIME ZONE is not translated; leave it out: times are in UTC"),
    ("risingwave", "EXTRACT(HOUR FROM a AT TIME ZONE 'UTC')", "AT TIME ZONE is not translated"),
    ("azure", "CAST(a AS datetime2(3))", "write CAST(x AS datetime), which keeps microseconds"),
    ("azure", "CAST(a AS timestamp)", "a cast to timestamp is not translated; write datetime"),
    ("flink", "CAST(a AS TIME)", "a cast to a time of a day is not translated; write EXTRACT(HOUR FROM x)"),
    ("trino", "CAST(a AS TIME)", "a cast to a time of a day is not translated"),
    ("flink", "TIMESTAMPDIFF(MONTH, a, b)", "in whole months differs at the ends of months; use days"),
    ("trino", "date_diff('year', a, b)", "in whole years differs"),
    (
        "flink",
        "TIMESTAMPADD(MILLISECOND, 1, a)",
        "in units of millisecond is not translated; use one of second, minute",
    ),
    ("azure", "DATEADD(dw, 1, a)", "in units of dw is not translated"),
    ("snowflake", "DATEDIFF(week, a, b)", "in units of week is not translated"),
    ("snowflake", "DATEADD(day, 1.5, a)", "with a fraction is not translated; write a whole number"),
    ("azure", "DATEDIFF(day, 'yesterday', a)", "'yesterday' is not read as a time; write it like"),
    ("azure", "DATEDIFF(day, '2026-01-01T00:00Z', a)", "is not read as a time; write it like"),
    ("trino", "date_add(lower(u), 1, a)", "needs a unit such as DAY"),
    ("trino", "date_diff('day', a)", "with 2 arguments is not translated; write DATE_DIFF(DAY, start, end)"),
    ("bigquery", "TIMESTAMP_ADD(a, INTERVAL 1 MONTH)", "in units of month is not translated"),
    (
        "bigquery",
        "TIMESTAMP_ADD(a, INTERVAL '1-2' YEAR TO MONTH)",
        "this interval is not translated; write TIMESTAMP_ADD(",
    ),
    ("bigquery", "DATE_ADD(a, INTERVAL 1 DAY)", "write a sum, such as at + INTERVAL 1 DAY"),
    ("bigquery", "DATE_SUB(a, INTERVAL 1 DAY)", "write a difference, such as at - INTERVAL 1 DAY"),
    ("bigquery", "DATETIME_DIFF(a, b, DAY)", "write TIMESTAMP_DIFF(end, start, DAY)"),
    ("flink", "a + INTERVAL '1 02' DAY TO HOUR", "write whole numbers of one unit each"),
    ("flink", "a + INTERVAL n DAY", "write whole numbers of one unit each"),
    ("snowflake", "a + INTERVAL '1 hour, 3 days'", "write whole numbers of one unit each"),
    ("trino", "a + INTERVAL '1.5' HOUR", "write whole numbers of one unit each"),
    ("risingwave", "a + INTERVAL -'1 hour 2 minutes'", "write whole numbers of one unit each"),
    ("bigquery", "DATE(2026, 1, 1)", "with 3 arguments is not translated; write DATE(t)"),
    ("flink", "WEEK(a)", "the function week is not translated"),
    ("flink", "TO_TIMESTAMP(x)", "write CAST(x AS TIMESTAMP)"),
    ("flink", "UNIX_TIMESTAMP(x)", "write TIMESTAMPDIFF(SECOND"),
    ("ksqldb", "UNIX_TIMESTAMP()", "without a time is not translated; pass one"),
    ("snowflake", "TO_TIMESTAMP(x)", "write TO_TIMESTAMP(n, 3)"),
    ("snowflake", "TO_TIMESTAMP(x, 'YYYY')", "write CAST(x AS TIMESTAMP), or a scale of 0 or 3 or 6"),
    ("risingwave", "to_timestamp(x, 'YYYY')", "with 2 arguments is not translated"),
    ("flink", "DATE_FORMAT(a, 'E, d MMM')", "the format 'E, d' of DATE_FORMAT is not translated; use yyyy, MM"),
    ("flink", "DATE_FORMAT(a, 'yyyy[MM]')", "the format '[MM]'"),
    ("flink", "DATE_FORMAT(a, x)", "needs a format that is a constant text"),
    ("trino", "date_format(a, '%M')", "the format '%M'"),
    ("snowflake", "TO_CHAR(a, 'YYYY-Mon')", "the format 'Mon'"),
    ("materialize", "to_char(a, 'SSSS')", "the format 'SSSS'"),
    ("snowflake", "TO_CHAR(n)", "with 1 arguments is not translated; write TO_CHAR(t, format)"),
    ("bigquery", "FORMAT_TIMESTAMP('%Y', a, 'Asia/Tokyo')", "in a time zone is not translated; leave it out"),
    ("flink", "JSON_VALUE(x, '$.a' RETURNING INT)", "write CAST(JSON_VALUE("),
    ("flink", "JSON_VALUE(x, '$..a')", "the path '$..a' of JSON_VALUE is not translated; write members and indexes"),
    ("flink", "JSON_VALUE(x, 'lax $.a')", "is not translated; write members and indexes"),
    ("bigquery", "JSON_VALUE(x, '$.a[*]')", "is not translated; write members and indexes"),
    ("trino", "json_extract_scalar(x, y)", "needs a path that is a constant text"),
    ("trino", "json_value(x, 'lax $.a')", "write json_extract_scalar"),
    ("flink", "LPAD(x, n, 'a')", "needs a length that is a constant from 0"),
    ("trino", "lpad(x, 5, '')", "with an empty text is not translated"),
    ("trino", "lpad(x, 5)", "with 2 arguments is not translated"),
    ("flink", "INSTR(x, y)", "needs a text to look for that is a constant text"),
    ("bigquery", "INSTR(x, 'a', 2)", "with 3 arguments is not translated"),
    ("snowflake", "POSITION('a', x, 2)", "leave it out"),
    ("azure", "CHARINDEX('a', x)", "write x LIKE"),
    ("trino", "split_part(x, ',', 0)", "needs a number that is a constant from 1"),
    ("snowflake", "SPLIT_PART(x, ',', -1)", "needs a number that is a constant from 1"),
    ("flink", "SPLIT_INDEX(x, '', 0)", "with an empty separator is not translated"),
    ("trino", "a.strpos(x, 'b')", "a function behind a dot is not translated"),
    ("trino", "repeat(x, 2)", "the function repeat is not translated"),
    ("trino", "strpos(x, (SELECT 1))", "this argument of STRPOS is not translated"),
    ("flink", "REGEXP(x, y)", "needs a pattern that is a constant text"),
    ("flink", "REGEXP(x, '')", "an empty pattern is not translated"),
    *(
        ("flink", f"REGEXP(x, '{pattern}')", f"'{shown}' in a pattern is not translated; use letters")
        for pattern, shown in (
            ("a(?=b)", "(?="),
            ("(?i)a", "(?i"),
            ("(?<n>a)", "(?<"),
            (r"(a)\1", r"\1"),
            (r"\bfoo", r"\bf"),
            (r"\p{L}", r"\p{"),
            ("a++", "+"),
            ("a{2,3}+", "+"),
            ("a{2", "{2"),
            ("a{1001}", "{10"),
            ("[[:alpha:]]", "[:a"),
            ("[a&&b]", "&&b"),
            ("[]a]", "]a]"),
            ("[b-a]", "]"),
            ("a)", ")"),
            ("a^", "^"),
            ("*", "*"),
        )
    ),
    ("flink", "REGEXP(x, '(a')", "is never closed"),
    ("flink", "REGEXP(x, '^a|b')", "^ or $ beside | is not translated; write (?:a|b)"),
    ("flink", "REGEXP(x, '(a*)*')", "repeating what can be empty is not translated"),
    ("trino", r"regexp_like(x, '\d')", "write a class such as [0-9]"),
    ("flink", "REGEXP_REPLACE(x, 'a*', 'b')", "replacing what can be empty is not translated"),
    ("flink", "REGEXP_REPLACE(x, '(a)', '$1')", "write a plain text"),
    ("trino", "regexp_replace(x, 'a$', 'b')", r"write \z"),
    ("flink", "REGEXP_EXTRACT(x, 'a.*$')", r"write \z"),
    # Java has no $ between a carriage return and a line feed.
    *(
        ("flink", f"REGEXP(x, '{pattern}$')", r"write \z")
        for pattern in (r"a\s", "[^b]", r"[\s]", r"\W", r"[a\r]", "\t-\r")
    ),
    *(("ksqldb", f"REGEXP_EXTRACT('({pattern})$', x, 1)", r"write \z") for pattern in (r"a\s", "[^b]", "[\t-a]")),
    ("flink", "REGEXP_EXTRACT(x, '(a)?b', 1)", "group 1 of this pattern can be left out"),
    ("flink", "REGEXP_EXTRACT(x, '(?:(a)|b)c', 1)", "group 1 of this pattern can be left out"),
    ("flink", "REGEXP_EXTRACT(x, 'a', 1)", "the pattern has no group 1"),
    ("bigquery", "REGEXP_EXTRACT(x, '(a)(b)')", "write (?: ) for all but one"),
    ("snowflake", "REGEXP_LIKE(x, 'a')", "write LIKE with % and _"),
    ("risingwave", r"x ~ '\w'", "write a class such as [0-9]"),
    *(("risingwave", f"x ~ '{pattern}'", "in a pattern is not translated") for pattern in (r"\<a", r"a\>", "[a~~b]")),
    ("flink", "REGEXP(x, 'a{٢}')", "in a pattern is not translated"),
    ("materialize", "x ~* 'a'", "is not translated"),
    ("trino", "approx_percentile(x, 2, 0.5)", "with 3 arguments is not translated"),
    ("trino", "approx_percentile(x, 1.5)", "needs a constant from 0 to 1"),
    ("bigquery", "APPROX_QUANTILES(x, 4)", "write APPROX_QUANTILES(x, 100)[OFFSET(95)]"),
    ("bigquery", "APPROX_QUANTILES(x, 4)[ORDINAL(1)]", "write one offset, counted from 0"),
    ("bigquery", "APPROX_QUANTILES(x, 4)[OFFSET(5)]", "needs an offset that is a constant from 0 to 4"),
    ("snowflake", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x DESC)", "ascending; write 1 - p"),
    ("snowflake", "PERCENTILE_CONT(0.5)", "write PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY x)"),
    ("azure", "PERCENTILE_CONT(0.5) OVER (PARTITION BY y ORDER BY x)", "leave it out"),
]
