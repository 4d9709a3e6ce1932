"""Decodes JSON objects to events of a stream."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import inf, nan
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from anabranch.core.bytes_text import bytes_from_text
from anabranch.core.json_text import FractionWithText
from anabranch.core.python_rows import RowChecker, rows_to_batch
from anabranch.core.routing import check_key
from anabranch.core.time_texts import beyond_micros, time_of_day
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.columns import RAW_COLUMNS, RESERVED
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules, to_micros

_SPECIAL: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_MICRO: Final = timedelta(microseconds=1)
_ADDED: Final = frozenset(
    (*RESERVED, "_pointer", "_cut")
)  # columns that a read adds; ignored, so that an event that was read can be appended unchanged
_RAW: Final = frozenset(("key", "time", "payload", "payload_base64"))

Convert = Callable[[Any], Any]


class RawRow(NamedTuple):
    """An event of a raw stream."""

    payload: bytes
    key: str | None
    time: int | None


_JSON: Final = msgspec.json.Decoder()
_JSON_WITH_TEXTS: Final = msgspec.json.Decoder(float_hook=FractionWithText)


class RowDecoder:
    """Decodes objects to events of one version of a stream's schema. `rules` say how times are interpreted."""

    def __init__(self, schema: StreamSchema, rules: TimeRules) -> None:
        self.schema = schema
        self.rules = rules
        self._checker = RowChecker(schema, rules)
        kinds = {field.name: field.type for field in schema.columns}
        self._convert = {name: convert for name, kind in kinds.items() if (convert := _column_converter(kind, rules))}
        binary = {f"{name}_base64": name for name, kind in kinds.items() if pa.types.is_binary(kind)}
        self._binary = {coded: name for coded, name in binary.items() if coded not in kinds}
        # A decimal holds more digits than a float. Only then are the texts of numbers kept, because that takes longer.
        self._json = _JSON_WITH_TEXTS if any(map(_has_decimals, kinds.values())) else _JSON

    def parse(self, body: bytes, *, lines: bool = False) -> Any:
        """The JSON value, as `row`, `raw` and `batch` take it; with `lines`, the list of the values of
        a body with one JSON value per line. Raises
        InvalidArgument."""
        try:
            return self._json.decode_lines(body) if lines else self._json.decode(body)
        except RecursionError as exc:
            raise InvalidArgument("the JSON is nested too deeply") from exc
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise InvalidArgument(f"the body is not JSON: {exc}") from exc

    def raw(self, value: Any) -> RawRow:
        """An event of a raw stream: `payload` (text) or `payload_base64`, and optionally `key` and `time`. Raises
        SchemaMismatch, InvalidKey."""
        if not isinstance(value, dict) or not (value.keys() - _ADDED) <= _RAW:
            raise SchemaMismatch(
                "expected an event of a raw stream as an object with payload or payload_base64, and optionally key and time; "
                "send anything else as application/octet-stream, which is stored as it is"
            )
        payload, coded = value.get("payload"), value.get("payload_base64")
        if (payload is None) == (coded is None):
            raise SchemaMismatch("expected either payload or payload_base64 in an event of a raw stream")
        if not isinstance(payload if coded is None else coded, str):
            raise SchemaMismatch("expected payload and payload_base64 as text")
        data = _from_base64("payload_base64", coded) if payload is None else payload.encode()
        key, moment = value.get("key"), value.get("time")
        if key is not None:
            if not isinstance(key, str):
                raise SchemaMismatch("expected the key of an event of a raw stream as text", column="key")
            check_key(key)
        return RawRow(data, key, None if moment is None else _micros("time", moment, self.rules))

    def row(self, value: Any) -> dict[str, Any]:
        """An event of a typed stream, as a writer takes it. Raises SchemaMismatch."""
        if not isinstance(value, dict):
            raise SchemaMismatch(f"expected an event as a JSON object, got {_json_name(value)}")
        row = value
        if not _ADDED.isdisjoint(row):
            row = {name: item for name, item in row.items() if name not in _ADDED}
        if self._binary and not self._binary.keys().isdisjoint(row):
            row = self._with_bytes(row)
        for name, convert in self._convert.items():
            item = row.get(name)
            if item is not None:
                try:
                    row[name] = convert(item)
                except (ValueError, OverflowError, TypeError) as exc:
                    kind = self.schema.columns.field(name).type
                    raise SchemaMismatch(f"column '{name}' takes {kind}: {exc}", column=name) from exc
        return self._checker.checked(row)

    def _with_bytes(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with each base64 text decoded, under the name of its column."""
        decoded = {name: item for name, item in row.items() if name not in self._binary}
        for coded in self._binary.keys() & row.keys():
            name, item = self._binary[coded], row[coded]
            if item is None:
                decoded.setdefault(name, None)
            elif decoded.get(name) is None:
                decoded[name] = _from_base64(coded, item)
            else:
                raise SchemaMismatch(f"expected either '{name}' or '{coded}' in an event", column=name)
        return decoded

    def batch(self, values: Sequence[Any]) -> pa.RecordBatch:
        """Events, parsed from JSON or as RawRow, as one batch of the stream's columns. Raises SchemaMismatch with the
        number of the first invalid event, counted from 0."""
        rows: list[Mapping[str, Any]] = []
        for number, value in enumerate(values):
            try:
                if self.schema.raw:
                    payload, key, moment = value if isinstance(value, RawRow) else self.raw(value)
                    rows.append({"key": key, "time": moment, "payload": payload})
                else:
                    rows.append(self.row(value))
            except InvalidArgument as exc:
                exc.args = (f"event {number}: {exc.args[0]}", *exc.args[1:])
                raise
        if self.schema.raw:
            return pa.RecordBatch.from_pylist(rows, schema=RAW_COLUMNS)
        return rows_to_batch(rows, self.schema)


def _column_converter(kind: pa.DataType, rules: TimeRules) -> Convert | None:
    """How a JSON value becomes what Arrow takes for a column of this type; None if Arrow takes the JSON value
    unchanged."""
    # For a binary column, base64 text has a member of its own, NAME_base64, so text under NAME is plain text.
    if pa.types.is_binary(kind):
        return lambda item: item.encode() if isinstance(item, str) else item
    return _converter(kind, rules)


def _converter(kind: pa.DataType, rules: TimeRules) -> Convert | None:
    """As `_column_converter`, for a value inside a list, map or struct, and for columns that are not binary."""
    types = pa.types
    if types.is_timestamp(kind):
        return lambda item: int(to_micros(item, rules)) if isinstance(item, str) else item
    if types.is_date(kind):
        return lambda item: date.fromisoformat(item) if isinstance(item, str) else item
    if types.is_time(kind):
        return lambda item: time_of_day(item, kind) if isinstance(item, str) else item
    if types.is_duration(kind):
        return lambda item: _to_duration(item, kind) if isinstance(item, str) else item
    if types.is_binary(kind):
        return lambda item: bytes_from_text(item) if isinstance(item, str) else item
    if types.is_decimal(kind):
        return _to_decimal
    if types.is_floating(kind):
        return _to_float
    if types.is_list(kind) and (inner := _converter(kind.value_type, rules)) is not None:
        return lambda item: [_inside(inner, each) for each in item] if isinstance(item, list) else item
    if types.is_map(kind):
        key, value = _converter(kind.key_type, rules), _converter(kind.item_type, rules)
        return lambda item: _pairs(item, key, value)
    if types.is_struct(kind):
        fields = {field.name: found for field in kind if (found := _converter(field.type, rules)) is not None}
        if fields:
            return lambda item: _struct(item, fields)
    return None


def _inside(convert: Convert, item: Any) -> Any:
    return None if item is None else convert(item)


def _pairs(item: Any, key: Convert | None, value: Convert | None) -> Any:
    """A map, from an object or from a list of pairs, which is how a read returns it."""
    pairs = item.items() if isinstance(item, dict) else item
    if not isinstance(item, (dict, list)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
    ):
        raise ValueError("expected a map as an object or a list of pairs")
    return [(_inside(key, name) if key else name, _inside(value, each) if value else each) for name, each in pairs]


def _struct(item: Any, fields: Mapping[str, Convert]) -> Any:
    if not isinstance(item, dict):
        return item
    return {name: _inside(fields[name], each) if name in fields else each for name, each in item.items()}


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(number).type) for number in range(kind.num_fields))


def _to_decimal(item: Any) -> Any:
    if isinstance(item, bool) or not isinstance(item, (str, int, float)):
        return item
    text = item.text if isinstance(item, FractionWithText) else str(item)
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r:.100} is not a decimal number") from None


def _to_float(item: Any) -> Any:
    if item.__class__ is float:
        return item
    if item.__class__ is FractionWithText:
        return float(item)
    if isinstance(item, str):
        return _SPECIAL.get(item, item)
    if item.__class__ is int:
        number = float(item)
        if number != item:
            raise ValueError(f"{item} would become {number!r}")
        return number
    return item


def _to_duration(text: str, kind: pa.DataType) -> timedelta | int:
    """A duration: an integer of nanoseconds if it has digits beyond microseconds, else a timedelta."""
    cut, nanos = beyond_micros(text, kind)
    duration: timedelta = msgspec.convert(cut, timedelta, strict=False)
    return duration // _MICRO * 1_000 + (-nanos if text.startswith("-") else nanos) if nanos else duration


def _micros(name: str, value: Any, rules: TimeRules) -> int:
    try:
        return int(to_micros(value, rules))
    except InvalidArgument as exc:
        raise SchemaMismatch(f"column '{name}' takes a time: {exc}", column=name) from exc


def _from_base64(name: str, value: Any) -> bytes:
    try:
        if not isinstance(value, str):
            raise ValueError("expected text")
        return base64.b64decode(value, validate=True)
    except ValueError as exc:
        raise SchemaMismatch(f"'{name}' is not base64: {exc}", column=name) from exc


def _json_name(value: Any) -> str:
    names = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "an array", datetime: "a time"}
    return names.get(type(value), "null")
