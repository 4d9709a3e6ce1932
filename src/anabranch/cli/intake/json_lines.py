"""Reads JSON lines: one object per line. Arrow's parser reads blocks of lines. If it can't read a line, the few lines
around it are parsed one by one, which also finds the error."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import inf, nan
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from anabranch import limits
from anabranch.cli.intake.batch import ADDED, BadRow, IntakeBatch
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.source import LineBlocks, Lines
from anabranch.cli.intake.times import DEFAULT_READING, NotATime, TimeReading
from anabranch.core import exact
from anabranch.core.bytes_text import bytes_from_text
from anabranch.core.json_text import FractionWithText, parse_json
from anabranch.core.python_rows import RowChecker, rows_to_batch, wrong_rows
from anabranch.core.time_texts import duration, time_of_day
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_SLOW_LINES: Final = 32
_SPECIAL: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}  # the texts that `read` prints
_STEPS: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))  # signed: +1 opens, -1 closes


def read_json_lines(
    blocks: LineBlocks, columns: TargetColumns, times: TimeReading, *, infer: Callable[[Lines], pa.Schema]
) -> Iterator[IntakeBatch | BadRow]:
    """Yields the lines as batches of the columns. `infer` gives the types of the columns that are to be added.

    `times` says how times are read; bytes are text, or base64 under `NAME_base64`. Raises what `infer` raises.
    """
    for block in blocks:
        table = _fast(block, columns.schema, times)
        if table is None and columns.grow and _add_columns(block, columns, infer):
            table = _fast(block, columns.schema, times)
        if table is None:
            yield from _divided(block, columns, times)
        else:
            yield _batch(table, block.first)


def _batch(table: pa.Table, first: int) -> IntakeBatch:
    return IntakeBatch(table, "line", lambda row: first + row)


def _divided(block: Lines, columns: TargetColumns, times: TimeReading) -> Iterator[IntakeBatch | BadRow]:
    """Yields the lines of a block that Arrow can't parse as a whole: it is halved until Arrow can, or until few lines are
    left, which are parsed one by one."""
    if not _arrow_takes(columns.schema):
        yield from _slow(block, columns, times)
        return
    ends = np.flatnonzero(np.frombuffer(block.data, np.uint8) == ord("\n")) + 1
    edges = [0, *ends[: block.count - 1].tolist(), len(block.data)]
    middle = block.count // 2
    parts = [(middle, block.count), (0, middle)]
    while parts:
        low, high = parts.pop()
        part = Lines(block.data[edges[low] : edges[high]], block.first + low)
        if high - low <= _SLOW_LINES:
            yield from _slow(part, columns, times)
        elif (table := _fast(part, columns.schema, times)) is not None:
            yield _batch(table, part.first)
        else:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]


def _add_columns(block: Lines, columns: TargetColumns, infer: Callable[[Lines], pa.Schema]) -> bool:
    """Adds the columns that only the block has. Returns False if there are none."""
    found = []
    for line in block.data.split(b"\n"):
        try:
            value = parse_json(line)
        except ValueError:
            continue  # reported when the line is read
        if isinstance(value, dict) and (names := columns.lacking(list(value))):
            found.append({each: value[each] for each in names})
    if not found:
        return False
    columns.add(infer(Lines("\n".join(map(json.dumps, found)).encode(), block.first)))
    return True


def _fast(block: Lines, schema: StreamSchema, times: TimeReading = DEFAULT_READING) -> pa.Table | None:
    """Parses the block with Arrow; None if Arrow can't, or if its rows may not correspond to lines."""
    if not _arrow_takes(schema) or not _is_utf8(block.data) or crashes_arrow(block):
        return None
    text_schema = pa.schema([pa.field(f.name, pa.string() if _from_text(f.type) else f.type) for f in schema.columns])
    try:
        table = pa.json.read_json(
            pa.BufferReader(block.data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=text_schema, unexpected_field_behavior="error"),
        )
        if table.num_rows != block.count or _has_blank_line(block.data):
            return None  # with a blank line, as many rows as lines may mean two objects on one line
        if all(column.null_count for column in table.columns) and _has_null_line(block.data):
            return None
        columns = []
        for field in schema.columns:
            column = table.column(field.name)
            if pa.types.is_timestamp(field.type):
                column = times.for_column(field.name, schema).column(column, field.type)
            elif exact.may_be_rounded(column):
                return None  # integers may have been rounded
            elif _has_decimals(field.type):
                column.validate(full=True)  # Arrow does not check their digits
            columns.append(column.cast(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NotATime):
        return None
    return pa.table(columns, schema=schema.columns)


def crashes_arrow(block: Lines) -> bool:
    """True if the block may crash the process in Arrow's parser: it begins with `null`, or a line is nested more than
    `limits.JSON_DEPTH_MAX` deep. Brackets in texts count too."""
    if re.match(rb"\s*null", block.data) is not None:
        return True
    brackets = block.data.translate(None, _NO_BRACKETS)
    if brackets == b"{}" * (len(brackets) // 2):
        return False  # the usual case: flat objects
    steps = np.frombuffer(brackets.translate(_STEPS), np.int8)
    depth = np.cumsum(steps, dtype=np.int64)
    return bool(depth.size and depth.max() - min(0, depth.min()) > limits.JSON_DEPTH_MAX)


def _has_blank_line(data: bytes) -> bool:
    if b"\n\n" in data or data.startswith((b"\n", b"\r", b" ", b"\t")):
        return True
    indented = b"\n " in data or b"\n\t" in data or b"\n\r" in data
    return indented and re.search(rb"\n[ \t\r]*(?:\n|$)", data) is not None


def _has_null_line(data: bytes) -> bool:
    """True if a line may be `null`, which Arrow reads as an object without members."""
    return re.search(rb"^[ \t]*null", data, re.MULTILINE) is not None


def _is_utf8(data: bytes) -> bool:
    """True if the data is UTF-8, which Arrow's parser does not check."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _arrow_takes(schema: StreamSchema) -> bool:
    """True if Arrow converts the values of all columns as we do."""
    return all(_from_text(field.type) or _is_plain(field.type) for field in schema.columns)


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind):
        return _is_plain(kind.value_type)
    if types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    return bool(numeric or types.is_string(kind))


def _has_decimals(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_has_decimals(kind.field(i).type) for i in range(kind.num_fields))


def _from_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_binary(kind))


def _slow(block: Lines, columns: TargetColumns, times: TimeReading = DEFAULT_READING) -> Iterator[IntakeBatch | BadRow]:
    """Yields the lines, parsed one by one."""
    schema = columns.schema
    types = {field.name: field.type for field in schema.columns}
    readings = {name: times.for_column(name, schema) for name in types}
    checker = RowChecker(schema, times.rules)
    rows = _ParsedLines(schema)
    for number, line in enumerate(block.data.split(b"\n"), start=block.first):
        if not line.strip():
            continue
        try:
            rows.add(checker.checked(_row(line, types, readings, columns)), number, line)
        except (ValueError, RecursionError) as exc:
            yield from rows.take()
            yield BadRow("line", number, _why(exc), line)
    yield from rows.take()


class _ParsedLines:
    """Lines parsed one by one, until they are made a batch."""

    def __init__(self, schema: StreamSchema) -> None:
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._lines: list[tuple[int, bytes]] = []

    def add(self, row: dict[str, Any], number: int, line: bytes) -> None:
        self._rows.append(row)
        self._lines.append((number, line))

    def take(self) -> Iterator[IntakeBatch | BadRow]:
        """Yields all lines added so far as batches, except for those that Arrow refuses."""
        rows, lines = self._rows, self._lines
        self._rows, self._lines = [], []
        try:
            if rows:
                yield self._batch(rows, lines)
        except SchemaMismatch:
            start = 0
            for at, error in wrong_rows(rows, self._schema):
                if at > start:
                    yield self._batch(rows[start:at], lines[start:at])
                number, line = lines[at]
                yield BadRow("line", number, str(error).replace(f" in row {at}:", ":"), line)
                start = at + 1
            if start < len(rows):
                yield self._batch(rows[start:], lines[start:])

    def _batch(self, rows: list[dict[str, Any]], lines: list[tuple[int, bytes]]) -> IntakeBatch:
        table = pa.Table.from_batches([rows_to_batch(rows, self._schema)])
        return IntakeBatch(table, "line", lambda row: lines[row][0])


_JSON_TYPES: Final = {
    str: "a text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    FractionWithText: "a number",
}


def parse_line(line: bytes, **options: Any) -> dict[str, Any]:
    """The object on a line, parsed with these options of `json.loads`. Raises InvalidArgument for another value, and for
    one nested too deeply; else ValueError."""
    if line.lstrip().startswith(b"["):
        raise InvalidArgument(
            "expected a JSON object on each line, got an array; to convert a file that is one array: jq -c '.[]' FILE"
        )
    value = json.loads(line.decode(), **options)
    if not isinstance(value, dict):
        raise InvalidArgument(f"expected a JSON object on each line, got {_JSON_TYPES.get(type(value), 'null')}")
    return value


def _row(
    line: bytes, types: dict[str, pa.DataType], readings: dict[str, TimeReading], columns: TargetColumns
) -> dict[str, Any]:
    value = parse_line(line, parse_float=FractionWithText)
    row: dict[str, Any] = {}
    coded: list[tuple[str, Any]] = []
    for name, item in value.items():
        plain = name.removesuffix("_base64")
        if name in types:
            row[name] = _convert(name, item, types[name], readings[name])
        elif plain != name and plain in types and pa.types.is_binary(types[plain]):
            coded.append((plain, item))
        elif name not in ADDED:
            raise columns.unknown(name)
    for name, item in coded:
        if item is None:
            row.setdefault(name, None)
        elif row.get(name) is None:
            row[name] = _decoded(name, item)
        else:
            raise SchemaMismatch(f"expected either '{name}' or '{name}_base64'", column=name)
    return row


def _decoded(name: str, item: Any) -> bytes:
    """The bytes of the member `<name>_base64`."""
    try:
        return base64.b64decode(item, validate=True)
    except (TypeError, ValueError) as exc:
        raise SchemaMismatch(f"'{name}_base64' is not base64: {exc}", column=name) from exc


def _convert(name: str, item: Any, kind: pa.DataType, times: TimeReading) -> Any:
    """Returns a JSON value in the form that Arrow takes for a column."""
    if item is None or not isinstance(item, (str, int, float, list, dict)):
        return item
    try:
        if isinstance(item, (list, dict)) or pa.types.is_time(kind) or pa.types.is_duration(kind):
            return _inside(item, kind, times)
        if pa.types.is_timestamp(kind):
            return _datetime(times.micros(Decimal(item.text) if isinstance(item, FractionWithText) else item))
        if isinstance(item, str) and pa.types.is_date(kind):
            return date.fromisoformat(item)
        if isinstance(item, str) and pa.types.is_binary(kind):
            return item.encode()
        if pa.types.is_decimal(kind) and not isinstance(item, bool):
            return Decimal(item.text if isinstance(item, FractionWithText) else str(item))
        if pa.types.is_floating(kind) and isinstance(item, str):
            return _SPECIAL.get(item, item)
        if pa.types.is_float64(kind) and isinstance(item, int) and not isinstance(item, bool):
            if exact.changed_number(str(item), float(item)):
                raise InvalidArgument(f"{item} would become {float(item)!r}")
            return float(item)
        if isinstance(item, FractionWithText):
            return float(item)
    except InvalidOperation as exc:
        raise SchemaMismatch(f"column '{name}' takes {kind}: {item!r:.100} is not a number", column=name) from exc
    except (ValueError, OverflowError) as exc:
        raise SchemaMismatch(f"column '{name}' takes {kind}: {exc}", column=name) from exc
    return item


def _datetime(micros: Micros) -> datetime | Micros:
    """The time as a datetime if possible: a number would be checked again for a plausible unit."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros


def _inside(item: Any, kind: pa.DataType, times: TimeReading) -> Any:
    """The value with its texts replaced by what they stand for, as `read` prints them: numbers, bytes and times; and with
    the pairs of maps. Raises ValueError, OverflowError, InvalidOperation."""
    types = pa.types
    if types.is_decimal(kind) and isinstance(item, (str, FractionWithText)):
        return Decimal(item.text if isinstance(item, FractionWithText) else item)
    if isinstance(item, str):
        return _of_text(item, kind, times)
    if types.is_map(kind) and isinstance(item, (dict, list)):
        return [
            (_inside(key, kind.key_type, times), _inside(each, kind.item_type, times)) for key, each in _pairs(item)
        ]
    if isinstance(item, list) and (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return [_inside(each, kind.value_type, times) for each in item]
    if isinstance(item, dict) and types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        return {name: _inside(each, fields[name], times) if name in fields else each for name, each in item.items()}
    return item


def _pairs(item: dict[str, Any] | list[Any]) -> list[Any]:
    """The entries of a map, given as an object or, as `read` prints it, as a list of pairs. Raises ValueError."""
    pairs = list(item.items()) if isinstance(item, dict) else item
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise ValueError("expected a map as an object or a list of pairs")
    return pairs


def _of_text(text: str, kind: pa.DataType, times: TimeReading) -> Any:
    types = pa.types
    if types.is_floating(kind):
        return _SPECIAL.get(text, text)
    if types.is_binary(kind):
        return bytes_from_text(text)
    if types.is_timestamp(kind):
        return _datetime(times.micros(text))
    if types.is_date(kind):
        return date.fromisoformat(text)
    if types.is_time(kind):
        return time_of_day(text, kind)
    return duration(text, kind) if types.is_duration(kind) else text


def _why(exc: BaseException) -> str:
    match exc:
        case json.JSONDecodeError():
            return f"it is not JSON: {exc.msg} at character {exc.pos + 1}"
        case UnicodeDecodeError():
            return f"it is not UTF-8 text: byte {exc.start + 1} is 0x{exc.object[exc.start]:02x}"
        case RecursionError():
            return "it is nested too deeply"
    return str(exc)
