"""Random checks of random rows: conditions held to DuckDB, and the division of rows to a model that takes one row after the
other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.check_condition import parse_condition
from anabranch.core.checks import CHECK_COLUMN, divided, violations
from anabranch.errors import SchemaMismatch
from anabranch.model.check import StreamCheck

SCHEMA: Final = pa.schema([("i", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
NUMBERS: Final = st.sampled_from(
    ["n", "x", "0", "2", "1.5", "-3", "(n + 1)", "n * 2 - x", "-n", "abs(n)", "length(s)", "n / 2"]
)
TEXTS: Final = st.sampled_from(["s", "'a'", "'Ab'", "''", "lower(s)", "upper(s)", "trim(s)"])
COMPARISONS: Final = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
NOT: Final = st.sampled_from(["", "NOT "])
PREDICATES: Final = st.one_of(
    st.builds("{} {} {}".format, NUMBERS, COMPARISONS, NUMBERS),
    st.builds("{} {} {}".format, TEXTS, COMPARISONS, TEXTS),
    st.builds("{} {}BETWEEN {} AND {}".format, NUMBERS, NOT, NUMBERS, NUMBERS),
    st.builds("{} {}IN ({}, {})".format, NUMBERS, NOT, NUMBERS, NUMBERS | st.just("NULL")),
    st.builds("s {}{} {}".format, NOT, st.sampled_from(["LIKE", "ILIKE"]), st.sampled_from(["'a%'", "'_b'", "'%'"])),
    st.builds("{} IS {}NULL".format, NUMBERS | TEXTS, NOT),
    st.builds("n % {} = {}".format, st.sampled_from(["2", "3"]), st.integers(-2, 2)),
    st.sampled_from(["TRUE", "FALSE", "NULL = 1"]),
)
CONDITIONS: Final = st.recursive(
    PREDICATES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)
ROWS: Final = st.lists(
    st.tuples(
        st.none() | st.integers(-4, 4),
        st.none() | st.sampled_from([-2.5, -0.0, 0.0, 1.5, 2.0]),
        st.none() | st.sampled_from(["", "a", "Ab", "b", " ab ", "äb"]),
    ),
    max_size=12,
)
STREAMS: Final = st.none() | st.sampled_from(["s/one", "s/other"])


def table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip("inxs", (i, *row), strict=True)) for i, row in enumerate(rows)], SCHEMA)


def by_duckdb(rows: pa.Table, conditions: Sequence[str]) -> list[list[bool | None]]:
    """For each condition whether it holds for each row."""
    with duckdb.connect() as database:
        database.register("events", rows)
        found = database.sql(
            f"SELECT {', '.join(f'({each})' for each in conditions)} FROM events ORDER BY i"
        ).fetchall()
    return [[row[number] for row in found] for number in range(len(conditions))]


@given(ROWS, st.lists(CONDITIONS, min_size=1, max_size=8))
def test_random_conditions_mean_what_they_mean_in_sql(rows: list[Any], conditions: list[str]) -> None:
    (batch,) = table(rows).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], SCHEMA)]
    assert [parse_condition(each).holds(batch).to_pylist() for each in conditions] == by_duckdb(
        table(rows), conditions
    ), conditions


@given(ROWS, st.lists(st.tuples(CONDITIONS, STREAMS), max_size=4))
def test_each_row_is_kept_or_goes_to_the_stream_of_the_first_check_it_breaks(
    rows: list[Any], drawn: list[tuple[str, str | None]]
) -> None:
    checks = [StreamCheck(f"c{number}", condition, stream) for number, (condition, stream) in enumerate(drawn)]
    events = table(rows)
    held = by_duckdb(events, [each.condition for each in checks]) if checks else []
    broken = [[n for n, column in enumerate(held) if column[row] is False] for row in range(len(rows))]
    refused = [row for row, numbers in enumerate(broken) if any(checks[n].violations is None for n in numbers)]
    batches = events.combine_chunks().to_batches()
    named = [(each.row, str(each).split("'")[1]) for b in batches for each in violations(b, checks, range(len(rows)))]
    assert named == [(row, checks[numbers[0]].name) for row, numbers in enumerate(broken) if numbers]
    if refused:
        with pytest.raises(SchemaMismatch) as error:
            divided(events, checks)
        assert error.value.row == refused[0]
        return
    kept, others = divided(events, checks)
    assert kept.column("i").to_pylist() == [row for row, numbers in enumerate(broken) if not numbers]
    expected: dict[str, list[tuple[int, str]]] = {}
    for row, numbers in enumerate(broken):
        if numbers:
            check = checks[numbers[0]]
            expected.setdefault(check.violations or "", []).append((row, check.name))
    found = {
        stream: list(zip(part.column("i").to_pylist(), part.column(CHECK_COLUMN).to_pylist(), strict=True))
        for stream, part in others.items()
    }
    assert found == expected
