"""Reads CSV with a header. An empty, unquoted field is null."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from anabranch.cli.intake.batch import BadRow, IntakeBatch
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import DEFAULT_READING, NotATime, TimeReading
from anabranch.core import exact
from anabranch.core.bytes_text import CODED, bytes_from_text
from anabranch.core.python_rows import refuse_loss
from anabranch.core.time_texts import duration
from anabranch.errors import InvalidArgument
from anabranch.model.times import DEFAULT_RULES

_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to [^:]*: (.*)", re.S)
_WIDTH = re.compile(r"CSV parse error: .*?Expected (\d+) columns, got (\d+)", re.S)
_TEXT: Final = pa.string()
_INTEGER: Final = re.compile(r"-?\d{1,19}", re.ASCII)


def read_csv_records(
    blocks: LineBlocks, columns: TargetColumns, *, delimiter: str, times: TimeReading = DEFAULT_READING
) -> Iterator[IntakeBatch | BadRow]:
    """Yields the records as batches of those columns that the header names. Raises BadInput for the header."""
    first = blocks.peek()
    if first is None:
        return
    header, rest = split_header(first, delimiter)
    parser = _RecordParser(header, columns, delimiter, times)
    for number, block in enumerate(blocks):
        records = rest if number == 0 else block
        if not records.data.strip():
            continue
        try:
            table = parser.parse(records.data)
        except _Wrong:
            yield from _divided(parser, records)
        else:
            yield IntakeBatch(table, "line", partial(_line, records))


def split_header(block: Lines, delimiter: str) -> tuple[list[str], Lines]:
    """Returns the names in the first record of the file, and the records after it. Raises BadInput."""
    end = _first_record_end(block.data)
    try:
        text = block.data[:end].decode().strip("\r\n")
        header = next(csv.reader([text], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as exc:
        raise BadInput("line 1", f"the header can't be read: {exc}") from exc
    if not any(header):
        raise BadInput("line 1", "the header is empty: expected the names of the columns")
    twice = next((name for name, times in Counter(header).items() if times > 1), None)
    if twice is not None:
        raise BadInput("line 1", f"the header names column '{twice}' twice: rename one of them")
    lines = block.data[:end].count(b"\n")
    return header, Lines(block.data[end:], block.first + lines)


def _first_record_end(data: bytes) -> int:
    """Returns the position after the first record that is not empty."""
    start = len(data) - len(data.lstrip(b"\r\n"))
    end = data.find(b"\n", start) + 1
    while end and data.count(b'"', start, end) % 2:
        end = data.find(b"\n", end) + 1
    return end or len(data)


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

    def __init__(self, header: list[str], target: TargetColumns, delimiter: str, times: TimeReading) -> None:
        self._header = header
        schema = target.schema
        self._times = {name: times.for_column(name, schema) for name in header}
        self._fields = [field for field in schema.columns if field.name in header]
        for name in target.lacking(header):
            raise BadInput("line 1", str(target.unknown(name)))
        for field in self._fields:
            if pa.types.is_nested(field.type):
                raise InvalidArgument(
                    f"CSV can't hold column '{field.name}' of type {field.type}; use JSON lines or Parquet"
                )
        types = {field.name: _TEXT if _is_read_as_text(field.type) else field.type for field in self._fields}
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
            elif _is_read_as_text(field.type):
                column = _of_texts(field, column)
            elif pa.types.is_floating(field.type):
                self._check_numbers(data, field, column)
            elif pa.types.is_binary(field.type):
                column = _decoded(column, field)
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
        if not exact.may_be_rounded(floats):
            return
        rounded = exact.rounded_rows(floats)
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


def _is_read_as_text(kind: pa.DataType) -> bool:
    """True for times, which may have a zone or none, and for what Arrow doesn't read from CSV."""
    types = pa.types
    return bool(
        types.is_timestamp(kind) or types.is_duration(kind) or types.is_float16(kind) or types.is_decimal256(kind)
    )


def _of_texts(field: pa.Field, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow doesn't read from CSV. Raises _Wrong."""
    try:
        if pa.types.is_duration(field.type):
            found = [None if text is None else _duration(text, field.type) for text in texts.to_pylist()]
            for each in found:
                refuse_loss(each, field.type, DEFAULT_RULES)
            return pa.chunked_array([pa.array(found, field.type)])
        if pa.types.is_float16(field.type):
            return _halves(texts, field.type)
        return texts.cast(field.type)
    except (ValueError, OverflowError, pa.ArrowInvalid) as exc:
        raise _Wrong(f"column '{field.name}' takes {field.type}: {exc}") from exc


def _halves(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts as floats of 16 bits. Raises ValueError for an integer that would be rounded, and for a number that would
    become infinite."""
    halves = texts.cast(pa.float32()).cast(kind, safe=False)
    for text, value in zip(texts.to_pylist(), halves.cast(pa.float32()).to_pylist(), strict=True):
        if text is not None and exact.changed_number(text, value):
            raise ValueError(f"{text} would become {value!r}")
    return halves


def _duration(text: str, kind: pa.DataType) -> timedelta | int:
    return int(text) if _INTEGER.fullmatch(text) else duration(text, kind)


def _decoded(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column of bytes, some of which may be base64 after `base64:`. Raises _Wrong."""
    if not pc.any(pc.starts_with(column, pattern=CODED)).as_py():
        return column
    try:
        found = [
            bytes_from_text(value.decode()) if value is not None and value.startswith(CODED.encode()) else value
            for value in column.to_pylist()
        ]
    except ValueError as exc:
        raise _Wrong(f"column '{field.name}' takes {field.type}: {exc}") from exc
    return pa.chunked_array([pa.array(found, field.type)])


def _divided(parser: _RecordParser, block: Lines) -> Iterator[IntakeBatch | BadRow]:
    """Yields the records of a block of which some are invalid: it is halved until each half is valid, or one record."""
    starts, numbers = _records(block)
    edges = [*starts, len(block.data)]
    parts = [(0, len(starts))]
    while parts:
        low, high = parts.pop()
        data = block.data[edges[low] : edges[high]]
        try:
            table = parser.parse(data)
        except _Wrong as exc:
            if high - low == 1:
                yield BadRow("line", numbers[low], str(exc), data.rstrip(b"\r\n"))
            else:
                middle = (low + high) // 2
                parts += [(middle, high), (low, middle)]
        else:
            yield IntakeBatch(table, "line", lambda row, low=low: numbers[low + row])  # type: ignore[misc]


def _line(block: Lines, row: int) -> int:
    """Returns the line on which a record begins."""
    return _records(block)[1][row]


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
