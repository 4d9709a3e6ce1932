"""Time windows, and the names that the dialects have for their kinds and units."""

from __future__ import annotations

import re
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
ABBREVIATED_UNITS: Final = {
    "mcs": "microsecond",
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "ss": "second",
    "n": "minute",
    "mi": "minute",
    "hh": "hour",
    "d": "day",
    "dd": "day",
}
"""Units as Azure Stream Analytics abbreviates them."""
WindowKind = Literal["tumble", "hop", "session"]
WINDOW_KINDS: Final[dict[str, WindowKind]] = {
    **dict.fromkeys(("TUMBLE", "TUMBLING", "TUMBLINGWINDOW"), "tumble"),
    **dict.fromkeys(("HOP", "HOPPING", "HOPPINGWINDOW"), "hop"),
    **dict.fromkeys(("SESSION", "SESSIONWINDOW"), "session"),
}
"""The kinds of windows by their names in the dialects, in upper case."""
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SHOWN: Final = ("week", "day", "hour", "minute", "second", "millisecond", "microsecond")


@dataclass(frozen=True, slots=True)
class DialectWindow:
    """A window over a column of times, in µs: `size` and `slide`, or the gap of a session as the size."""

    kind: WindowKind
    column: str
    """The column's name without quotes, preceded by the table's name and a dot if the statement has it."""
    size_us: int
    slide_us: int = 0
    end_inclusive: bool = False
    """Whether an event at the window's end is in it and one at its start isn't. False for sessions."""
    ends_with_event: bool = False
    """Whether the end of a session is the time of its last event, without the gap."""

    @property
    def spark(self) -> str:
        """The call that groups by the window in a pipeline."""
        column = ".".join(spark_name(part) for part in self.column.split("."))
        if self.kind == "session":
            return f"session_window({column}, '{span(self.size_us)}')"
        slide = f", '{span(self.slide_us or self.size_us)}'" if self.kind == "hop" or self.end_inclusive else ""
        start = ", '1 microsecond'" if self.end_inclusive else ""
        return f"window({column}, '{span(self.size_us)}'{slide}{start})"

    def spark_bound(self, which: str) -> str:
        """The `start` or the `end` of the window in a pipeline."""
        if self.kind == "session":
            gap = f" - INTERVAL '{span(self.size_us)}'" if self.ends_with_event and which == "end" else ""
            return f"session_window.{which}{gap}"
        return f"window.{which}{' - INTERVAL 1 MICROSECOND' if self.end_inclusive else ''}"


def spark_name(part: str) -> str:
    """A name in a pipeline, quoted where it must be."""
    return part if _WORD.match(part) else "`" + part.replace("`", "``") + "`"


def span(us: int) -> str:
    """A length such as `10 seconds`, in the largest unit that it is a whole number of."""
    for unit in _SHOWN:
        if us % UNITS_US[unit] == 0:
            count = us // UNITS_US[unit]
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("a microsecond divides it")
