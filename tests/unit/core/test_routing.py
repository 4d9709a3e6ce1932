"""From keys to points and from points to segments. The points below are for ever: every event on disk rests on them."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from enum import Enum, IntEnum, StrEnum
from itertools import pairwise
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import limits
from anabranch.core.routing import KeyPoints, check_key, key_points, key_text, point_of, spread_point, spread_points
from anabranch.errors import InvalidKey, TooLarge
from anabranch.model.keyspace import FULL_KEY_RANGE, KeyRange

POINTS = {
    "": "2d06800538d394c2",
    "a": "e6c632b61e964e1f",
    "A": "d0d496e05c553485",
    "0": "1982e3a7bb241055",
    "-1": "bc25a7b612cba21f",
    "42": "1217cb28c0ef2191",
    "18446744073709551615": "9131ab7296c23377",
    "true": "40bbd512750b7629",
    "false": "43e71bbe0316e682",
    "2026-01-31": "f33cdda776d4e227",
    "0001-01-01": "eedef918dc098c58",
    "9999-12-31": "b3c41e84b218c84c",
    "00000000-0000-0000-0000-000000000000": "ed65b0772be50ee9",
    "123e4567-e89b-12d3-a456-426614174000": "827bd1a3caa9f20c",
    "device-1": "f0a3ba592295c4a5",
    "device-2": "22d5a6d7f3a2385e",
    "é": "f7940a006cf10cb3",
    "e\u0301": "dc0ba6f9447885a8",
    "日本語": "11fec42c806050b7",
    "🜛": "d558261b57b3ee32",
    " a": "5a982aa66d566503",
    "a ": "8b77e4ce57e6352a",
    "a\x00b": "d5a06cd078125351",
    "x" * 17: "89975e6b7d2f5a11",
    "x" * 129: "e4f9742108fe27dc",
    "x" * 241: "14da9e5c301a6a1d",
    "x" * 1025: "9cd2e05a61b8a761",
}


@pytest.mark.parametrize(("text", "point"), POINTS.items())
def test_the_point_of_a_key_is_what_it_always_was(text: str, point: str) -> None:
    assert f"{point_of(text):016x}" == point


def test_a_column_has_the_points_of_its_texts() -> None:
    points = key_points(pa.array(list(POINTS)), spread_from=0).per_row()
    assert [f"{int(point):016x}" for point in points] == list(POINTS.values())


def test_spread_points_are_what_they_are_in_the_formats_page() -> None:
    assert [f"{spread_point(n):016x}" for n in (0, 1, 2)] == [
        "0000000000000000",
        "9e3779b97f4a7c15",
        "3c6ef372fe94f82a",
    ]


class Text(StrEnum):
    A = "text"


class Mixed(str, Enum):  # noqa: UP042 - its own str() is not its value
    A = "text"


class Number(IntEnum):
    A = 7


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, None),
        ("text", "text"),
        ("", ""),
        (Text.A, "text"),
        (Mixed.A, "text"),
        (0, "0"),
        (-7, "-7"),
        (Number.A, "7"),
        (1 << 70, "1180591620717411303424"),
        (True, "true"),
        (False, "false"),
        (date(2026, 1, 31), "2026-01-31"),
        (date(1, 2, 3), "0001-02-03"),
        (UUID("123E4567-E89B-12D3-A456-426614174000"), "123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_every_kind_of_key_has_one_text(key: object, text: str | None) -> None:
    found = key_text(key)
    assert found == text
    assert found is None or type(found) is str


@pytest.mark.parametrize("key", [1.5, b"a", datetime(2026, 1, 31), [1], (1,), {"a": 1}, object()])  # noqa: DTZ001
def test_what_has_no_text_is_refused(key: object) -> None:
    with pytest.raises(InvalidKey, match=type(key).__name__):
        key_text(key)


dates = st.dates(min_value=date(1, 1, 1), max_value=date(9999, 12, 31))


@given(
    st.one_of(
        st.tuples(st.just(pa.string()), st.lists(st.text())),
        st.tuples(st.just(pa.large_string()), st.lists(st.text())),
        st.tuples(st.just(pa.bool_()), st.lists(st.booleans())),
        st.tuples(st.just(pa.int8()), st.lists(st.integers(-(1 << 7), (1 << 7) - 1))),
        st.tuples(st.just(pa.int64()), st.lists(st.integers(-(1 << 63), (1 << 63) - 1))),
        st.tuples(st.just(pa.uint64()), st.lists(st.integers(0, (1 << 64) - 1))),
        st.tuples(st.just(pa.date32()), st.lists(dates)),
    )
)
def test_a_column_and_its_single_values_have_the_same_points(column: tuple[pa.DataType, list[object]]) -> None:
    kind, values = column
    points = key_points(pa.array(values, kind), spread_from=0).per_row()
    assert [int(point) for point in points] == [point_of(str(key_text(value))) for value in values]


def test_null_keys_are_spread_evenly_and_the_others_stay() -> None:
    keys = pa.array(["a", None, "a", None, None, "b"])
    points = key_points(keys, spread_from=5).per_row()
    a, b = point_of("a"), point_of("b")
    assert [int(p) for p in points] == [a, spread_point(5), a, spread_point(6), spread_point(7), b]
    many = key_points(pa.nulls(10_000, pa.string()), spread_from=3)
    counts = Counter(many.locate(FULL_KEY_RANGE.split(10)).tolist())
    assert len(counts) == 10 and max(counts.values()) - min(counts.values()) <= 10


def test_spreading_goes_on_past_the_end_of_64_bits() -> None:
    start = (1 << 64) - 2
    assert [int(p) for p in spread_points(4, start)] == [spread_point(start + i) for i in range(4)]


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=30),
    st.lists(st.integers(1, (1 << 64) - 1), unique=True, max_size=8),
    st.integers(0, (1 << 63) - 1),
)
def test_rows_are_located_as_a_naive_search_would(keys: list[str | None], edges: list[int], spread: int) -> None:
    cuts = [0, *sorted(edges), 1 << 64]
    ranges = [KeyRange(low, high) for low, high in pairwise(cuts)]
    points = key_points(pa.array(keys, pa.string()), spread_from=spread)
    nulls = 0
    expected, rows = [], []
    for key in keys:
        point = spread_point(spread + nulls) if key is None else point_of(key)
        nulls += key is None
        rows.append(point)
        expected.append(next(i for i, part in enumerate(ranges) if point in part))
    assert [int(p) for p in points.per_row()] == rows
    assert points.locate(ranges).tolist() == expected
    picked = np.flatnonzero(np.arange(len(keys)) % 2)
    assert points.select(picked).locate(ranges).tolist() == [expected[i] for i in picked]
    assert len(points) == len(keys)


@given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=2)), max_size=6), min_size=1, max_size=4))
def test_joined_columns_have_their_points_one_behind_the_other(columns: list[list[str | None]]) -> None:
    parts = [key_points(pa.array(column, pa.string()), spread_from=i) for i, column in enumerate(columns)]
    joined = KeyPoints.concat(parts)
    assert joined.per_row().tolist() == [point for part in parts for point in part.per_row().tolist()]
    assert joined.locate(FULL_KEY_RANGE.split(3)).tolist() == [
        where for part in parts for where in part.locate(FULL_KEY_RANGE.split(3)).tolist()
    ]


def test_points_that_are_parted_and_joined_again_and_again_do_not_grow() -> None:
    """As those of events that are refused and sent again. Each round doubled them once, up to the machine's memory."""
    points = key_points(pa.array([f"k{n % 7}" for n in range(40)]), spread_from=0)
    expected = points.per_row().tolist()
    for _ in range(20):
        even, odd = np.arange(0, len(points), 2), np.arange(1, len(points), 2)
        points = KeyPoints.concat([points.select(even), points.select(odd)])
        order = np.argsort(np.concatenate([even, odd]))
        points = KeyPoints(points.points, points.codes[order])
    assert points.per_row().tolist() == expected
    assert len(points.points) <= len(points)


