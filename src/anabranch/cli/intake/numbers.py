"""Finds exact types for columns of numbers that Arrow reads as doubles or integers and would change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core import exact
from anabranch.errors import InvalidArgument

_DIGITS_MAX: Final = 38  # the precision of a decimal128
_PADDED: Final = r"^[-+]?0\d"


def type_of(name: str, values: Iterable[Any]) -> pa.DataType:
    """Returns the narrowest type that holds all numbers exactly: integers in `values` are int, other numbers float.
    Other values are ignored. Raises InvalidArgument if there is no such type."""
    low = high = 0
    fractions = False
    rounded: int | None = None
    for value in values:
        if isinstance(value, float):
            fractions = True
        elif isinstance(value, int) and not isinstance(value, bool):
            low, high = min(low, value), max(high, value)
            if exact.changed_number(str(value), _nearest(value)):
                rounded = value
    if fractions and rounded is not None:
        raise InvalidArgument(
            f"column '{name}' holds fractions, and {rounded}, which a double would change: give --schema, with {name}:decimal(p, s)"
        )
    if fractions:
        return pa.float64()
    if low >= -(1 << 63) and high < 1 << 63:
        return pa.int64()
    if low == 0 and high < 1 << 64:
        return pa.uint64()
    if max(-low, high) < 10**_DIGITS_MAX:
        return pa.decimal128(_DIGITS_MAX, 0)
    raise InvalidArgument(
        f"column '{name}' holds integers of more than {_DIGITS_MAX} digits, which no type can hold: write them as text"
    )


def refuse_rounded(name: str, value: Any) -> None:
    """Raises InvalidArgument if a JSON value holds, at any depth, an integer that a double would change."""
    match value:
        case bool():
            return
        case int():
            if not -(1 << 63) <= value < 1 << 63 or exact.changed_number(str(value), _nearest(value)):
                raise InvalidArgument(f"column '{name}' holds {value}, which a double would change: give --schema")
        case list():
            for each in value:
                refuse_rounded(name, each)
        case dict():
            for each in value.values():
                refuse_rounded(name, each)


def number_of(text: str | None) -> int | float | None:
    """Returns the number in a CSV field: an integer as int, any other as float."""
    if text is None:
        return None
    return int(text) if text.strip().lstrip("+-").isdigit() else float(text)


def is_padded(texts: pa.ChunkedArray) -> bool:
    """True if integers begin with zeros, which a number would lose: they are codes such as 00123."""
    return bool(pc.any(pc.match_substring_regex(texts, _PADDED)).as_py())


def _nearest(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
