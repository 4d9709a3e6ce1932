"""Rows of Spark's state as plain JSON."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.windows.row_blobs import pack
from anabranch.spark.queries.state_rows import bucket_rows, has_part, plain, plain_members


def test_values_are_plain_json() -> None:
    at = datetime(2026, 1, 31, 13, 0, 0, 5, timezone(timedelta(hours=1)))
    assert plain([at, Decimal("1.50"), math.nan, -math.inf, b"abc", {"a": (1, None)}, True]) == [
        "2026-01-31T12:00:00.000005Z",
        "1.50",
        "NaN",
        "-Infinity",
        {"bytes": 3},
        {"a": [1, None]},
        True,
    ]


def test_members_of_equal_names_are_told_apart() -> None:
    assert plain_members(["count", "sum", "count", "sum", "count"], [1, 2.0, 3, 4.0, 5]) == {
        "count": 1,
        "sum": 2.0,
        "count_2": 3,
        "sum_2": 4.0,
        "count_3": 5,
    }


def test_a_bucket_is_told_row_by_row() -> None:
    columns = {
        "celsius": [20.5, None],
        "_anabranch_key_0": ["a", None],
        "_anabranch_time": pa.array([1_000_000, 2_000_000], TIME_TYPE),
        "_anabranch_state": [b"12345", b""],
    }
    found = list(bucket_rows({"rows": pack(pa.table(columns)), "windows": b"", "watermark": 5}))
    assert found == [
        ("rows", {"key_0": "a"}, {"celsius": 20.5, "time": "1970-01-01T00:00:01.000000Z", "state": {"bytes": 5}}),
        ("rows", {"key_0": None}, {"celsius": None, "time": "1970-01-01T00:00:02.000000Z", "state": {"bytes": 0}}),
    ]


def test_a_key_is_found_by_the_text_of_one_of_its_parts() -> None:
    key = {"window": {"start": "x"}, "device": "a", "number": 7, "none": None}
    assert [has_part(key, text) for text in ("a", "7", "x", "None", "b")] == [True, True, False, False, False]
