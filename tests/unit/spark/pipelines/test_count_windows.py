"""Windows of a number of events, held to a model that knows one event at a time, and the SQL that asks for them."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.windows.clauses import WindowedQuery
from anabranch.spark.pipelines.windows.count import CountWindow, complete_windows

Key = tuple[str | None, float | None]
KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, -0.0, math.nan, None]))
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.float64()), ("n", pa.int64())])


@st.composite
def windows(draw: st.DrawFn) -> CountWindow:
    size = draw(st.integers(1, 5))
    return CountWindow(size, draw(st.integers(1, size)))


def plain(key: Key) -> object:
    return key[0], "nan" if key[1] is not None and math.isnan(key[1]) else key[1]


def complete_by_definition(keys: list[Key], window: CountWindow) -> set[tuple[int, ...]]:
    """The windows of each key: its events 0 to size, step to step + size, …, as far as there are events."""
    events: dict[object, list[int]] = {}
    for number, key in enumerate(keys):
        events.setdefault(plain(key), []).append(number)
    return {
        tuple(own[start : start + window.size])
        for own in events.values()
        for start in range(0, len(own) - window.size + 1, window.step)
    }


@given(st.lists(st.lists(KEYS, max_size=12), max_size=4), windows())
def test_each_window_is_complete_once_whatever_the_batches(batches: list[list[Key]], window: CountWindow) -> None:
    kept, found, number = SCHEMA.empty_table(), [], 0
    for batch in batches:
        rows = [{"a": a, "b": b, "n": number + each} for each, (a, b) in enumerate(batch)]
        number += len(batch)
        done = complete_windows(
            pa.concat_tables([kept, pa.Table.from_pylist(rows, SCHEMA)]).combine_chunks(), ["a", "b"], window
        )
        numbers = done.rows.column("n").to_pylist()
        found += [tuple(numbers[first : first + window.size]) for first in range(0, len(numbers), window.size)]
        kept = done.open
        assert kept.num_rows < window.size * len(set(map(plain, (key for each in batches for key in each)))) + 1
    expected = complete_by_definition([key for batch in batches for key in batch], window)
    assert len(found) == len(set(found))
    assert set(found) == expected


def windowed(query: str) -> WindowedQuery:
    (statement,) = parse(f"DECLARE PARAMETER n INT DEFAULT 7;\nCREATE STREAM s.out AS {query}")
    assert statement.windowed is not None
    return statement.windowed


def test_a_query_is_divided_at_its_windows_and_keeps_its_lines() -> None:
    found = windowed(
        """SELECT q.device,
        count_window.end AS closed, count(*) AS n, avg(x * 2) AS x
        FROM STREAM s.events AS q
        WHERE x > 1
        GROUP BY q.device, upper(place), count_window(100, 10)
        HAVING count_window(100, 10).start > '2020-01-01'"""
    )
    assert found.window == CountWindow(100, 10)
    assert found.keys == 2
    assert found.events.splitlines() == [
        "SELECT *, q.device AS _anabranch_key_0, upper(place) AS _anabranch_key_1 ",
        "",
        "FROM anabranch_1_stream_1 AS q",
        "        WHERE x > 1",
    ]
    assert [line.strip() for line in found.results.splitlines()] == [
        "SELECT q.device,",
        "count_window.end AS closed, count(*) AS n, avg(x * 2) AS x FROM anabranch_windows AS `q`",
        "",
        "GROUP BY q.device, upper(place), count_window, _anabranch_window",
        "HAVING count_window.start > '2020-01-01'",
    ]
    assert found.words is not None
    assert {"device", "place", "x"} <= found.words
    assert "events" not in found.words


@pytest.mark.parametrize(
    ("query", "window", "all_columns"),
    [
        ("SELECT count(*) AS n FROM STREAM s.a GROUP BY count_window(5)", CountWindow(5, 5), False),
        ("SELECT max(struct(*)) AS n FROM STREAM s.a GROUP BY COUNT_WINDOW(5, 2)", CountWindow(5, 2), True),
        ("SELECT count(*) AS n FROM STREAM s.a GROUP BY k, count_window(:n)", CountWindow(7, 7), False),
    ],
)
def test_only_the_columns_that_a_query_may_refer_to_are_kept(
    query: str, window: CountWindow, all_columns: bool
) -> None:
    found = windowed(query)
    assert found.window == window
    assert (found.words is None) == all_columns


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT count_window(5) FROM STREAM s.a", "expected count_window in GROUP BY"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(0)", "needs 1 <= step <= events"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5, 6)", "needs 1 <= step <= events"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(x)", "whole numbers"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5, 2, 1)", "whole numbers"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5) + 1", "expected SELECT"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY 1, count_window(5)", "not their numbers"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5), count_window(6)", "expected one window in GROUP BY"),
        (
            "SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5), window(at, '1 minute')",
            "both count_window and other windows",
        ),
        ("SELECT 1 AS n FROM STREAM s.a JOIN s.b USING (k) GROUP BY count_window(5)", "JOIN|one stream"),
        ("SELECT 1 AS n FROM (SELECT * FROM STREAM s.a) GROUP BY count_window(5)", "one stream"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5) ORDER BY n", "can't have ORDER BY"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5) LIMIT 1", "can't have LIMIT"),
        (
            "SELECT DISTINCT 1 AS n FROM STREAM s.a GROUP BY count_window(5)",
            "can't have DISTINCT, which would only see",
        ),
        ("SELECT 2 * sum(count(*)) OVER () AS n FROM STREAM s.a GROUP BY count_window(5)", "can't have OVER"),
        ("SELECT round(sum(1) OVER (ORDER BY k)) AS n FROM STREAM s.a GROUP BY k, count_window(5)", "can't have OVER"),
        ("SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5) HAVING count(*) > 1 OFFSET 5", "can't have OFFSET"),
        ("WITH b AS (SELECT 1) SELECT 1 AS n FROM STREAM s.a GROUP BY count_window(5)", "expected SELECT"),
    ],
)
def test_what_a_count_window_can_not_do_is_refused_at_its_line(query: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message) as refused:
        windowed(query)
    assert refused.value.line == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT offset, over, count(DISTINCT x) AS n FROM STREAM s.a GROUP BY offset, over, count_window(5)",
        "SELECT emit, count(*) AS n FROM STREAM s.a GROUP BY emit, count_window(5) HAVING emit > 1",
        "SELECT q.emit, count(*) AS n FROM STREAM s.a AS q GROUP BY k, q.emit, count_window(5)",
    ],
)
def test_columns_may_be_named_like_clauses(query: str) -> None:
    assert windowed(query).emit is None


def test_the_name_of_a_stream_is_quoted_whatever_is_in_it() -> None:
    found = windowed("SELECT count(*) AS n FROM STREAM s.a AS `a``b` GROUP BY count_window(5)")
    assert "FROM anabranch_windows AS `a``b` " in found.results
