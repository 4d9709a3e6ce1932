"""The columns of a stream as they are stored: exactly one stored type for each logical type."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import InvalidArgument, SchemaMismatch

TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
APPENDED: Final = "_appended"  # when an event was appended
RESERVED: Final = ("_segment", "_offset", APPENDED)  # added to the batches that a reader yields
ADDED: Final = pa.schema([("_segment", pa.int64()), ("_offset", pa.int64()), ("_appended", TIME_TYPE)])
RAW_COLUMNS: Final = pa.schema([("key", pa.string()), ("time", TIME_TYPE), ("payload", pa.binary())])


def stored_schema(columns: pa.Schema, key: str | None, time: str | None) -> pa.Schema:
    """The user's columns in their stored form; `key` and `time` may name the routing key and the event time. Large,
    view and dictionary types become plain strings and binaries, times become µs, and every field is nullable. Raises
    InvalidArgument."""
    if not 1 <= len(columns) <= limits.COLUMNS_MAX:
        raise InvalidArgument(f"expected 1 to {limits.COLUMNS_MAX:,} columns, got {len(columns)}")
    names = columns.names
    if len(set(names)) != len(names):
        raise InvalidArgument("a column name occurs more than once in the schema")
    if "" in names:
        raise InvalidArgument("a column has an empty name")
    for name in names:
        if name in RESERVED:
            raise InvalidArgument(f"a column can't be named '{name}': the store adds {', '.join(RESERVED)} itself")
    for role, column in (("key", key), ("time", time)):
        if column is not None and column not in names:
            raise InvalidArgument(f"{role}='{column}' is not a column; the columns are {', '.join(names)}")
    fields = [
        pa.field(field.name, TIME_TYPE if field.name == time else stored_type(field), nullable=True)
        for field in columns
    ]
    if key is not None and not _usable_key(fields[names.index(key)].type):
        raise InvalidArgument(
            f"column '{key}' of type {columns.field(key).type} can't be a routing key: "
            "use text, an integer, a bool or a date"
        )
    if time is not None and not _usable_time(columns.field(time).type):
        raise InvalidArgument(
            f"column '{time}' of type {columns.field(time).type} can't be the event time: use a timestamp or date"
        )
    return pa.schema(fields)


def index_levels(columns: pa.Schema) -> list[str]:
    """The columns that hold the index of a pandas DataFrame, as the schema's pandas metadata names them; [] if there is
    no such metadata. pandas writes a range index into the metadata alone."""
    try:
        described = columns.pandas_metadata or {}
    except ValueError:  # the metadata is not JSON: another program wrote it
        return []
    levels = described.get("index_columns", ()) if isinstance(described, dict) else ()
    return [level for level in levels if isinstance(level, str)]


def user_columns(columns: pa.Schema) -> pa.Schema:
    """The columns of a batch without those that a reader adds, and without the unnamed levels of a pandas index. Its
    named levels are columns, as after `reset_index()`."""
    unnamed = {level for level in index_levels(columns) if level.startswith("__index_level_")}
    return pa.schema([field for field in columns if field.name not in {*RESERVED, *unnamed}])


def stored_type(column: pa.Field) -> pa.DataType:
    """The `plain_type` of a column. Raises InvalidArgument, naming the column."""
    try:
        _check_nesting(column.type)
        return plain_type(column.type)
    except InvalidArgument as exc:
        raise InvalidArgument(f"column '{column.name}': {exc}") from exc


def _check_nesting(kind: pa.DataType) -> None:
    within = [kind]
    for _ in range(limits.COLUMN_NESTING_MAX):
        within = [each.field(at).type for each in within for at in range(each.num_fields)]
        if not within:
            return
    raise InvalidArgument(f"its type is nested more than {limits.COLUMN_NESTING_MAX} deep")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The stored form of an Arrow type: one type for each meaning, as Spark's reader requires. Raises InvalidArgument
    for a type that has no stored form."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return TIME_TYPE if kind.tz else pa.timestamp("us")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        why = "Parquet, the format of compacted files, stores only decimals with a scale from 0 to their precision"
        raise InvalidArgument(f"type {kind} is not supported: {why}")
    if types.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind) and kind.num_fields:
        names = [field.name for field in kind]
        if "" in names or len(set(names)) != len(names):
            raise InvalidArgument(
                f"type {kind} is not supported: the fields of a struct need distinct names that are not empty"
            )
        return pa.struct([pa.field(f.name, plain_type(f.type)) for f in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_interval(kind):
        raise InvalidArgument(f"type {kind} is not supported: Parquet, the format of compacted files, has no such type")
    if types.is_primitive(kind) or types.is_string(kind) or types.is_binary(kind) or types.is_decimal(kind):
        return kind
    raise InvalidArgument(f"type {kind} is not supported")


def _usable_key(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind))


def _usable_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def select_columns(columns: Sequence[str] | None, known: pa.Schema) -> list[str]:
    """The names of the columns to read, in the order requested; None means all. Raises SchemaMismatch for an unknown
    column, InvalidArgument if `columns` is not a list of distinct names."""
    names: list[str] = known.names
    if columns is None:
        return names
    listed = isinstance(columns, Collection) and not isinstance(columns, str)
    if not listed or not all(isinstance(name, str) for name in columns) or len(set(columns)) != len(columns):
        raise InvalidArgument("expected columns to be a list of distinct names")
    selected = list(columns)
    for name in selected:
        if name not in names:
            raise SchemaMismatch(f"unknown column '{name}'; the stream has {', '.join(names)}", column=name)
    return selected
