"""Durations that a caller gives in seconds."""

from __future__ import annotations

from numbers import Real
from typing import Any, Final

from anabranch.errors import InvalidArgument

_SECONDS_MAX: Final = 1e12  # its µs, added to a time, fit in 64 bits


def check_seconds(name: str, seconds: Any) -> None:
    """Raises InvalidArgument for anything but a finite number of seconds that is a duration in µs too. The caller checks
    how short it may be."""
    value: Any = seconds  # a type checker knows no comparison of a Real
    if not isinstance(seconds, Real) or value != value:  # NaN
        raise InvalidArgument(f"expected {name} as a finite number of seconds, got {seconds!r:.100}")
    if not -_SECONDS_MAX < value < _SECONDS_MAX:
        raise InvalidArgument(f"expected {name} as a finite number of seconds, less than {_SECONDS_MAX:.0e}")
