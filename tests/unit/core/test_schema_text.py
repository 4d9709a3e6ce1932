"""Schemas and types written as text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.core.schema_text import parse_schema, parse_type
from anabranch.errors import InvalidArgument


def test_a_type_is_read_whole() -> None:
    assert parse_type("map<string, struct<x: int, y: list<double>>>") == pa.map_(
        pa.string(), pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64()))])
    )
    for text in ("int, b:string", "int string", "int>", "", "list<int"):
        with pytest.raises(InvalidArgument):
            parse_type(text)


def test_columns_are_read_in_order() -> None:
    schema = parse_schema('device:string, "in the shade":bool, price:decimal(10, 2),')
    assert schema == pa.schema([("device", pa.string()), ("in the shade", pa.bool_()), ("price", pa.decimal128(10, 2))])
