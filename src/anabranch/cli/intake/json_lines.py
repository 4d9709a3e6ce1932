"""JSON lines: one object a line. Blocks that are as they should be take Arrow's parser; all others, and what is wrong
with them, are understood line by line."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.json

from anabranch.cli.intake.batch import ADDED, Batch
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import NoTime, to_times
from anabranch.core.rows import rows_to_batch
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_micros


def read_json_lines(blocks: LineBlocks, schema: StreamSchema) -> Iterator[Batch]:
    """The lines as batches of the schema's columns. Raises BadInput.

    Times are ISO 8601 text or integers of µs; bytes are text, or base64 under `NAME_base64`.
    """
    for block in blocks:
        table = _fast(block, schema)
        if table is None:
            yield from _slow(block, schema)
        else:
            yield Batch(table, lambda row, first=block.first: f"line {first + row}")  # type: ignore[misc]


def _fast(block: Lines, schema: StreamSchema) -> pa.Table | None:
    """The block by Arrow's parser, or None where that does not understand it, or its rows may not be its lines."""
    if not all(_is_plain(field.type) for field in schema.columns) or not _is_utf8(block.data):
        return None
    asked = pa.schema([pa.field(f.name, pa.string() if _from_text(f.type) else f.type) for f in schema.columns])
    try:
        table = pa.json.read_json(
            pa.BufferReader(block.data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="error"),
        )
        if table.num_rows != block.count:
            return None
        columns = []
        for field in schema.columns:
            column = table.column(field.name)
            if pa.types.is_timestamp(field.type):
                column = to_times(column, field.type)
            columns.append(column.cast(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NoTime):
        return None
    return pa.table(columns, schema=schema.columns)


def _is_utf8(data: bytes) -> bool:
    """Arrow's parser does not look."""
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


def _slow(block: Lines, schema: StreamSchema) -> Iterator[Batch]:
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    types = {field.name: field.type for field in schema.columns}
    wrong: BadInput | None = None
    for number, line in enumerate(block.data.split(b"\n"), start=block.first):
        if not line.strip():
            continue
        try:
            rows.append(_row(line, types))
        except (ValueError, RecursionError) as exc:
            wrong = BadInput(f"line {number}", _why(exc))
            break
        numbers.append(number)
    try:
        batch = rows_to_batch(rows, schema)
    except SchemaMismatch as exc:
        row = exc.row or 0
        wrong = BadInput(f"line {numbers[row]}", str(exc).replace(f" in row {row}:", ":"))
        batch = rows_to_batch(rows[:row], schema)
    if batch.num_rows:
        yield Batch(pa.Table.from_batches([batch]), lambda row: f"line {numbers[row]}")
    if wrong is not None:
        raise wrong


def _row(line: bytes, types: dict[str, pa.DataType]) -> dict[str, Any]:
    value = json.loads(line.decode())
    if not isinstance(value, dict):
        raise InvalidArgument(f"a line is a JSON object, not {type(value).__name__}")
    row = {}
    for name, item in value.items():
        plain = name.removesuffix("_base64")
        if name in types:
            row[name] = _convert(name, item, types[name])
        elif plain != name and plain in types and pa.types.is_binary(types[plain]):
            row[plain] = None if item is None else base64.b64decode(item, validate=True)
        elif name not in ADDED:
            raise SchemaMismatch(f"there is no column '{name}'; the stream has {', '.join(types)}", column=name)
    return row


def _convert(name: str, item: Any, kind: pa.DataType) -> Any:
    """A JSON value as Arrow takes it for a column."""
    if item is None or not isinstance(item, (str, int, float)):
        return item
    try:
        if pa.types.is_timestamp(kind) and not isinstance(item, float):
            return to_micros(item)
        if isinstance(item, str) and pa.types.is_date(kind):
            return date.fromisoformat(item)
        if isinstance(item, str) and pa.types.is_binary(kind):
            return item.encode()
        if pa.types.is_decimal(kind) and not isinstance(item, bool):
            return Decimal(str(item))
    except (ValueError, InvalidOperation) as exc:
        raise SchemaMismatch(f"column '{name}' takes {kind}: {exc}", column=name) from exc
    return item


def _why(exc: BaseException) -> str:
    match exc:
        case json.JSONDecodeError():
            return f"it is no JSON: {exc.msg} at character {exc.pos + 1}"
        case UnicodeDecodeError():
            return f"it is no UTF-8 text: byte {exc.start + 1} is 0x{exc.object[exc.start]:02x}"
        case binascii.Error():
            return f"it is no base64: {exc}"
        case RecursionError():
            return "it is nested too deeply"
    return str(exc)
