"""Parses JSON read from a disk or a network: any defect in it raises ValueError."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isinf
from typing import Any

from anabranch.errors import InvalidArgument


def parse_json(text: str | bytes) -> Any:
    """The value. Raises ValueError, also for text that is not UTF-8 and for nesting that would overflow the stack."""
    try:
        return json.loads(text)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


class FractionWithText(float):
    """A JSON number with a fraction or an exponent, and its original text: a decimal holds more digits than a float."""

    text: str

    def __new__(cls, text: str) -> FractionWithText:
        found = super().__new__(cls, text)
        if isinf(found):
            raise InvalidArgument(f"{text:.100} is beyond the range of a double")
        found.text = text
        return found


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object. Raises ValueError."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


def parse_count(value: Any) -> int:
    """Check that a value is an integer from 0 on that the catalog can hold. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"expected an integer from 0 to 2**63 - 1, got {value!r:.100}")
    return value


def is_nested(value: Any, levels: int) -> bool:
    """True if lists and objects in a value are nested more than `levels` deep."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [item for each in layer for item in _items(each)]
        if not layer:
            return False
    return True


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
