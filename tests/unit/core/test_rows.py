"""Python values and foreign batches as a stream's columns. What does not fit is refused, and named."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.python_rows import RowChecker, rows_to_batch, to_stored_table, wrong_rows
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = StreamSchema.typed(
    pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("n", pa.int32()), ("x", pa.float64())]), "device", "at"
)
WIDE = StreamSchema.typed(
    pa.schema(
        [
            ("text", pa.string()),
            ("data", pa.binary()),
            ("ok", pa.bool_()),
            ("small", pa.uint8()),
            ("x", pa.float32()),
            ("at", TIME_TYPE),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("span", pa.duration("us")),
            ("price", pa.decimal128(9, 2)),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
        ]
    )
)
GOOD: dict[str, Any] = {
    "text": "é",
    "data": b"\x00\xff",
    "ok": True,
    "small": 255,
    "x": 0.5,
    "at": AT,
    "local": datetime(2026, 1, 31, 12),  # noqa: DTZ001
    "day": date(2026, 1, 31),
    "span": timedelta(seconds=1),
    "price": Decimal("1.25"),
    "tags": ["a", None],
    "place": {"lat": 1.5, "lon": None},
}


# single rows


@pytest.mark.parametrize("column", list(GOOD))
def test_a_row_with_the_right_value_passes(column: str) -> None:
    RowChecker(WIDE).checked({column: GOOD[column]})
    RowChecker(WIDE).checked({column: None})
    assert rows_to_batch([{column: GOOD[column]}], WIDE).column(column).to_pylist() == [GOOD[column]]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("text", 5),
        ("text", b"\xff"),
        ("small", 2.5),
        ("small", Decimal("2.5")),
        ("small", float("nan")),
        ("small", -1),
        ("at", 0.5),
        ("day", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("place", {"lat": 1.0, "height": 2.0}),
        ("data", 5),
        ("ok", "yes"),
        ("small", "5"),
        ("x", "0.5"),
        ("at", "soon"),
        ("day", "2026-01-31"),
        ("span", "1 s"),
        ("price", "1.25 €"),
        ("tags", "abc"),
        ("tags", [1]),
        ("place", {"lat": "north"}),
        ("place", 7),
    ],
)
def test_a_wrong_value_is_refused_and_its_column_named(column: str, value: object) -> None:
    def take() -> None:
        RowChecker(WIDE).checked({"text": "fine", column: value})
        rows_to_batch([{column: value}], WIDE)  # what a look at the class can't tell

    with pytest.raises(SchemaMismatch, match=f"'{column}'") as caught:
        take()
    assert caught.value.column == column


def test_a_time_of_day_with_a_zone_is_refused() -> None:
    checker = RowChecker(StreamSchema.typed(pa.schema([("t", pa.time64("us"))])))
    assert checker.checked({"t": time(10)}) == {"t": time(10)}
    with pytest.raises(SchemaMismatch, match="without a zone"):
        checker.checked({"t": time(10, tzinfo=UTC)})


def test_an_unknown_column_is_refused_and_the_known_ones_listed() -> None:
    with pytest.raises(SchemaMismatch, match=r"unknown column 'celsius'.*device, at, n, x") as caught:
        RowChecker(SCHEMA).checked({"device": "a", "celsius": 1.0})
    assert caught.value.column == "celsius"


@pytest.mark.parametrize("row", [b"bytes", "text", 5, None, [1], ("device", "a")])
def test_what_is_no_mapping_is_refused(row: Any) -> None:
    with pytest.raises(InvalidArgument, match="mapping of its columns"):
        RowChecker(SCHEMA).checked(row)


def test_values_of_other_libraries_are_left_to_arrow() -> None:
    checker = RowChecker(SCHEMA)
    checker.checked({"n": np.int32(5), "x": np.float64(0.5), "at": pd.Timestamp("2026-01-31", tz="UTC")})
    with pytest.raises(SchemaMismatch, match="'n'"):
        checker.checked({"n": np.int64(1 << 40)})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.duration("us"), pd.Timedelta(1_001)),
        (pa.duration("s"), pd.Timedelta(1, "s") + pd.Timedelta(1)),
        (pa.list_(pa.duration("us")), [pd.Timedelta(1_001)]),
        (pa.map_(pa.string(), pa.duration("us")), {"a": pd.Timedelta(1_001)}),
        (pa.list_(pa.duration("us")), np.array([1_001], "timedelta64[ns]")),
        (pa.list_(pa.timestamp("us")), np.array(["2026-01-31T12:00:00.000000001"], "datetime64[ns]")),
        (pa.list_(pa.date32()), np.array([5], "datetime64[ns]")),
        (pa.list_(pa.time64("us")), np.array([5], "timedelta64[ns]")),
        (pa.list_(pa.int64()), np.array([5], "timedelta64[ns]")),
        (pa.time64("us"), np.timedelta64(5, "ns")),
        (pa.int64(), np.True_),
        (pa.list_(pa.date32()), [np.True_]),
        (pa.duration("us"), np.timedelta64(1_001, "ns")),
        (pa.struct([("a", pa.int64())]), []),
        (pa.struct([("a", pa.int64())]), ""),
        (pa.struct([("a", pa.map_(pa.string(), pa.int64()))]), [("a", [None])]),  # which ends the process in Arrow
        (pa.struct([("a", pa.map_(pa.string(), pa.int64()))]), ([None],)),
        (pa.struct([("a", pa.int64())]), (1, 2)),
        (pa.map_(pa.string(), pa.int64()), ""),
        (pa.float16(), 2_049),
        (pa.float16(), -(10**6)),
        (pa.float16(), 10**400),
        (pa.float16(), np.int64(2_049)),
        (pa.list_(pa.float16()), [1, 2_049]),
    ],
)
def test_a_value_that_arrow_would_change_is_refused(kind: pa.DataType, value: object) -> None:
    schema = StreamSchema.typed(pa.schema([("x", kind)]))
    with pytest.raises(SchemaMismatch, match="'x'"):
        rows_to_batch([RowChecker(schema).checked({"x": value})], schema)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.duration("us"), pd.Timedelta(1_000)),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1, "b": None}),
        (pa.duration("ns"), pd.Timedelta(1_001)),
        (pa.duration("us"), np.timedelta64(1_001, "us")),
        (pa.timestamp("us"), np.datetime64("2026-01-31T12:00:00.000001", "us")),
        (pa.bool_(), np.True_),
        (pa.float16(), 2_048),
        (pa.float16(), -65_504),
        (pa.list_(pa.float16()), [4_096]),
        (pa.list_(pa.int8()), np.array([1, 2])),
        (pa.list_(pa.duration("us")), np.array([1_001], "timedelta64[us]")),
    ],
)
def test_a_value_that_arrow_keeps_is_taken(kind: pa.DataType, value: Any) -> None:
    schema = StreamSchema.typed(pa.schema([("x", kind)]))
    batch = rows_to_batch([RowChecker(schema).checked({"x": value})], schema)
    assert batch.column(0).to_pylist() == [value.tolist() if isinstance(value, np.ndarray) else value]


@pytest.mark.parametrize("column", ["at", "day", "text"])
def test_nat_is_null_as_in_a_batch(column: str) -> None:
    row = RowChecker(WIDE).checked({column: pd.NaT})
    assert rows_to_batch([row], WIDE).column(column).to_pylist() == [None]
    nested = RowChecker(StreamSchema.typed(pa.schema([("times", pa.list_(TIME_TYPE))])))
    assert nested.checked({"times": [pd.NaT]}) == {"times": [None]}


def test_no_memoryview_of_a_caller_is_kept() -> None:
    data = bytearray(b"view")
    with memoryview(data) as view:
        nested = pa.list_(pa.struct([("data", pa.binary())]))
        schema = StreamSchema(pa.schema([("data", pa.binary()), ("nested", nested)]), None, None)
        row = RowChecker(schema).checked({"data": view, "nested": [{"data": view}]})
        taken = rows_to_batch([row], schema).to_pylist()
    data.append(0)  # BufferError while a view of it exists
    assert taken == [{"data": b"view", "nested": [{"data": b"view"}]}]


def test_any_mapping_is_a_row() -> None:
    RowChecker(SCHEMA).checked(MappingProxyType({"device": "a"}))


def test_missing_columns_are_null_and_order_does_not_matter() -> None:
    batch = rows_to_batch([{"n": 1, "device": "a"}, {"x": 0.5}], SCHEMA)
    assert batch.schema == SCHEMA.columns
    assert batch.to_pylist() == [
        {"device": "a", "at": None, "n": 1, "x": None},
        {"device": None, "at": None, "n": None, "x": 0.5},
    ]


def test_the_first_wrong_row_and_its_column_are_named() -> None:
    rows: list[dict[str, Any]] = [{"n": 1}, {"device": "a"}, {"device": "b", "n": 1 << 40}, {"device": 5}]
    with pytest.raises(SchemaMismatch, match="'n' takes int32 in row 2") as caught:
        rows_to_batch(rows, SCHEMA)
    assert (caught.value.row, caught.value.column) == (2, "n")


@given(st.lists(st.sampled_from([1, -5, None, 1 << 31, "text", 7]), max_size=12))
def test_of_many_rows_exactly_the_wrong_ones_are_found(values: list[Any]) -> None:
    rows = [{"device": "d", "n": value} for value in values]
    wrong = dict(wrong_rows(rows, SCHEMA))
    bad = [i for i, value in enumerate(values) if value in (1 << 31, "text")]
    assert list(wrong) == bad
    assert [(error.row, error.column) for error in wrong.values()] == [(i, "n") for i in bad]
    right = [row for i, row in enumerate(rows) if i not in wrong]
    assert rows_to_batch(right, SCHEMA).num_rows == len(right)


def test_a_text_that_is_no_unicode_is_a_wrong_value() -> None:
    with pytest.raises(SchemaMismatch, match=r"'device'.*row 1"):
        rows_to_batch([{"device": "fine"}, {"device": "\ud800"}], SCHEMA)


def test_a_rows_weight_is_that_of_its_texts_and_bytes_wherever_they_lie() -> None:
    checker = RowChecker(WIDE)
    assert checker.bytes_of({"small": 5, "x": 1.0, "ok": None}) == 0
    assert checker.bytes_of({"text": "x" * 100, "data": bytes(50)}) == 150
    assert checker.bytes_of({"tags": ["x" * 1_000] * 3}) >= 3_000


# batches

TABLE = pa.table({"x": [0.5, 1.5], "device": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
SOURCES = {
    "table": TABLE,
    "record batch": TABLE.to_batches()[0],
    "chunked table": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "pandas": TABLE.to_pandas(),
    "polars": pl.from_arrow(TABLE),
    "record batch reader": pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
}


class OnlyAnArray:
    """A foreign batch with nothing but Arrow's C interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("source", [*SOURCES, "array"])
