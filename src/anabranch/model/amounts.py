"""Amounts as people write them: lengths of time and sizes."""

from __future__ import annotations

import re
from datetime import timedelta

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
    """A timedelta, an integer of µs, or a text as `7d` (ms, s, m, h, d, w) as µs. Raises InvalidArgument."""
    if isinstance(value, timedelta):
        return _positive(value // timedelta(microseconds=1), value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _positive(value, value)
    match = _AMOUNT.match(value) if isinstance(value, str) else None
    if match is None or match[2] not in _TIMES_US:
        raise InvalidArgument(f"'{value}' is no length of time: write a number with ms, s, m, h, d or w, as 7d")
    return _positive(round(float(match[1]) * _TIMES_US[match[2]]), value)


def to_size(value: int | str) -> int:
    """An integer of bytes, or a text as `10GB` (powers of 1,000) or `10GiB` (of 1,024). Raises InvalidArgument."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _positive(value, value)
    match = _AMOUNT.match(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _SIZES:
        raise InvalidArgument(f"'{value}' is no size: write a number of bytes, or as 500MB, 10GB or 10GiB")
    return _positive(round(float(match[1]) * _SIZES[match[2].lower()]), value)


def _positive(amount: int, said: object) -> int:
    if not 0 <= amount < 1 << 63:
        raise InvalidArgument(f"{said} is not between 0 and what 64 bits can hold")
    return amount
