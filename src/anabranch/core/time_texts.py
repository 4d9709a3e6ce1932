"""Times of day and durations written as text, with the digits that Python's classes can't hold."""

from __future__ import annotations

import re
from datetime import time
from typing import Final

import pyarrow as pa

_BEYOND_MICROS: Final = re.compile(r"(?<=[.,]\d{6})\d+")


def time_of_day(text: str, kind: pa.DataType) -> time | int:
    """A time of day, as ns if it has digits beyond µs. Raises ValueError."""
    cut, nanos = beyond_micros(text, kind)
    found = time.fromisoformat(cut)
    if not nanos:
        return found
    if found.tzinfo is not None:
        raise ValueError(f"expected a time of day without a zone, got {text:.100}")
    seconds = (found.hour * 60 + found.minute) * 60 + found.second
    return (seconds * 1_000_000 + found.microsecond) * 1_000 + nanos


def beyond_micros(text: str, kind: pa.DataType) -> tuple[str, int]:
    """A time of day or a duration without its digits beyond µs, and those in ns. Raises ValueError if the column can't
    hold them."""
    found = _BEYOND_MICROS.search(text)
    if found is None:
        return text, 0
    digits = found[0].rstrip("0")
    if len(digits) > (3 if kind.unit == "ns" else 0):
        raise ValueError(f"{text:.100} is finer than {kind}")
    return text[: found.start()] + text[found.end() :], int(digits.ljust(3, "0"))
