"""Parses schemas written as text: `device:string, at:timestamp, readings:list<double>`."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE

_PLAIN: Final = {
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "bytes": pa.binary(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "int": pa.int64(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "timestamp": TIME_TYPE,
    "date": pa.date32(),
}
_DIGITS_MAX: Final = 9
_BEGIN = re.compile(r"\S")
_TOKEN = re.compile(r'\s*("[^"]+"|[A-Za-z_][\w.\-]*|\d+|[:,<>()])')


def parse_schema(text: str) -> pa.Schema:
    """Parses columns written as `name:type, …`. Types: text, numbers, timestamp (µs, UTC), date, decimal(p, s),
    list<t>, map<k, v>, struct<name: type, …>. A name with other characters stands in double quotes. Raises
    InvalidArgument."""
    return pa.schema(_SchemaParser(text).whole())


def parse_type(text: str) -> pa.DataType:
    """Parses the type of one column, as in `parse_schema`. Raises InvalidArgument."""
    columns = _SchemaParser(f"type:{text}").whole()
    if len(columns) > 1:
        raise InvalidArgument(f"expected one type, got several in '{text:.500}'")
    return columns[0].type


class _SchemaParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while (begin := _BEGIN.search(text, at)) is not None:
            match = _TOKEN.match(text, at)
            if match is None:
                raise InvalidArgument(f"'{begin[0]}' is unexpected in the schema '{text:.500}'")
            self._tokens.append(match[1])
            at = match.end()
        self._at = 0
        self._depth = 0  # of the type that is being read

    def whole(self) -> list[pa.Field]:
        fields = self._fields(end="")
        if self._next():
            raise self._unexpected()
        return fields

    def _fields(self, *, end: str) -> list[pa.Field]:
        fields = []
        while True:
            name = self._take().strip('"')
            self._expect(":")
            fields.append(pa.field(name, self._type()))
            if self._next() != ",":
                return fields
            self._expect(",")
            if self._next() == end:
                return fields

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > limits.COLUMN_NESTING_MAX:
            raise InvalidArgument(f"types in the schema are nested more than {limits.COLUMN_NESTING_MAX} deep")
        found = self._one_type()
        self._depth -= 1
        return found

    def _one_type(self) -> pa.DataType:
        word = self._take().lower()
        if word in _PLAIN:
            return _PLAIN[word]
        match word:
            case "decimal":
                self._expect("(")
                digits = int(self._number())
                self._expect(",")
                scale = int(self._number())
                self._expect(")")
                if not 0 <= scale <= digits <= 38 or not digits:
                    raise InvalidArgument(
                        f"decimal({digits}, {scale}) is not a valid type: expected 1 to 38 digits, not fewer than the scale"
                    )
                return pa.decimal128(digits, scale)
            case "list":
                self._expect("<")
                item = self._type()
                self._expect(">")
                return pa.list_(item)
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                item = self._type()
                self._expect(">")
                return pa.map_(key, item)
            case "struct":
                self._expect("<")
                fields = self._fields(end=">")
                self._expect(">")
                return pa.struct(fields)
        raise InvalidArgument(
            f"unknown type '{word}'; expected {', '.join(_PLAIN)}, decimal(p, s), list<…>, map<…, …> or struct<name: …>"
        )

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        if not token or token in ":,<>()":
            raise self._unexpected()
        self._at += 1
        return token

    def _number(self) -> str:
        if not (self._next().isdigit() and len(self._next()) <= _DIGITS_MAX):
            raise self._unexpected()
        return self._take()

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._unexpected()
        self._at += 1

    def _unexpected(self) -> InvalidArgument:
        found = f"'{self._next()}'" if self._next() else "its end"
        return InvalidArgument(f"{found} is unexpected in the schema '{self._text:.500}': write name:type, name:type …")
