"""Intervals as Spark's SQL has them: '10 seconds', '1 minute 30 seconds', 'interval 2 hours'. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from anabranch.errors import InvalidSql
from anabranch.model.amounts import UNITS_US

__all__ = ["parse_interval_us"]

_UNIT_US: Final = {
    "microsecond": 1,
    "millisecond": UNITS_US["ms"],
    "second": UNITS_US["s"],
    "minute": UNITS_US["m"],
    "hour": UNITS_US["h"],
    "day": UNITS_US["d"],
    "week": UNITS_US["w"],
}
_PART: Final = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)")


def parse_interval_us(text: str, line: int | None = None) -> int:
    """The length of an interval in µs; `line` is where it is in the file.

    Months and years are refused because they have no fixed length; Spark refuses them for windows and watermarks too.
    Raises InvalidSql.
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    total, position = Decimal(0), 0
    while position < len(rest):
        part = _PART.match(rest, position)
        unit = _UNIT_US.get(part[2]) or _UNIT_US.get(part[2].removesuffix("s")) if part else None
        if part is None or unit is None:
            raise InvalidSql(
                f"'{text}' is not an interval: expected, for example, '10 seconds' or '1 minute 30 seconds'", line
            )
        if "." in part[1] and unit != _UNIT_US["second"]:
            raise InvalidSql(f"'{text}' is not an interval: only seconds may have a fraction", line)
        total += Decimal(part[1]) * unit
        position = part.end()
    if position == 0 or total != int(total):
        raise InvalidSql(
            f"'{text}' is not an interval in whole microseconds: expected, for example, '10 seconds'", line
        )
    return int(total)