def test_a_batch_of_any_library_becomes_the_streams_columns(source: str) -> None:
    found = to_stored_table(OnlyAnArray() if source == "array" else SOURCES[source], SCHEMA)
    assert found.schema == SCHEMA.columns
    assert found.to_pylist() == [
        {"device": "a", "at": None, "n": 1, "x": 0.5},
        {"device": "b", "at": None, "n": 2, "x": 1.5},
    ]


def test_types_that_fit_are_cast() -> None:
    data = pa.table(
        {
            "device": pa.array(["a"]).dictionary_encode(),
            "at": pa.array([AT], pa.timestamp("ms", tz="Europe/Berlin")),
            "n": pa.array([7], pa.int64()),
            "x": pa.array([3], pa.int8()),
        }
    )
    assert to_stored_table(data, SCHEMA).to_pylist() == [{"device": "a", "at": AT, "n": 7, "x": 3.0}]


def test_pandas_nanoseconds_and_missing_values_are_taken() -> None:
    frame = pd.DataFrame(
        {
            "device": ["a", None],
            "at": [pd.Timestamp("2026-01-31 12:00:00.123456789", tz="UTC"), None],
            "x": [0.5, float("nan")],
        }
    )
    with pytest.raises(SchemaMismatch, match=r"'at'.*12:00:00\.123456789Z has digits beyond µs"):
        to_stored_table(frame, SCHEMA)
    found = to_stored_table(frame, SCHEMA, TimeRules(truncate=True))
    assert found.column("device").to_pylist() == ["a", None]
    assert found.column("at").cast(pa.int64()).to_pylist() == [int(AT.timestamp() * 1e6) + 123_456, None]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"device": ["a"], "celsius": [1.0]}, "celsius"),
        ({"device": ["a"], "n": [1 << 40]}, "n"),
        ({"device": ["a"], "n": [1.5]}, "n"),
        ({"device": ["a"], "n": ["one"]}, "n"),
        ({"device": ["a"], "at": ["soon"]}, "at"),
        ({"device": [[1]]}, "device"),
        ({"device": [b"\xff"]}, "device"),
    ],
)
def test_what_no_safe_cast_converts_is_refused_and_named(columns: dict[str, list[Any]], named: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"'{named}'") as caught:
        to_stored_table(pa.table(columns), SCHEMA)
    assert caught.value.column == named