def test_the_edges_of_ranges_belong_to_the_range_above() -> None:
    ranges = FULL_KEY_RANGE.split(4)
    points = np.array([ranges[1].low - 1, ranges[1].low, 0, (1 << 64) - 1], np.uint64)
    assert KeyPoints(points, np.arange(4)).locate(ranges).tolist() == [0, 1, 0, 3]


def test_a_column_of_an_unusable_type_is_refused() -> None:
    for column in (pa.array([1.5]), pa.array([b"a"]), pa.array([[1]])):
        with pytest.raises(InvalidKey, match=str(column.type).partition("<")[0]):
            key_points(column, spread_from=0)


def test_keys_have_a_limit_in_bytes_not_characters() -> None:
    most = limits.KEY_BYTES_MAX
    for fits in ("k" * most, "é" * (most // 2)):
        check_key(fits)
        assert int(key_points(pa.array([fits]), spread_from=0).per_row()[0]) == point_of(fits)
    for over in ("k" * (most + 1), "é" * (most // 2 + 1)):
        with pytest.raises(TooLarge, match="routing key"):
            check_key(over)
        with pytest.raises(TooLarge, match="routing key"):
            key_points(pa.array(["a", over]), spread_from=0)


def test_invalid_unicode_is_no_key() -> None:
    with pytest.raises(InvalidKey, match="as UTF-8"):
        check_key("\ud800")
    raw = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    with pytest.raises(InvalidKey, match="UTF-8"):
        key_points(raw, spread_from=0)
