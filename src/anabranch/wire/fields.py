"""Reads the fields of a request from elsewhere: each wrong type gets one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from anabranch.errors import InvalidArgument
from anabranch.model.position import Position
from anabranch.wire.hints import shown

T = TypeVar("T")


class Fields:
    """The fields of one request. Every method raises InvalidArgument for a missing field, unless it has a default, and
    for one of another type."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def text(self, name: str) -> str:
        """A text."""
        return self._typed(name, str, "a text")

    def optional_text(self, name: str) -> str | None:
        """A text, or None where it is missing or null."""
        return None if self._found.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """True or False; False where it is missing."""
        return False if name not in self._found else self._typed(name, bool, "true or false")

    def count(self, name: str) -> int:
        """An integer from 0 to 2**63 - 1."""
        value = self._typed(name, int, "an integer")
        if not 0 <= value < 1 << 63:
            raise InvalidArgument(f"expected '{name}' from 0 to 2**63 - 1, got {shown(value)}")
        return value

    def optional_count(self, name: str) -> int | None:
        """A count, or None where it is missing or null."""
        return None if self._found.get(name) is None else self.count(name)

    def seconds(self, name: str) -> float | None:
        """A number of seconds from 0 on, or None where it is missing or null."""
        value = self._found.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise InvalidArgument(f"expected '{name}' as seconds from 0 on, got {shown(value)}")
        return float(value)

    def position(self, name: str) -> Position:
        """The position of a group reader; empty where it is missing. Raises InvalidCut."""
        text = self.optional_text(name)
        return Position(()) if text is None else Position.parse(text)

    def value(self, name: str) -> Any:
        """Any JSON value; None where it is missing."""
        return self._found.get(name)

    def _typed(self, name: str, kind: type[T], what: str) -> T:
        value = self._found.get(name)
        if type(value) is not kind:
            raise InvalidArgument(f"expected '{name}' as {what}, got {shown(value)}")
        return value
