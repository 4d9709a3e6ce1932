"""Checks of the values and arguments of sketches, shared by all kinds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa

from anabranch.errors import InvalidArgument

__all__ = ["deviations", "fraction", "hashable", "occurrences", "present", "whole"]

_COUNT_MAX: Final = (1 << 63) - 1

_T = TypeVar("_T")


def present(values: Iterable[_T | None]) -> Iterator[_T]:
    """The values that are not None, as Python's own: of an Arrow array too."""
    for value in values:
        plain: _T | None = value.as_py() if isinstance(value, pa.Scalar) else value
        if plain is not None:
            yield plain


def hashable(values: Iterable[object], where: str, *, floats: bool = False) -> Iterator[int | str | float]:
    """Values of one kind as DataSketches takes them: integers, text, bytes as the text that they encode, with `floats` numbers
    too. Raises InvalidArgument for others."""
    kept = present(values)
    first = next(kept, None)
    if first is None:
        return
    good = isinstance(first, (int, str, bytes, float) if floats else (int, str, bytes)) and not isinstance(first, bool)
    if not good:
        kinds = "integers, floating-point numbers, text or bytes" if floats else "integers, text or bytes"
        raise InvalidArgument(f"{where} takes {kinds}, not {type(first).__name__}; cast the values")
    kind = type(first)
    for value in chain([first], kept):
        if type(value) is not kind:
            raise InvalidArgument(f"{where} takes values of one type, found {kind.__name__} and {type(value).__name__}")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgument(f"{where} takes integers of 64 bits, not {value}")
        yield _text(value, where) if isinstance(value, bytes) else value  # type: ignore[misc]


def occurrences(values: Iterable[object] | Mapping[Any, int], where: str) -> dict[Any, int]:
    """How often each value occurs, None left out. Raises InvalidArgument for values of several types, which would count as
    one value where they are equal, such as 1, 1.0 and True."""
    if isinstance(values, Mapping):
        kept = {value: number for value, number in values.items() if value is not None}
        return {value: _count(value, number) for value, number in kept.items()}
    kinds: dict[type, None] = {}

    def watched() -> Iterator[object]:
        for value in present(values):
            kinds[type(value)] = None
            yield value

    try:
        counts = Counter(watched())
    except TypeError as exc:  # of a list, for example
        raise InvalidArgument(f"{where} takes no such values: {exc}") from exc
    if len(kinds) > 1:
        one, other, *_ = kinds
        raise InvalidArgument(f"{where} takes values of one type, found {one.__name__} and {other.__name__}")
    return counts


def _count(value: object, number: Any) -> int:
    plain = number.__index__() if hasattr(number, "__index__") else number  # of numpy's integers too
    return whole(f"how often {value!r:.100} occurs", plain, 0, _COUNT_MAX)


def _text(value: bytes, where: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as exc:
        raise InvalidArgument(
            f"{where} takes bytes only where they are UTF-8 text, outside of pipelines; sketch hex(…) in both"
        ) from exc


def whole(name: str, value: object, least: int, most: int) -> int:
    """An integer parameter within its range. Raises InvalidArgument."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{name} is an integer from {least:,} to {most:,}, not {value}")
    return value


def fraction(name: str, value: object) -> float:
    """A number from 0 to 1. Raises InvalidArgument."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidArgument(f"{name} is a number from 0 to 1, not {value}")
    return number


def deviations(value: object) -> int:
    """A number of standard deviations. Raises InvalidArgument."""
    return whole("the number of standard deviations", value, 1, 3)
