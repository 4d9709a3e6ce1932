"""The size limit on single events of a batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.event_sizes import oversized


def _maps(rows: list[Any]) -> pa.Array:
    return pa.array(rows, pa.map_(pa.string(), pa.int64()))


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 40))
def test_it_finds_the_first_event_that_is_too_large(payloads: list[bytes], most: int) -> None:
    table = pa.table({"payload": pa.array(payloads, pa.binary()), "n": pa.array(range(len(payloads)), pa.int64())})
    first = next((len(payload) for payload in payloads if len(payload) > most), None)
    found = oversized(table, most)
    assert (None if found is None else found.size) == first


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"text": ["a", "x" * 101]}, "column 'text'"),
        ({"list": [[], ["x" * 60] * 2]}, "column 'list'"),
        ({"list": [[1] * 5, [1] * 13]}, "column 'list'"),
        ({"deep": [{"a": {"b": "x"}}, {"a": {"b": "x" * 101}}]}, "column 'deep'"),
        ({"map": _maps([[("x" * 80, 1)], [("x" * 50, 1), ("y" * 50, 2)]])}, "column 'map'"),
        ({"one": ["", "x" * 60], "two": ["", "x" * 60]}, "an event "),
    ],
)
def test_nested_values_and_sums_of_columns_count(columns: dict[str, list[Any]], what: str) -> None:
    table = pa.table(columns)
    found = oversized(table, 100)
    assert found is not None
    assert what in str(found)
    assert oversized(table.slice(0, 1), 100) is None


def test_a_value_at_the_limit_and_nulls_fit() -> None:
    lists = pa.array([None, ["x" * 100]], pa.list_(pa.string()))
    table = pa.table({"text": ["x" * 100, None], "n": [1, 2], "list": lists, "map": _maps([None, None])})
    assert oversized(table, 100) is None
