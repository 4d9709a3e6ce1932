"""Schemas: one spelling for each meaning, roles that fit, and nothing but new columns in later versions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.columns import RESERVED, TIME_TYPE, plain_type
from anabranch.model.schema import RAW, StreamSchema


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", tz="Europe/Berlin"), TIME_TYPE),
        (pa.date64(), pa.date32()),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (pa.struct([("a", pa.large_string())]), pa.struct([("a", pa.string())])),
        (pa.map_(pa.large_string(), pa.date64()), pa.map_(pa.string(), pa.date32())),
        (pa.uint64(), pa.uint64()),
        (pa.float16(), pa.float16()),
        (pa.bool_(), pa.bool_()),
        (pa.decimal128(9, 2), pa.decimal128(9, 2)),
    ],
)
def test_each_meaning_has_one_spelling(given: pa.DataType, stored: pa.DataType) -> None:
    assert plain_type(given) == stored
    assert plain_type(stored) == stored


def test_a_typed_schema_is_normalised_and_all_nullable() -> None:
    columns = pa.schema(
        [pa.field("d", pa.large_string(), nullable=False), ("at", pa.timestamp("s")), ("on", pa.date64())]
    )
    schema = StreamSchema.typed(columns, "d", "at")
    assert schema.columns == pa.schema([("d", pa.string()), ("at", TIME_TYPE), ("on", pa.date32())])
    assert (schema.key, schema.time, schema.raw) == ("d", "at", False)


@pytest.mark.parametrize(
    "schema", [RAW, StreamSchema.typed(pa.schema([("a", pa.int64()), ("t", TIME_TYPE)]), "a", "t")]
)
def test_a_schemas_bytes_come_back_as_the_schema(schema: StreamSchema) -> None:
    assert StreamSchema.from_bytes(schema.to_bytes(), schema.key, schema.time, schema.raw) == schema


@pytest.mark.parametrize("kind", [pa.string(), pa.int8(), pa.uint64(), pa.bool_(), pa.date32(), pa.date64()])
def test_types_with_a_canonical_text_can_be_keys(kind: pa.DataType) -> None:
    assert StreamSchema.typed(pa.schema([("k", kind)]), "k").key == "k"


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.binary(), pa.timestamp("us"), pa.list_(pa.string()), pa.decimal128(5)]
)
def test_other_types_cannot(kind: pa.DataType) -> None:
    with pytest.raises(InvalidArgument, match=r"'k' of type .* can't be a routing key"):
        StreamSchema.typed(pa.schema([("k", kind)]), "k")


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("s", tz="UTC"), pa.date32()])
def test_moments_can_be_the_event_time(kind: pa.DataType) -> None:
    assert StreamSchema.typed(pa.schema([("t", kind)]), time="t").columns.field("t").type == TIME_TYPE


def test_other_columns_cannot_be_the_event_time() -> None:
    with pytest.raises(InvalidArgument, match="can't be the event time"):
        StreamSchema.typed(pa.schema([("t", pa.int64())]), time="t")


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([]),
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        pa.schema([("", pa.int64())]),
        *(pa.schema([(name, pa.int64())]) for name in RESERVED),
        pa.schema([(f"c{i}", pa.int64()) for i in range(limits.COLUMNS_MAX + 1)]),
        pa.schema([("a", pa.null())]),
        pa.schema([("a", pa.month_day_nano_interval())]),
        pa.schema([("a", pa.struct([]))]),
    ],
)
def test_columns_that_cannot_be_stored_are_refused(columns: pa.Schema) -> None:
    with pytest.raises(InvalidArgument):
        StreamSchema.typed(columns)


@pytest.mark.parametrize("roles", [{"key": "b"}, {"time": "b"}])
def test_a_role_must_name_a_column(roles: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="='b' is not a column; the columns are a"):
        StreamSchema.typed(pa.schema([("a", pa.string())]), **roles)


def test_a_schema_evolves_by_new_columns_at_its_end() -> None:
    first = StreamSchema.typed(pa.schema([("a", pa.string()), ("t", TIME_TYPE)]), "a", "t")
    second = first.evolved(pa.schema([("new", pa.large_string()), ("t", pa.timestamp("ns")), ("a", pa.string())]))
    assert second.columns.names == ["a", "t", "new"]
    assert (second.key, second.time) == ("a", "t")
    assert second.evolved(second.columns) == second


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (pa.schema([("b", pa.int64()), ("c", pa.int64())]), "a"),
        (pa.schema([("a", pa.int64()), ("b", pa.int64())]), "a"),
        (pa.schema([("a", pa.string()), ("b", pa.int32())]), "b"),
    ],
)
def test_any_other_change_is_refused_and_its_column_named(columns: pa.Schema, named: str) -> None:
    first = StreamSchema.typed(pa.schema([("a", pa.string()), ("b", pa.int64())]))
    with pytest.raises(SchemaMismatch) as caught:
        first.evolved(columns)
    assert caught.value.column == named


def test_a_raw_stream_does_not_evolve() -> None:
    with pytest.raises(SchemaMismatch, match="raw"):
        RAW.evolved(pa.schema([("a", pa.string())]))


@pytest.mark.parametrize(
    "wrapped", [pa.list_, lambda kind: pa.struct([("a", kind)]), lambda kind: pa.map_(pa.string(), kind)]
)
def test_a_column_may_be_nested_only_as_deep_as_it_can_be_read_again(
    wrapped: Callable[[pa.DataType], pa.DataType],
) -> None:
    kind: pa.DataType = pa.int64()
    depth = 0
    while depth < limits.COLUMN_NESTING_MAX:
        deepest = StreamSchema.typed(pa.schema([("a", kind)]))
        assert StreamSchema.from_bytes(deepest.to_bytes(), None, None, False).columns == deepest.columns
        kind = wrapped(kind)
        depth += 2 if pa.types.is_map(kind) else 1  # a map is a list of entries
    with pytest.raises(InvalidArgument, match="column 'a': its type is nested more than 64 deep"):
        StreamSchema.typed(pa.schema([("a", wrapped(kind))]))
