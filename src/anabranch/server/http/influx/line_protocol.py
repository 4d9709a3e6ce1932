"""Parses the line protocol of InfluxDB: `cpu,host=a value=1.5,count=3i 1700000000000000000`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FieldValue = float | int | str | bool
"""A number, a text or a boolean; which of them it is decides the type of the field."""

_UNESCAPED: Final = re.compile(r"\\([,= ])")
_BOOLEANS: Final = {
    **dict.fromkeys(("t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("f", "F", "false", "False", "FALSE"), False),
}
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER: Final = re.compile(r"([+-]?\d+)i", re.ASCII)
_TIMESTAMP: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_INTEGERS: Final = range(-(1 << 63), 1 << 63)
_DIGITS_MAX: Final = 19  # of these integers; `int` itself refuses thousands
# A key or a value of a tag, or a key of a field: up to a character that is not escaped.
_WORD: Final = re.compile(r"(?:[^\\,= ]|\\.|\\$)*")
_NAME: Final = re.compile(r"(?:[^\\, ]|\\.|\\$)*")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_REST_OF_TEXT: Final = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"')  # up to the quote that ends it
_BARE: Final = re.compile(r"[^, ]*")


@dataclass(frozen=True, slots=True)
class InfluxPoint:
    """A line. `at` is in the unit of the request; None: as of now."""

    measurement: str
    tags: dict[str, str]
    fields: dict[str, FieldValue]
    at: int | None
    line: str


class LineRefused(ValueError):
    """A line that can't be parsed. Its text is what InfluxDB says."""

    def __init__(self, line: str, reason: str) -> None:
        super().__init__(f"unable to parse '{line:.200}': {reason}")


def parse_lines(text: str) -> Iterator[InfluxPoint | LineRefused]:
    """The lines in turn, or why one can't be parsed. Empty lines and comments are left out."""
    for line in _lines(text):
        stripped = line.strip(" \t\r\0")
        if not stripped or stripped.startswith("#"):
            continue
        try:
            yield _Line(stripped).point()
        except LineRefused as refused:
            yield refused


def _lines(text: str) -> Iterator[str]:
    """The lines. A text field may hold line ends."""
    held: list[str] = []
    inside = False
    for piece in text.split("\n"):
        held.append(piece)
        inside = _ends_inside(piece, inside)
        if not inside:
            yield "\n".join(held)
            held = []
    if held:
        yield "\n".join(held)


def _ends_inside(piece: str, inside: bool) -> bool:
    """Whether a text field is still open at the end of the piece; `inside` says so of its beginning."""
    at = 0
    while True:
        if not inside:
            at = piece.find('="', at) + 2
            if at < 2:
                return False
        rest = _REST_OF_TEXT.match(piece, at)
        if rest is None:
            return True
        inside, at = False, rest.end()


class _Line:
    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0

    def point(self) -> InfluxPoint:
        measurement = self._measurement()
        tags = self._tags()
        self._spaces()
        fields = self._fields()
        return InfluxPoint(measurement, tags, fields, self._timestamp(), self._line)

    def _measurement(self) -> str:
        name = self._word(_NAME)
        if not name:
            raise self._refused("missing measurement")
        return self._plain(name)

    def _tags(self) -> dict[str, str]:
        tags: dict[str, str] = {}
        while self._next() == ",":
            self._at += 1
            key = self._plain(self._word(_WORD))
            if not key:
                raise self._refused("missing tag key")
            if self._next() != "=":
                raise self._refused("missing tag value")
            self._at += 1
            value = self._plain(self._word(_WORD))
            if not value:
                raise self._refused("missing tag value")
            if self._next() == "=":
                raise self._refused("invalid tag format")
            if key in tags:
                raise self._refused("duplicate tags")
            tags[key] = value
        return tags

    def _fields(self) -> dict[str, FieldValue]:
        fields: dict[str, FieldValue] = {}
        if self._next() is None:
            raise self._refused("missing fields")
        while True:
            key = self._plain(self._word(_WORD))
            if not key:
                raise self._refused("missing field key")
            if self._next() != "=":
                raise self._refused("invalid field format")
            self._at += 1
            fields[key] = self._value()
            if self._next() != ",":
                return fields
            self._at += 1

    def _value(self) -> FieldValue:
        if self._next() == '"':
            found = _QUOTED.match(self._line, self._at)
            if found is None:
                raise self._refused("unbalanced quotes")
            self._at = found.end()
            return re.sub(r'\\(["\\])', r"\1", found[1])
        text = self._word(_BARE)
        if not text:
            raise self._refused("missing field value")
        if _NUMBER.fullmatch(text):
            if math.isinf(fraction := float(text)):
                raise self._refused("invalid float")
            return fraction
        if whole := _INTEGER.fullmatch(text):
            number, digits = whole[1], whole[1].lstrip("+-0") or "0"
            integer = int(digits[: _DIGITS_MAX + 1]) * (-1 if number.startswith("-") else 1)
            if integer not in _INTEGERS:
                raise self._refused(
                    f'unable to parse integer {number:.100}: strconv.ParseInt: parsing "{number:.100}": value out of range'
                )
            return integer
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        raise self._refused("invalid number" if text[0] in "+-.0123456789" else "invalid boolean")

    def _timestamp(self) -> int | None:
        rest = self._line[self._at :].strip(" ")
        if not rest:
            return None
        if not _TIMESTAMP.fullmatch(rest):
            raise self._refused("bad timestamp")
        return int(rest)

    def _spaces(self) -> None:
        while self._next() == " ":
            self._at += 1

    def _next(self) -> str | None:
        return self._line[self._at] if self._at < len(self._line) else None

    def _word(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._line, self._at)
        assert found is not None, "it matches nothing too"
        self._at = found.end()
        return found[0]

    def _plain(self, word: str) -> str:
        return _UNESCAPED.sub(r"\1", word) if "\\" in word else word

    def _refused(self, reason: str) -> LineRefused:
        return LineRefused(self._line, reason)
