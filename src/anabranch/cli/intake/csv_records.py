"""CSV with a header. An empty, unquoted field is null."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.csv

from anabranch.cli.intake.batch import ADDED, Batch
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import NoTime, to_times
from anabranch.errors import InvalidArgument
from anabranch.model.schema import StreamSchema

_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to [^:]*: (.*)", re.S)
_WIDTH = re.compile(r"CSV parse error: .*?Expected (\d+) columns, got (\d+)", re.S)
_TEXT: Final = pa.string()


def read_csv_records(blocks: LineBlocks, schema: StreamSchema, *, delimiter: str) -> Iterator[Batch]:
    """The records as batches of those of the schema's columns that the header names. Raises BadInput."""
    first = blocks.peek()
    if first is None:
        return
    header, rest = split_header(first, delimiter)
    parser = _Parser(header, schema, delimiter)
    for number, block in enumerate(blocks):
        records = rest if number == 0 else block
        if not records.data.strip():
            continue
        try:
            table = parser.parse(records.data)
        except _Wrong:
            yield from _until_wrong(parser, records)
        else:
            yield Batch(table, partial(_place, records))


def split_header(block: Lines, delimiter: str) -> tuple[list[str], Lines]:
    """The names in the first record of the file, and the records behind it. Raises BadInput."""
    starts, _ = _records(block)
    end = starts[1] if len(starts) > 1 else len(block.data)
    try:
        text = block.data[:end].decode().strip("\r\n")
        header = next(csv.reader([text], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as exc:
        raise BadInput("line 1", f"the header can't be read: {exc}") from exc
    if not any(header):
        raise BadInput("line 1", "the header is empty; it names the columns")
    if len(set(header)) != len(header):
        raise BadInput("line 1", "the header names a column twice")
    lines = block.data[:end].count(b"\n")
    return header, Lines(block.data[end:], block.first + lines)


class _Wrong(Exception):
    """A record is not as it should be."""


class _Parser:
    """Text of whole records into columns."""

    def __init__(self, header: list[str], schema: StreamSchema, delimiter: str) -> None:
        self._header = header
        self._fields = [field for field in schema.columns if field.name in header]
        for name in header:
            if name not in schema.columns.names and name not in ADDED:
                known = ", ".join(schema.columns.names)
                raise BadInput("line 1", f"there is no column '{name}'; the stream has {known}")
        for field in self._fields:
            if pa.types.is_nested(field.type):
                raise InvalidArgument(
                    f"CSV can't hold column '{field.name}' of type {field.type}; use JSON lines or Parquet"
                )
        # Times are taken as text first: they may come with or without a zone.
        types = {f.name: _TEXT if pa.types.is_timestamp(f.type) else f.type for f in self._fields}
        self._convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=[field.name for field in self._fields],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        self._parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def parse(self, data: bytes) -> pa.Table:
        """Raises _Wrong, which says why of a single record."""
        if not data.endswith(b"\n"):
            data += b"\n"  # without it Arrow takes an empty last field for a quoted one
        read = pa.csv.ReadOptions(column_names=self._header, use_threads=False, block_size=len(data) + 1)
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(data), read_options=read, parse_options=self._parse, convert_options=self._convert
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
            raise _Wrong(self._why(str(exc))) from exc
        columns = []
        for field in self._fields:
            column = table.column(field.name)
            if pa.types.is_timestamp(field.type):
                try:
                    column = to_times(column, field.type)
                except NoTime as exc:
                    raise _Wrong(f"column '{field.name}' takes {field.type}: {exc}") from exc
            columns.append(column)
        return pa.table(columns, schema=pa.schema(self._fields))

    def _why(self, text: str) -> str:
        if found := _COLUMN.match(text):
            name = self._header[int(found[1])]
            kind = next(field.type for field in self._fields if field.name == name)
            return f"column '{name}' takes {kind}: {found[2]}"
        if found := _WIDTH.match(text):
            return f"it has {found[2]} fields, the header has {found[1]}"
        return text


def _until_wrong(parser: _Parser, block: Lines) -> Iterator[Batch]:
    """The records before the first wrong one, found by halving, then BadInput."""
    starts, _ = _records(block)
    edges = [*starts, len(block.data)]
    low, high = 0, len(starts)  # the records before `low` are right; the wrong one is before `high`
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parser.parse(block.data[edges[low] : edges[middle]])
            low = middle
        except _Wrong:
            high = middle
    if low:
        good = block.data[: edges[low]]
        yield Batch(parser.parse(good), partial(_place, Lines(good, block.first)))
    why = "it can't be read"
    try:
        parser.parse(block.data[edges[low] : edges[low + 1]])
    except _Wrong as exc:
        why = str(exc)
    raise BadInput(_place(block, low), why)


def _place(block: Lines, row: int) -> str:
    """The line on which a record begins."""
    return f"line {_records(block)[1][row]}"


def _records(block: Lines) -> tuple[list[int], list[int]]:
    """Where the records of a block that are not empty begin: at which byte, and on which line."""
    lines = [line + b"\n" for line in block.data.removesuffix(b"\n").split(b"\n")]
    starts, numbers = [], []
    inside = False
    for number, (at, line) in enumerate(zip(accumulate(map(len, lines), initial=0), lines, strict=False), block.first):
        if not inside and line.strip(b"\r\n"):
            starts.append(at)
            numbers.append(number)
        inside ^= line.count(b'"') % 2 == 1
    return starts, numbers
