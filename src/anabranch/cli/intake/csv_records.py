"""Reads CSV with a header. An empty, unquoted field is null."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from anabranch.cli.intake.batch import ADDED, IntakeBatch
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import DEFAULT_READING, NotATime, TimeReading
from anabranch.core import exact
from anabranch.errors import InvalidArgument
from anabranch.model.schema import StreamSchema

_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to [^:]*: (.*)", re.S)
_WIDTH = re.compile(r"CSV parse error: .*?Expected (\d+) columns, got (\d+)", re.S)
_TEXT: Final = pa.string()


def read_csv_records(
    blocks: LineBlocks, schema: StreamSchema, *, delimiter: str, times: TimeReading = DEFAULT_READING
) -> Iterator[IntakeBatch]:
    """Yields the records as batches of those schema columns that the header names. Raises BadInput."""
    first = blocks.peek()
    if first is None:
        return
    header, rest = split_header(first, delimiter)
    parser = _RecordParser(header, schema, delimiter, times)
    for number, block in enumerate(blocks):
        records = rest if number == 0 else block
        if not records.data.strip():
            continue
        try:
            table = parser.parse(records.data)
        except _Wrong:
            yield from _until_wrong(parser, records)
        else:
            yield IntakeBatch(table, partial(_place, records))


def split_header(block: Lines, delimiter: str) -> tuple[list[str], Lines]:
    """Returns the names in the first record of the file, and the records after it. Raises BadInput."""
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


def as_text(names: list[str]) -> pa.csv.ConvertOptions:
    """Returns options that read these columns as text, as they are written."""
    return _conversion(dict.fromkeys(names, _TEXT))


def _conversion(types: dict[str, pa.DataType]) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        column_types=types,
        include_columns=list(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


class _Wrong(Exception):
    """A record is invalid."""


class _RecordParser:
    """Parses whole records into columns."""

    def __init__(self, header: list[str], schema: StreamSchema, delimiter: str, times: TimeReading) -> None:
        self._header = header
        self._times = {name: times.for_column(name, schema) for name in header}
        self._fields = [field for field in schema.columns if field.name in header]
        for name in header:
            if name not in schema.columns.names and name not in ADDED:
                expected = ", ".join(schema.columns.names)
                raise BadInput("line 1", f"unknown column '{name}'; the stream has {expected}")
        for field in self._fields:
            if pa.types.is_nested(field.type):
                raise InvalidArgument(
                    f"CSV can't hold column '{field.name}' of type {field.type}; use JSON lines or Parquet"
                )
        # Times are read as text first: they may have a zone or none.
        types = {f.name: _TEXT if pa.types.is_timestamp(f.type) else f.type for f in self._fields}
        self._convert = _conversion(types)
        self._parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def parse(self, data: bytes) -> pa.Table:
        """Parses the records. Raises _Wrong, which gives the reason if `data` is a single record."""
        if not data.endswith(b"\n"):
            data += b"\n"  # without it Arrow reads an empty last field as a quoted one
        table = self._read(data, self._convert)
        columns = []
        for field in self._fields:
            column = table.column(field.name)
            if pa.types.is_timestamp(field.type):
                try:
                    column = self._times[field.name].column(column, field.type)
                except NotATime as exc:
                    raise _Wrong(f"column '{field.name}' takes {field.type}: {exc}") from exc
            elif pa.types.is_floating(field.type):
                self._check_numbers(data, field, column)
            columns.append(column)
        return pa.table(columns, schema=pa.schema(self._fields))

    def _read(self, data: bytes, convert: pa.csv.ConvertOptions) -> pa.Table:
        read = pa.csv.ReadOptions(column_names=self._header, use_threads=False, block_size=len(data) + 1)
        try:
            return pa.csv.read_csv(
                pa.BufferReader(data), read_options=read, parse_options=self._parse, convert_options=convert
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
            raise _Wrong(self._why(str(exc))) from exc

    def _check_numbers(self, data: bytes, field: pa.Field, floats: pa.ChunkedArray) -> None:
        """Refuse integers that were rounded to floats, and numbers that became infinite."""
        rounded = exact.rounded_rows(floats)
        if not pc.any(rounded).as_py():
            return
        texts = self._read(data, as_text([field.name])).column(field.name)
        for text, value in zip(texts.filter(rounded).to_pylist(), floats.filter(rounded).to_pylist(), strict=True):
            if exact.changed_number(text, value):
                raise _Wrong(f"column '{field.name}' takes {field.type}: {text} would become {value!r}")

    def _why(self, text: str) -> str:
        if found := _COLUMN.match(text):
            name = self._header[int(found[1])]
            kind = next(field.type for field in self._fields if field.name == name)
            return f"column '{name}' takes {kind}: {found[2]}"
        if found := _WIDTH.match(text):
            return f"it has {found[2]} fields, the header has {found[1]}"
        return text


def _until_wrong(parser: _RecordParser, block: Lines) -> Iterator[IntakeBatch]:
    """Yields the records before the first invalid one, found by bisection, then raises BadInput."""
    starts, _ = _records(block)
    edges = [*starts, len(block.data)]
    low, high = 0, len(starts)  # the records before `low` are valid; the first invalid one is before `high`
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parser.parse(block.data[edges[low] : edges[middle]])
            low = middle
        except _Wrong:
            high = middle
    if low:
        good = block.data[: edges[low]]
        yield IntakeBatch(parser.parse(good), partial(_place, Lines(good, block.first)))
    why = "it can't be read"
    try:
        parser.parse(block.data[edges[low] : edges[low + 1]])
    except _Wrong as exc:
        why = str(exc)
    raise BadInput(_place(block, low), why)


def _place(block: Lines, row: int) -> str:
    """Returns the line on which a record begins."""
    return f"line {_records(block)[1][row]}"


def _records(block: Lines) -> tuple[list[int], list[int]]:
    """Returns where the non-empty records of a block begin: byte offset and line."""
    lines = [line + b"\n" for line in block.data.removesuffix(b"\n").split(b"\n")]
    starts, numbers = [], []
    inside = False
    for number, (at, line) in enumerate(zip(accumulate(map(len, lines), initial=0), lines, strict=False), block.first):
        if not inside and line.strip(b"\r\n"):
            starts.append(at)
            numbers.append(number)
        inside ^= line.count(b'"') % 2 == 1
    return starts, numbers
