"""Reads JSON lines: one object a line. Blocks without errors go through Arrow's parser; all others are parsed line
by line, which also finds what is wrong."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from math import inf, isinf, nan
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from anabranch import limits
from anabranch.cli.intake.batch import ADDED, IntakeBatch
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import DEFAULT_READING, NotATime, TimeReading
from anabranch.core import exact
from anabranch.core.python_rows import RowChecker, rows_to_batch
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.schema import StreamSchema

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_SPECIAL: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}  # the texts that `read` prints
_STEPS: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))  # signed: +1 opens, -1 closes


def read_json_lines(
    blocks: LineBlocks, schema: StreamSchema, times: TimeReading = DEFAULT_READING
) -> Iterator[IntakeBatch]:
    """Yields the lines as batches of the schema's columns. Raises BadInput.

    `times` says how times are read; bytes are text, or base64 under `NAME_base64`.
    """
    for block in blocks:
        table = _fast(block, schema, times)
        if table is None:
            yield from _slow(block, schema, times)
        else:
            yield IntakeBatch(table, lambda row, first=block.first: f"line {first + row}")  # type: ignore[misc]


def _fast(block: Lines, schema: StreamSchema, times: TimeReading = DEFAULT_READING) -> pa.Table | None:
    """Parses the block with Arrow; None if Arrow can't, or if its rows may not correspond to lines."""
    if (
        not all(_is_plain(field.type) for field in schema.columns)
        or not _is_utf8(block.data)
        or is_deep(block)
        or _has_null_line(block.data)
    ):
        return None
    text_schema = pa.schema([pa.field(f.name, pa.string() if _from_text(f.type) else f.type) for f in schema.columns])
    try:
        table = pa.json.read_json(
            pa.BufferReader(block.data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=text_schema, unexpected_field_behavior="error"),
        )
        if table.num_rows != block.count:
            return None
        columns = []
        for field in schema.columns:
            column = table.column(field.name)
            if pa.types.is_timestamp(field.type):
                column = times.for_column(field.name, schema).column(column, field.type)
            elif pa.types.is_floating(field.type) and pc.any(exact.rounded_rows(column)).as_py():
                return None  # integers may have been rounded
            columns.append(column.cast(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NotATime):
        return None
    return pa.table(columns, schema=schema.columns)


def is_deep(block: Lines) -> bool:
    """True if a line may be nested more than `limits.JSON_DEPTH_MAX` deep. Arrow's parser has no bound on depth and
    would crash the process. Brackets in texts count too."""
    data = block.data
    opened = data.count(b"[") + data.count(b"{")
    if opened <= limits.JSON_DEPTH_MAX or opened == data.count(b"\n{") + data.startswith(b"{"):
        return False
    brackets = np.frombuffer(data.translate(_STEPS, _NO_BRACKETS), np.int8)
    depth = np.cumsum(brackets, dtype=np.int64)
    return bool(depth.size and depth.max() - min(0, depth.min()) > limits.JSON_DEPTH_MAX)


def _has_null_line(data: bytes) -> bool:
    """True if a line may be `null`, which Arrow takes for an object without members."""
    if data.startswith(b"null") or b"\nnull" in data:
        return True
    indented = b"\n " in data or b"\n\t" in data or data[:1].isspace()
    return indented and re.search(rb"^[ \t]+null", data, re.MULTILINE) is not None


def _is_utf8(data: bytes) -> bool:
    """True if the data is UTF-8, which Arrow's parser does not check."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return bool(numeric or types.is_string(kind) or _from_text(kind))


def _from_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_binary(kind))


def _slow(block: Lines, schema: StreamSchema, times: TimeReading = DEFAULT_READING) -> Iterator[IntakeBatch]:
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    types = {field.name: field.type for field in schema.columns}
    readings = {name: times.for_column(name, schema) for name in types}
    checker = RowChecker(schema, times.rules)
    wrong: BadInput | None = None
    for number, line in enumerate(block.data.split(b"\n"), start=block.first):
        if not line.strip():
            continue
        try:
            row = _row(line, types, readings)
            checker.check(row)
            rows.append(checker.normalized(row))
        except (ValueError, RecursionError) as exc:
            wrong = BadInput(f"line {number}", _why(exc))
            break
        numbers.append(number)
    try:
        batch = rows_to_batch(rows, schema)
    except SchemaMismatch as exc:
        at = exc.row or 0
        wrong = BadInput(f"line {numbers[at]}", str(exc).replace(f" in row {at}:", ":"))
        batch = rows_to_batch(rows[:at], schema)
    if batch.num_rows:
        yield IntakeBatch(pa.Table.from_batches([batch]), lambda row: f"line {numbers[row]}")
    if wrong is not None:
        raise wrong


class _Fraction(float):
    """A number with a fraction or an exponent, and its original text."""

    text: str

    def __new__(cls, text: str) -> _Fraction:
        found = super().__new__(cls, text)
        if isinf(found):
            raise InvalidArgument(f"{text} is beyond what a double holds")
        found.text = text
        return found


_JSON_TYPES: Final = {str: "a text", bool: "a boolean", int: "a number", _Fraction: "a number"}


def refuse_array(line: bytes) -> None:
    """Raises InvalidArgument for a line that begins an array, as a file does that is one array of objects."""
    if line.lstrip().startswith(b"["):
        raise InvalidArgument(
            "a line is a JSON object, not an array; to convert a file that is one array: jq -c '.[]' FILE"
        )


def _row(line: bytes, types: dict[str, pa.DataType], readings: dict[str, TimeReading]) -> dict[str, Any]:
    refuse_array(line)
    value = json.loads(line.decode(), parse_float=_Fraction)
    if not isinstance(value, dict):
        raise InvalidArgument(f"a line is a JSON object, not {_JSON_TYPES.get(type(value), 'null')}")
    row = {}
    for name, item in value.items():
        plain = name.removesuffix("_base64")
        if name in types:
            row[name] = _convert(name, item, types[name], readings[name])
        elif plain != name and plain in types and pa.types.is_binary(types[plain]):
            row[plain] = None if item is None else base64.b64decode(item, validate=True)
        elif name not in ADDED:
            raise SchemaMismatch(f"unknown column '{name}'; the stream has {', '.join(types)}", column=name)
    return row


def _convert(name: str, item: Any, kind: pa.DataType, times: TimeReading) -> Any:
    """Returns a JSON value in the form that Arrow takes for a column."""
    if isinstance(item, (list, dict)):
        return _with_special_numbers(item, kind)
    if item is None or not isinstance(item, (str, int, float)):
        return item
    try:
        if pa.types.is_timestamp(kind):
            return times.micros(Decimal(item.text) if isinstance(item, _Fraction) else item)
        if isinstance(item, str) and pa.types.is_date(kind):
            return date.fromisoformat(item)
        if isinstance(item, str) and pa.types.is_binary(kind):
            return item.encode()
        if pa.types.is_decimal(kind) and not isinstance(item, bool):
            return Decimal(item.text if isinstance(item, _Fraction) else str(item))
        if pa.types.is_floating(kind) and isinstance(item, str):
            return _SPECIAL.get(item, item)
        if pa.types.is_float64(kind) and isinstance(item, int) and not isinstance(item, bool):
            if exact.changed_number(str(item), float(item)):
                raise InvalidArgument(f"{item} would become {float(item)!r}")
            return float(item)
        if isinstance(item, _Fraction):
            return float(item)
    except (ValueError, InvalidOperation, OverflowError) as exc:
        raise SchemaMismatch(f"column '{name}' takes {kind}: {exc}", column=name) from exc
    return item


def _with_special_numbers(item: Any, kind: pa.DataType) -> Any:
    """The value with the names of NaN and the infinities replaced by these, wherever `kind` has a floating number."""
    types = pa.types
    if isinstance(item, str) and types.is_floating(kind):
        return _SPECIAL.get(item, item)
    if isinstance(item, list) and (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return [_with_special_numbers(each, kind.value_type) for each in item]
    if isinstance(item, dict) and types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        return {
            name: _with_special_numbers(each, fields[name]) if name in fields else each for name, each in item.items()
        }
    return item


def _why(exc: BaseException) -> str:
    match exc:
        case json.JSONDecodeError():
            return f"it is not JSON: {exc.msg} at character {exc.pos + 1}"
        case UnicodeDecodeError():
            return f"it is not UTF-8 text: byte {exc.start + 1} is 0x{exc.object[exc.start]:02x}"
        case binascii.Error():
            return f"it is not base64: {exc}"
        case RecursionError():
            return "it is nested too deeply"
    return str(exc)
