"""Infers the columns of a file that has no schema of its own from its first block."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from anabranch import limits
from anabranch.cli.intake import numbers
from anabranch.cli.intake.batch import ADDED
from anabranch.cli.intake.csv_records import as_text, split_header
from anabranch.cli.intake.json_lines import crashes_arrow, parse_line
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import DATE_PATTERN, TIME_PATTERN
from anabranch.core import exact
from anabranch.core.json_text import is_nested
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE

_SPECIAL_TEXT: Final = re.compile(rb'([:\[,]\s*)"(NaN|-?Infinity)"(?=\s*[,\]}])')


def infer_json(blocks: LineBlocks, name: str, *, skip_bad: bool = False) -> pa.Schema:
    """Infers columns from the members of the first objects; with `skip_bad` lines that are not objects are skipped. Raises
    BadInput, InvalidArgument."""
    block = blocks.peek()
    if block is None or not block.data.strip():
        raise _empty(name)
    try:
        return infer_json_block(block, name)
    except BadInput:
        objects = [line for line in block.data.split(b"\n") if skip_bad and _is_object(line)]
        if not objects:
            raise
    return infer_json_block(Lines(b"\n".join(objects), block.first), name)


def infer_json_block(block: Lines, name: str) -> pa.Schema:
    """Infers columns from the members of these objects, of the input `name`. Raises BadInput, InvalidArgument."""
    if crashes_arrow(block):
        _check_json(block)
    try:
        table = _first_types(block)
        if times := [field.name for field in table.schema if pa.types.is_timestamp(field.type)]:
            # Arrow reads dates as times, so their texts are checked.
            texts = _read_json(block, pa.schema([pa.field(column, pa.string()) for column in times]))
            table = texts.select(table.column_names)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        _check_json(block)
        raise InvalidArgument(f"the columns of {name} can't be inferred ({exc}): pass --schema") from exc
    return _with_types(_settle(table), _exact_json(block, table))


def _first_types(block: Lines) -> pa.Table:
    """Arrow's types of the block. A column of numbers stays one if NaN or an infinity in it is written as text, as `read`
    prints it."""
    try:
        return _read_json(block)
    except pa.ArrowInvalid:
        numbers = _SPECIAL_TEXT.sub(rb"\1\2", block.data)
        if numbers == block.data:
            raise
        return _read_json(Lines(numbers, block.first))


def _exact_json(block: Lines, table: pa.Table) -> dict[str, pa.DataType]:
    """Returns types for the columns whose integers Arrow has rounded. Raises InvalidArgument if no type holds them."""
    names = [name for name in table.column_names if exact.may_be_rounded(table.column(name))]
    if not names:
        return {}
    rows = [json.loads(line) for line in block.data.split(b"\n") if line.strip()]
    found = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if pa.types.is_floating(table.schema.field(name).type):
            found[name] = numbers.type_of(name, values)
        else:
            for value in values:
                numbers.refuse_rounded(name, value)
    return found


def _with_types(columns: pa.Schema, types: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in columns])


def _read_json(block: Lines, schema: pa.Schema | None = None) -> pa.Table:
    return pa.json.read_json(
        pa.BufferReader(block.data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema),
    )


def infer_csv(
    blocks: LineBlocks, name: str, delimiter: str, *, lacking: Callable[[list[str]], list[str]] | None = None
) -> pa.Schema:
    """Infers columns from the header's names and the first records' values; with `lacking`, only those that it selects.
    Raises BadInput, InvalidArgument."""
    block = blocks.peek()
    if block is None or not block.data.strip():
        raise _empty(name)
    names, records = split_header(block, delimiter)
    header = names if lacking is None else lacking(names)
    if not header:
        return pa.schema([])
    if not records.data.strip():
        return pa.schema([pa.field(column, pa.string()) for column in header])
    refused: list[str] = []

    def skip(row: object) -> str:
        refused.append("skip")  # the actual reader reports which record, and why
        return "skip"

    def read(convert: pa.csv.ConvertOptions) -> pa.Table:
        return pa.csv.read_csv(
            pa.BufferReader(records.data),
            read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(records.data) + 1),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
            convert_options=convert,
        )

    try:
        table = read(pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True, include_columns=header))
        changed_columns = [name for name in header if _may_be_changed(table.column(name))]
        texts = read(as_text(changed_columns)) if changed_columns else None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise InvalidArgument(f"the columns of {name} can't be inferred ({exc}): pass --schema") from exc
    return _with_types(_settle(table), {} if texts is None else _exact_csv(texts, table))


def _may_be_changed(column: pa.ChunkedArray) -> bool:
    return pa.types.is_integer(column.type) or exact.may_be_rounded(column)


def _exact_csv(texts: pa.Table, table: pa.Table) -> dict[str, pa.DataType]:
    """Returns types for columns of integers that Arrow has rounded, or whose leading zeros it has dropped."""
    found = {}
    for name in texts.column_names:
        column = texts.column(name)
        if numbers.is_padded(column):
            found[name] = pa.string()
        elif not pa.types.is_integer(table.schema.field(name).type):
            found[name] = numbers.type_of(name, map(numbers.number_of, column.to_pylist()))
    return found


def _empty(name: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is empty: no columns can be inferred")


def _check_json(block: Lines) -> None:
    for number, line in enumerate(block.data.split(b"\n"), start=block.first):
        if line.strip():
            try:
                _check_line(line)
            except InvalidArgument as exc:
                raise BadInput(f"line {number}", str(exc)) from exc
            except ValueError as exc:
                raise BadInput(f"line {number}", f"it is not JSON: {exc}") from exc


def _is_object(line: bytes) -> bool:
    try:
        _check_line(line)
    except ValueError:
        return False
    return True


def _check_line(line: bytes) -> None:
    try:
        value = parse_line(line)
    except RecursionError as exc:
        raise InvalidArgument("it is nested too deeply") from exc
    if is_nested(value, limits.JSON_DEPTH_MAX):
        raise InvalidArgument(f"it is nested more than {limits.JSON_DEPTH_MAX} levels deep")


def _settle(table: pa.Table) -> pa.Schema:
    """Returns the columns as a stream may have them: times if all texts are times, text if the type is unknown."""
    fields = []
    for name in table.column_names:
        if name not in ADDED:
            column = table.column(name)
            kind = _of_texts(column) if pa.types.is_string(column.type) else _settled(column.type)
            fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _of_texts(column: pa.ChunkedArray) -> pa.DataType:
    present = column.drop_null()
    if len(present):
        for pattern, kind in ((DATE_PATTERN, pa.date32()), (TIME_PATTERN, TIME_TYPE)):
            if pc.all(pc.match_substring_regex(present, pattern)).as_py():
                return kind
    return pa.string()


def _settled(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_null(kind) or types.is_time(kind) or types.is_binary(kind):  # bytes: text that is not UTF-8
        return pa.string()
    if types.is_timestamp(kind):
        return TIME_TYPE
    if types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _settled(field.type)) for field in kind])
    return kind
