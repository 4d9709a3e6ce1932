"""DuckDB's names of the column types that functions in Python take and return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

__all__ = ["TYPES", "type_name"]

TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    pa.date32(): "DATE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
}


def type_name(kind: pa.DataType) -> str:
    """The name of a type. The name of a struct contains the names of its fields' types, the name of a list the name of
    its item type."""
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{field.name} {type_name(field.type)}' for field in kind)})"
    if pa.types.is_list(kind):
        return f"{type_name(kind.value_type)}[]"
    return TYPES[kind]
