"""Durations and sizes as people write them: parsed, and as text; and numbers that a catalog can hold."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from operator import index
from typing import Any, Final

from anabranch.errors import InvalidArgument

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)\Z", re.ASCII)
UNITS_US: Final = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_AGO = re.compile(rf"-(\d{{1,18}}(?:\.\d{{1,18}})?)({'|'.join(UNITS_US)})\Z", re.ASCII)
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
    if match is None or match[2] not in UNITS_US:
        raise InvalidArgument(f"'{value}' is not a duration: expected a number with ms, s, m, h, d or w, such as 7d")
    micros = Decimal(match[1]) * UNITS_US[match[2]]
    if micros != int(micros):
        raise InvalidArgument(f"'{value}' is not a whole number of µs")
    return _positive(int(micros), value)


def time_ago(text: str, now: int) -> int | None:
    """The time, in µs, that a text such as `-15m` (units ms, s, m, h, d, w) means: that long before `now`. None for any other
    text."""
    match = _AGO.match(text)
    return None if match is None else now - round(Decimal(match[1]) * UNITS_US[match[2]])


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


def duration_text(micros: int) -> str:
    """A duration in the largest unit up to days that it is a whole number of, else in seconds: `7d`, `1.5s`."""
    for unit in ("d", "h", "m"):
        if micros and micros % UNITS_US[unit] == 0:
            return f"{micros // UNITS_US[unit]}{unit}"
    return f"{Decimal(micros).scaleb(-6).normalize():f}s"


def size_text(count: float) -> str:
    """A number of bytes in powers of 1,000: `512 B`, `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def check_number(name: str, value: int) -> int:
    """The argument `name` as an integer that a catalog can hold. Raises InvalidArgument."""
    number = _integer(value)
    if number is None or not 0 <= number < 1 << 63:
        raise InvalidArgument(f"expected `{name}` as an integer from 0 to 2**63 - 1, got {value!r:.100}")
    return number


def check_count(what: str, value: int, *, least: int, most: int) -> int:
    """`what`, such as "the segments of a stream", as an integer in this range. Raises InvalidArgument."""
    number = _integer(value)
    if number is None or not least <= number <= most:
        raise InvalidArgument(f"expected {what} as an integer from {least:,} to {most:,}, got {value!r:.100}")
    return number


def check_integer(name: str, value: int) -> int:
    """The argument `name` as an integer. Raises InvalidArgument."""
    number = _integer(value)
    if number is None:
        raise InvalidArgument(f"expected {name}= as an integer, got {value!r:.100}")
    return number


def _integer(value: Any) -> int | None:
    """The value if it is an integer, of Python or NumPy, and no bool."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def _positive(amount: int, text: object) -> int:
    if not 0 <= amount < 1 << 63:
        raise InvalidArgument(f"{text!s:.100} is not between 0 and what 64 bits can hold")
    return amount