def test_a_column_that_stands_twice_is_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    with pytest.raises(SchemaMismatch, match="twice"):
        to_stored_table(twice, SCHEMA)


@pytest.mark.parametrize("data", [b"bytes", "text", 5, None, [{"device": "a"}], {"device": ["a"]}])
def test_what_is_no_batch_is_refused(data: Any) -> None:
    with pytest.raises(InvalidArgument, match="__arrow_c_stream__"):
        to_stored_table(data, SCHEMA)


@pytest.mark.parametrize(
    "data", [pa.chunked_array([[1]]), pa.array([1]), pd.DataFrame({"n": [1, "x"]})], ids=["chunks", "array", "mixed"]
)
def test_what_arrow_can_not_read_as_columns_is_refused(data: Any) -> None:
    with pytest.raises(InvalidArgument, match="is not a batch of columns"):
        to_stored_table(data, SCHEMA)


def test_an_error_of_batches_that_are_computed_while_they_are_read_is_the_callers() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        raise KeyError("theirs")

    with pytest.raises(pa.ArrowInvalid, match="theirs"):
        to_stored_table(pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches()), SCHEMA)


def test_an_empty_batch_is_a_batch() -> None:
    assert to_stored_table(TABLE.slice(0, 0), SCHEMA).num_rows == 0
