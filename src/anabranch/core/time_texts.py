"""Times of day and durations written as text, with the digits that Python's classes can't hold."""

from __future__ import annotations

import re
from datetime import time, timedelta
from typing import Final

import pyarrow as pa

_BEYOND_MICROS: Final = re.compile(r"(?<=[.,]\d{6})\d+")
_MICRO: Final = timedelta(microseconds=1)
_DURATION: Final = re.compile(
    r"()(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII
)  # Python's text of one
_ISO_DURATION: Final = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?", re.ASCII)


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


def duration(text: str, kind: pa.DataType) -> timedelta | int:
    """A duration as `read` prints it, or in ISO 8601, as a broker does over HTTP; as ns if it has digits beyond µs. Raises
    ValueError, OverflowError."""
    cut, nanos = beyond_micros(text, kind)
    found = _DURATION.fullmatch(cut) or _ISO_DURATION.fullmatch(cut)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{text!r:.100} is not a duration: expected 1 day, 2:03:04.5 or P1DT2H3M4.5S")
    sign, days, hours, minutes, seconds, fraction = found.groups(default="")
    length = timedelta(
        int(days or 0), int(seconds or 0), int(fraction.ljust(6, "0")), 0, int(minutes or 0), int(hours or 0)
    )
    length = -length if sign else length
    return length // _MICRO * 1_000 + (-nanos if sign else nanos) if nanos else length


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
