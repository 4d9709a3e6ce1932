"""Windows of GROUP BY time(), and what stands in those without values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql.conditions import TimeRange
from anabranch.query.influxql.syntax import Fill
from anabranch.query.influxql.times import TIME_MAX, TIME_MIN, US

Point = tuple[int, Any]
"""A time in nanoseconds, and a value."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `interval` nanoseconds that begin at multiples of it, moved by `offset`, in a time range."""

    interval: int
    offset: int
    times: TimeRange

    def start_of(self, ns: int) -> int:
        """The start of the window of a time."""
        return ns - (ns - self.offset) % self.interval

    def sql(self, micros: str) -> str:
        """The start of the window in microseconds, of the SQL of a time in microseconds."""
        interval, offset = self.interval // US, self.offset // US
        return f"({micros} - ((({micros} - {offset}) % {interval}) + {interval}) % {interval})"

    def filled(self, points: Sequence[Point], fill: Fill, *, whole: bool) -> list[Point]:
        """A value for each window of the range, from the first value on if the range has no start. `whole`: the numbers
        are integers. Raises InvalidSql for more windows than a query may have."""
        if fill.kind == "none" or not points:
            return list(points)
        start = points[0][0] if self.times.start == TIME_MIN else self.start_of(self.times.start)
        stop = points[-1][0] if self.times.stop == TIME_MAX else self.start_of(self.times.stop)
        check_windows(start, stop, self.interval)
        known = dict(points)
        times = range(start, stop + 1, self.interval)
        match fill.kind:
            case "null":
                return [(at, known.get(at)) for at in times]
            case "number":
                number = int(fill.number) if whole else fill.number
                return [(at, known.get(at, number)) for at in times]
            case "previous":
                return _previous(times, known)
        return _linear(times, known, points, whole=whole)


def check_windows(start: int, stop: int, interval: int) -> None:
    """Raise InvalidSql for more windows than a query may have."""
    count = (stop - start) // interval + 1
    if count > limits.INFLUXQL_WINDOWS_MAX:
        raise InvalidSql(
            f"max-select-buckets limit exceeded: ({count}/{limits.INFLUXQL_WINDOWS_MAX}); take a longer interval, a "
            "shorter time range, or fill(none)"
        )


def _previous(times: range, known: dict[int, Any]) -> list[Point]:
    found: list[Point] = []
    last = None
    for at in times:
        last = known.get(at, last)
        found.append((at, last))
    return found


def _linear(times: range, known: dict[int, Any], points: Sequence[Point], *, whole: bool) -> list[Point]:
    """Values on the line between the one before and the one after."""
    found: list[Point] = []
    following, before = 0, None
    for at in times:
        if at in known:
            before = (at, known[at])
            found.append(before)
            continue
        while following < len(points) and points[following][0] < at:
            following += 1
        if before is None or following == len(points) or before[1] is None or points[following][1] is None:
            found.append((at, None))
            continue
        after = points[following]
        value = before[1] + (after[1] - before[1]) * (at - before[0]) / (after[0] - before[0])
        found.append((at, int(value) if whole else value))
    return found
