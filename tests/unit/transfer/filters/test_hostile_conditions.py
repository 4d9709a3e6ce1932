"""Hostile conditions of filters and checks: each is taken or refused, before DuckDB's parser needs minutes or all memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from anabranch.core.check_condition import parse_condition
from anabranch.errors import InvalidArgument
from anabranch.model.schema import StreamSchema
from anabranch.transfer.filters.condition_text import check_condition_text
from anabranch.transfer.filters.event_filter import EventFilter

COLUMNS = pa.schema([("a", pa.int64()), ("s", pa.string())])
ROWS = pa.record_batch({"a": pa.array([1, 2], pa.int64()), "s": ["x", None]})
N = 900


def _filter(where: str) -> None:
    EventFilter(where, StreamSchema.typed(COLUMNS, None, None))


def _check(where: str) -> None:
    parse_condition(where).holds(ROWS)


LANGUAGES: Mapping[str, Callable[[str], None]] = {"filter": _filter, "check": _check}
CONDITIONS = {
    "brackets": "(" * N + "a > 1" + ")" * N,
    "brackets that are not closed": "(" * 5_000,
    "lists": "[" * N + "a" + "]" * N + " IS NULL",
    "WITH in WITH": "a IN (" + "WITH x AS (" * 12,
    "WITH in WITH, closed": "a IN (" + "WITH x AS (" * 12 + "FROM FROM" + ")" * 13,
    "WITH in WITH behind a quote": "s = e'\\'' OR a IN (" + "WITH x AS (" * 12,
    "WITH in WITH behind dollars": "s = $$'$$ OR a IN (" + "WITH x AS (" * 12,
    "WITH in WITH behind a comment": "/* ' */ a IN (" + "WITH x AS (" * 12,
    "negations": "NOT " * N + "a > 1",
    "signs": "- " * N + "a > 1",
    "alternatives": " OR ".join(["a = 1"] * N),
    "a sum": "+".join("a" * N) + " > 1",
    "a list": f"a IN ({', '.join(map(str, range(N)))})",
    "calls": "abs(" * N + "a" + ")" * N + " > 1",
    "cases": "CASE WHEN " * N + "true" + " THEN true END" * N,
    "a long number": "a > " + "9" * 5_000,
    "half a surrogate pair": "s = '\ud800'",
    "a NUL": "s = '\0' OR a\0 > 1",
    "a comment that is not closed": "a > 1 /*",
    "a quote that is not closed": "s = 'x",
    "another statement": "true); DROP TABLE events; SELECT (1",
    "megabytes": "a > 1 OR " * 500_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", CONDITIONS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_hostile_condition_is_taken_or_refused(language: str, what: str) -> None:
    message = ""
    try:
        LANGUAGES[language](CONDITIONS[what])
    except InvalidArgument as exc:
        message = str(exc)
    assert len(message) < 2_000


def test_long_lists_and_alternatives_are_evaluated() -> None:
    several = " OR ".join(f"a = {n}" for n in range(2, 900))
    for where in (several, f"a IN ({', '.join(map(str, range(2, 900)))})", f"{'+'.join('a' * 900)} > 1700"):
        assert parse_condition(where).holds(ROWS).to_pylist() == [False, True], where[:40]


def test_what_only_looks_hostile_is_taken() -> None:
    for where in (
        "s = 'with a as (' AND \"with\" IS NULL",
        "s = e'it\\'s' OR s = 'it''s (' -- a ( in a comment",
        "s = $tag$ WITH ( $tag$ OR a > 1 /* ( */",
        "CAST(s AS TIMESTAMP WITH TIME ZONE) IS NULL",
        "withdrawn(a) AND NOT starts_with(s, '{')",
    ):
        check_condition_text(where)
