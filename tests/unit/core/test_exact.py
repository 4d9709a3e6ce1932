"""Casts keep every value or are refused; values of single rows likewise."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core import exact
from anabranch.core.python_rows import RowChecker, rows_to_batch, to_stored_table
from anabranch.core.type_widening import as_type
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.amounts import to_duration, to_size
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules, to_micros

BERLIN = TimeRules("Europe/Berlin")


def cast(values: list[Any], source: pa.DataType, kind: pa.DataType, rules: TimeRules | None = None) -> list[Any]:
    column = pa.chunked_array([pa.array(values, source)])
    found = exact.cast(column, kind, rules or TimeRules("UTC"))
    assert found.type == kind
    return list(found.to_pylist())


@pytest.mark.parametrize(
    ("values", "source", "kind"),
    [
        ([0.123456], pa.float64(), pa.decimal128(10, 2)),
        ([Decimal("12345678901234567890.12")], pa.decimal128(22, 2), pa.float64()),
        ([Decimal("0.129")], pa.decimal128(10, 3), pa.decimal128(10, 2)),
        ([5], pa.int64(), pa.bool_()),
        ([0.5], pa.float64(), pa.bool_()),
        ([(1 << 53) + 1], pa.int64(), pa.float64()),
        ([(1 << 64) - 1], pa.uint64(), pa.int64()),
        ([1.5], pa.float64(), pa.int64()),
        ([1e39], pa.float64(), pa.float32()),
        ([0.1], pa.float64(), pa.float32()),
        (["9007199254740993"], pa.string(), pa.float64()),
        (["16777217"], pa.string(), pa.float32()),
        (["1e400"], pa.string(), pa.float64()),
        (["0.129"], pa.string(), pa.decimal128(10, 2)),
        (["1.5"], pa.large_string(), pa.int64()),
        ([datetime(2026, 1, 1, 5)], pa.timestamp("us"), pa.date32()),  # noqa: DTZ001
        ([datetime(2026, 1, 1, 5)], pa.timestamp("us"), pa.time64("us")),  # noqa: DTZ001
        ([1], pa.timestamp("ns", "UTC"), TIME_TYPE),
        ([-1], pa.timestamp("ns"), pa.timestamp("us")),
        ([timedelta(microseconds=5)], pa.duration("us"), pa.duration("ms")),
        ([{"a": 1, "b": 2}], pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("a", pa.int64())])),
        ([{"a": 0.1}], pa.struct([("a", pa.float64())]), pa.struct([("a", pa.float32())])),
        ([[0.123456]], pa.list_(pa.float64()), pa.list_(pa.decimal128(10, 2))),
        ([[1]], pa.list_(pa.timestamp("ns", "UTC")), pa.list_(TIME_TYPE)),
    ],
)
def test_a_cast_that_would_change_a_value_is_refused(values: list[Any], source: pa.DataType, kind: pa.DataType) -> None:
    schema = StreamSchema.typed(pa.schema([("x", kind)]))
    with pytest.raises(SchemaMismatch, match="'x'"):
        to_stored_table(pa.table({"x": pa.array([*values, None], source)}), schema, TimeRules("UTC"))


@pytest.mark.parametrize(
    ("values", "source", "kind", "found"),
    [
        ([0.1, None, float("inf")], pa.float32(), pa.float64(), None),
        ([0.5, None], pa.float64(), pa.float32(), [0.5, None]),
        ([0.25], pa.float64(), pa.decimal128(10, 2), [Decimal("0.25")]),
        ([Decimal("0.10")], pa.decimal128(10, 2), pa.float64(), [0.1]),
        ([1, 0, None], pa.int64(), pa.bool_(), [True, False, None]),
        (["0.1", "1e20", "inf", None], pa.string(), pa.float64(), [0.1, 1e20, float("inf"), None]),
        (["9007199254740992"], pa.string(), pa.float64(), [2.0**53]),
        ([date(2026, 1, 1)], pa.date32(), TIME_TYPE, [datetime(2026, 1, 1, tzinfo=UTC)]),
        ([datetime(2026, 1, 1)], pa.timestamp("us"), pa.date32(), [date(2026, 1, 1)]),  # noqa: DTZ001
        ([1_000], pa.timestamp("ns", "UTC"), TIME_TYPE, [datetime(1970, 1, 1, 0, 0, 0, 1, UTC)]),
        ([{"a": "x"}], pa.struct([("a", pa.large_string())]), pa.struct([("a", pa.string())]), [{"a": "x"}]),
        ([5], pa.int64(), pa.string(), ["5"]),
    ],
)
def test_a_cast_that_keeps_every_value_is_made(
    values: list[Any], source: pa.DataType, kind: pa.DataType, found: list[Any] | None
) -> None:
    wanted = pa.array(values, source).cast(kind).to_pylist() if found is None else found
    assert cast(values, source, kind) == wanted


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.int8(), TIME_TYPE, pa.decimal128(5, 2), pa.list_(pa.float32()), pa.struct([("x", pa.date32())])],
)
def test_lists_that_are_all_empty_and_fields_that_are_all_null_are_kept(kind: pa.DataType) -> None:
    assert cast([[], None], pa.list_(pa.null()), pa.list_(kind)) == [[], None]
    assert cast([[None]], pa.list_(pa.null()), pa.list_(kind)) == [[None]]
    assert cast([{"a": None}], pa.struct([("a", pa.null())]), pa.struct([("a", kind)])) == [{"a": None}]
    assert cast([[[]]], pa.large_list(pa.list_(pa.null())), pa.list_(pa.list_(kind))) == [[[]]]


def test_nested_values_are_still_kept_or_refused() -> None:
    for source, kind, value in (
        (pa.float64(), pa.float32(), 0.1),
        (pa.int64(), pa.float64(), (1 << 53) + 1),
        (pa.string(), pa.float64(), "9007199254740993"),
        (pa.decimal128(20, 0), pa.float64(), Decimal((1 << 53) + 1)),
    ):
        for wrap in (pa.list_, lambda each: pa.struct([("a", each)])):
            values: list[Any] = [[value]] if wrap is pa.list_ else [{"a": value}]
            with pytest.raises((InvalidArgument, pa.ArrowInvalid)):
                cast(values, wrap(source), wrap(kind))


def test_texts_in_arrows_views_are_checked_too() -> None:
    assert cast(["1.5", "9007199254740992"], pa.string_view(), pa.float64()) == [1.5, float(1 << 53)]
    with pytest.raises(InvalidArgument, match="9007199254740993 would become"):
        cast(["9007199254740993"], pa.string_view(), pa.float64())


def test_missing_numbers_stay_missing_and_are_no_change() -> None:
    (nan,) = cast([float("nan")], pa.float64(), pa.float32())
    assert nan != nan
    for kind, value in (
        (pa.list_, [float("nan"), 0.5, None]),
        (pa.large_list, [float("nan"), 0.5, None]),
        (lambda each: pa.struct([("a", pa.list_(each))]), {"a": [0.5, float("nan")]}),
    ):
        assert repr(
            cast([value, None], kind(pa.float64()), (pa.list_ if kind is pa.large_list else kind)(pa.float32()))
        ) == repr([value, None])
        with pytest.raises(InvalidArgument, match="can't be kept"):
            cast(
                [value, {"a": [0.1]} if isinstance(value, dict) else [0.1]],
                kind(pa.float64()),
                (pa.list_ if kind is pa.large_list else kind)(pa.float32()),
            )


def test_missing_numbers_in_maps_are_no_change() -> None:
    wide, narrow = pa.map_(pa.string(), pa.list_(pa.float64())), pa.map_(pa.string(), pa.list_(pa.float32()))
    maps = [[("a", [float("nan"), 0.5])], None, [], [("b", None), ("c", [2.5])]]
    assert repr(cast(maps, wide, narrow)) == repr(maps)
    column = pa.chunked_array([pa.array(maps, wide), pa.array([], wide), pa.array(maps[::-1], wide)])
    found = exact.cast(column.slice(1, 6), narrow)
    assert repr(found.to_pylist()) == repr([*maps, *maps[::-1]][1:7])
    for changed in ([("a", [float("nan"), 0.1])], [("a", [float("nan")]), ("b", [0.1])]):
        with pytest.raises(InvalidArgument, match="can't be kept"):
            cast([maps[0], changed], wide, narrow)


@given(st.lists(st.integers(-(1 << 80), 1 << 80)))
def test_texts_of_integers_are_exact_as_doubles_or_refused(numbers: list[int]) -> None:
    exactly = all(int(float(number)) == number for number in numbers)
    try:
        assert cast([str(n) for n in numbers], pa.string(), pa.float64()) == [float(n) for n in numbers]
        assert exactly
    except InvalidArgument:
        assert not exactly


def test_digits_beyond_microseconds_are_cut_off_where_that_is_asked_for() -> None:
    found = cast([1_234_567], pa.timestamp("ns", "UTC"), TIME_TYPE, TimeRules("UTC", truncate=True))
    assert found == [datetime(1970, 1, 1, 0, 0, 0, 1_234, UTC)]


@pytest.mark.parametrize("nanos", [-1, -999, -1_000, -1_001, 0, 1, 999, 1_000])
def test_a_time_is_cut_the_same_in_batches_rows_texts_and_files(nanos: int) -> None:
    rules, micros = TimeRules("UTC", truncate=True), nanos // 1_000
    cut = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)]
    column = pa.array([nanos], pa.timestamp("ns", "UTC"))
    assert cast([nanos], column.type, TIME_TYPE, rules) == cut
    assert as_type(column, pa.field("at", TIME_TYPE)).to_pylist() == cut
    assert to_micros(pd.Timestamp(nanos, unit="ns", tz="UTC"), rules) == micros
    assert to_micros(str(pd.Timestamp(nanos, unit="ns", tz="UTC")), rules) == micros


@pytest.mark.parametrize("truncate", [False, True])
def test_a_time_that_the_column_can_not_hold_is_refused(truncate: bool) -> None:
    with pytest.raises(InvalidArgument, match="out of the range"):
        cast([10**15], pa.timestamp("s", "UTC"), TIME_TYPE, TimeRules("UTC", truncate=truncate))
    with pytest.raises(SchemaMismatch):
        as_type(pa.array([10**15], pa.timestamp("s", "UTC")), pa.field("at", TIME_TYPE))


@pytest.mark.parametrize("truncate", [False, True])
def test_nat_is_no_time(truncate: bool) -> None:
    missing: Any = pd.NaT
    with pytest.raises(InvalidArgument, match="got NaT"):
        to_micros(missing, TimeRules("UTC", truncate=truncate))


def test_a_batch_without_a_zone_is_of_the_zone_that_was_set() -> None:
    noon = datetime(2026, 7, 1, 12)  # noqa: DTZ001
    assert cast([noon], pa.timestamp("us"), TIME_TYPE, BERLIN) == [datetime(2026, 7, 1, 10, tzinfo=UTC)]
    for changing in (datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)):  # noqa: DTZ001
        with pytest.raises(InvalidArgument, match="skipped or repeated"):
            cast([changing], pa.timestamp("us"), TIME_TYPE, BERLIN)
    with pytest.raises(InvalidArgument, match="has no zone, and such times are refused"):
        cast([noon], pa.timestamp("us"), TIME_TYPE, TimeRules("refuse"))
    with pytest.raises(InvalidArgument, match="inside lists"):
        cast([[noon]], pa.list_(pa.timestamp("us")), pa.list_(TIME_TYPE), BERLIN)


# single rows

ROW = StreamSchema.typed(
    pa.schema(
        [
            ("n", pa.int64()),
            ("f", pa.float32()),
            ("x", pa.float64()),
            ("at", TIME_TYPE),
            ("span", pa.duration("ms")),
            ("clock", pa.time32("ms")),
            ("places", pa.list_(pa.struct([("f", pa.float32()), ("at", TIME_TYPE)]))),
            ("spans", pa.map_(pa.string(), pa.duration("s"))),
        ]
    ),
    time="at",
)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", 1 << 63),
        ("n", 1.5),
        ("f", 1e39),
        ("f", np.float64(1e39)),
        ("f", (1 << 24) + 1),
        ("x", (1 << 53) + 1),
        ("at", pd.Timestamp("2026-01-01T00:00:00.123456789Z")),
        ("span", timedelta(microseconds=5)),
        ("clock", time(1, 2, 3, 456_789)),
        ("places", [{"f": 1e39}]),
        ("places", [{"at": pd.Timestamp("2026-01-01T00:00:00.123456789Z")}]),
        ("spans", {"a": timedelta(milliseconds=5)}),
    ],
)
def test_a_value_that_would_be_changed_is_refused(column: str, value: object) -> None:
    checker = RowChecker(ROW)

    def take() -> None:
        rows_to_batch([checker.checked({column: value})], ROW)

    with pytest.raises(SchemaMismatch, match=f"'{column}'"):
        take()


def test_times_of_rows_are_of_the_zone_that_was_set_at_any_depth() -> None:
    noon = datetime(2026, 7, 1, 12)  # noqa: DTZ001
    checker = RowChecker(ROW, BERLIN)
    row = {"at": noon, "places": [{"at": noon}, None], "f": 0.5}
    taken = rows_to_batch([checker.checked(row)], ROW).to_pylist()[0]
    wanted = datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert (taken["at"], taken["places"][0]["at"]) == (wanted, wanted)
    assert row["at"] == noon, "the caller's own row is left alone"
    with pytest.raises(SchemaMismatch, match=r"'at'.*has no zone"):
        RowChecker(ROW, TimeRules("refuse")).checked(row)


# amounts


def test_amounts_are_exact() -> None:
    assert to_size("9007199254740993B") == 9007199254740993
    assert (to_duration("1.5ms"), to_duration("0.1s"), to_duration("7d")) == (1_500, 100_000, 604_800_000_000)
    with pytest.raises(InvalidArgument, match="not a whole number of µs"):
        to_duration("0.0001ms")  # else nothing, which as an age lets everything go
