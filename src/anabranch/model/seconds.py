"""Durations that a caller gives in seconds."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Final

from anabranch.errors import InvalidArgument

_SECONDS_MAX: Final = 1e12  # its µs, added to a time, fit in 64 bits


def check_seconds(name: str, seconds: Any) -> None:
    """Raises InvalidArgument for anything but a finite number of seconds that is a duration in µs too. The caller checks
    how short it may be."""
    value: Any = seconds  # a type checker knows no comparison of a Real
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or value != value:  # NaN
        raise InvalidArgument(f"expected {name} as a finite number of seconds, got {seconds!r:.100}")
    if not -_SECONDS_MAX < value < _SECONDS_MAX:
        raise InvalidArgument(f"expected {name} as a finite number of seconds, less than {_SECONDS_MAX:.0e}")


def wait_seconds(name: str, seconds: Any) -> float:
    """How long a caller wants to wait: infinity, or a number whose µs fit in 64 bits. Raises InvalidArgument for anything
    but a number of at least 0."""
    value: Any = seconds
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not value >= 0:  # NaN is not either
        raise InvalidArgument(f"expected {name} as a number of seconds of at least 0, got {seconds!r:.100}")
    return float(value) if value < _SECONDS_MAX else math.inf


def wait_limit(name: str, seconds: Any) -> float | None:
    """As `wait_seconds`, for a wait that needs no limit: None or infinity, for which this returns None."""
    found = math.inf if seconds is None else wait_seconds(name, seconds)
    return None if found == math.inf else found
