"""Windows by time, as the dialects name them in different ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

UNITS_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_SHOWN: Final = ("week", "day", "hour", "minute", "second", "millisecond", "microsecond")


@dataclass(frozen=True, slots=True)
class DialectWindow:
    """A window over a column of times, in µs: `size` and `slide`, or the gap of a session as the size."""

    kind: Literal["tumble", "hop", "session"]
    column: str
    size_us: int
    slide_us: int = 0

    @property
    def spark(self) -> str:
        """The call that groups by it in a pipeline."""
        if self.kind == "session":
            return f"session_window({self.column}, '{span(self.size_us)}')"
        slide = f", '{span(self.slide_us)}'" if self.kind == "hop" else ""
        return f"window({self.column}, '{span(self.size_us)}'{slide})"


def span(us: int) -> str:
    """A length such as `10 seconds`, in the largest unit that it is a whole number of."""
    for unit in _SHOWN:
        if us % UNITS_US[unit] == 0:
            count = us // UNITS_US[unit]
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("a microsecond divides it")
