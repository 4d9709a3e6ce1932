"""The columns of a file that has no schema of its own, told from its first block."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from anabranch.cli.intake.batch import ADDED
from anabranch.cli.intake.csv_records import split_header
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import DATE_PATTERN, TIME_PATTERN
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE


def infer_json(blocks: LineBlocks, name: str) -> pa.Schema:
    """The members of the first objects. Raises BadInput, InvalidArgument."""
    block = blocks.peek()
    if block is None or not block.data.strip():
        raise _nothing(name)
    try:
        table = _read_json(block)
        if times := [field.name for field in table.schema if pa.types.is_timestamp(field.type)]:
            # Arrow takes dates for times: look at their texts.
            texts = _read_json(block, pa.schema([pa.field(column, pa.string()) for column in times]))
            table = texts.select(table.column_names)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        _check_json(block)
        raise InvalidArgument(f"the columns of {name} can't be told ({exc}): give --schema") from exc
    return _settle(table)


def _read_json(block: Lines, schema: pa.Schema | None = None) -> pa.Table:
    return pa.json.read_json(
        pa.BufferReader(block.data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema),
    )


def infer_csv(blocks: LineBlocks, name: str, delimiter: str) -> pa.Schema:
    """The header's names with the types of the first records. Raises BadInput, InvalidArgument."""
    block = blocks.peek()
    if block is None or not block.data.strip():
        raise _nothing(name)
    header, records = split_header(block, delimiter)
    if not records.data.strip():
        return pa.schema([pa.field(column, pa.string()) for column in header])
    refused: list[str] = []

    def skip(row: object) -> str:
        refused.append("skip")  # the reader proper will say which record, and why
        return "skip"

    try:
        table = pa.csv.read_csv(
            pa.BufferReader(records.data),
            read_options=pa.csv.ReadOptions(column_names=header, use_threads=False, block_size=len(records.data) + 1),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
            convert_options=pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise InvalidArgument(f"the columns of {name} can't be told ({exc}): give --schema") from exc
    return _settle(table)


def _nothing(name: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is empty: there is nothing to tell the columns from")


def _check_json(block: Lines) -> None:
    for number, line in enumerate(block.data.split(b"\n"), start=block.first):
        if line.strip():
            try:
                json.loads(line)
            except ValueError as exc:
                raise BadInput(f"line {number}", f"it is no JSON: {exc}") from exc


def _settle(table: pa.Table) -> pa.Schema:
    """The columns as a stream may have them: times where all texts are times, text where nothing is known."""
    fields = []
    for name in table.column_names:
        if name not in ADDED:
            column = table.column(name)
            kind = _of_texts(column) if pa.types.is_string(column.type) else _settled(column.type)
            fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _of_texts(column: pa.ChunkedArray) -> pa.DataType:
    known = column.drop_null()
    if len(known):
        for pattern, kind in ((DATE_PATTERN, pa.date32()), (TIME_PATTERN, TIME_TYPE)):
            if pc.all(pc.match_substring_regex(known, pattern)).as_py():
                return kind
    return pa.string()


def _settled(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_null(kind) or types.is_time(kind) or types.is_binary(kind):  # bytes: text that is no UTF-8
        return pa.string()
    if types.is_timestamp(kind):
        return TIME_TYPE
    if types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _settled(field.type)) for field in kind])
    return kind
