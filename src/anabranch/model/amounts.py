"""Parses amounts as people write them: durations and sizes."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from anabranch.errors import InvalidArgument

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)\Z")
_TIMES_US = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_SIZES = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", 1)},
}


def to_duration(value: timedelta | int | str) -> int:
    """Convert a timedelta, an integer of µs, or text such as `7d` (units ms, s, m, h, d, w) to µs. Raises
    InvalidArgument."""
    if isinstance(value, timedelta):
        return _positive(value // timedelta(microseconds=1), value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _positive(value, value)
    match = _AMOUNT.match(value) if isinstance(value, str) else None
    if match is None or match[2] not in _TIMES_US:
        raise InvalidArgument(f"'{value}' is not a duration: expected a number with ms, s, m, h, d or w, such as 7d")
    micros = Decimal(match[1]) * _TIMES_US[match[2]]
    if micros != int(micros):
        raise InvalidArgument(f"'{value}' is not a whole number of µs")
    return _positive(int(micros), value)


def to_size(value: int | str) -> int:
    """Convert an integer of bytes, or text such as `10GB` (powers of 1,000) or `10GiB` (powers of 1,024), to bytes.
    Raises InvalidArgument."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _positive(value, value)
    match = _AMOUNT.match(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _SIZES:
        raise InvalidArgument(
            f"'{value}' is not a size: expected a number of bytes, or a text such as 500MB, 10GB or 10GiB"
        )
    return _positive(round(Decimal(match[1]) * _SIZES[match[2].lower()]), value)


def _positive(amount: int, text: object) -> int:
    if not 0 <= amount < 1 << 63:
        raise InvalidArgument(f"{text} is not between 0 and what 64 bits can hold")
    return amount
