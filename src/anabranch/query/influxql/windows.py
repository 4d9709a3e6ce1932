"""Windows of GROUP BY time(), and the fill values of windows without values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.times import TIME_MAX, TIME_MIN, US, TimeRange, time_zone
from anabranch.query.sql_text import literal

Point = tuple[int, Any]
"""A time in nanoseconds, and a value."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `interval` nanoseconds in a time range, which start at multiples of `interval` plus `offset`. With a
    `zone`, the multiples are of its local time."""

    interval: int
    offset: int
    times: TimeRange
    zone: str | None = None

    def start_of(self, ns: int) -> int:
        """The start of the window that contains a time."""
        local = self._local(ns)
        return self._absolute(local - (local - self.offset) % self.interval)

    def sql(self, micros: str) -> str:
        """The SQL for the start of the window that contains a time, from the SQL for the time; both are in microseconds."""
        interval, offset = self.interval // US, self.offset // US
        if self.zone is not None:
            micros = f"epoch_us(timezone({literal(self.zone)}, make_timestamptz({micros})))"
        start = f"({micros} - ((({micros} - {offset}) % {interval}) + {interval}) % {interval})"
        if self.zone is None:
            return start
        return f"epoch_us(timezone({literal(self.zone)}, make_timestamp({start})))"

    def filled(self, points: Sequence[Point], fill: ast.Fill, *, whole: bool, descending: bool) -> list[Point]:
        """A value for each window of the range, from the first value on if the range has no start. `points` are in the
        order of their times; with `descending` the last comes first in the result, and the later value is the previous
        one. `whole`: the numbers are integers. Raises InvalidSql for more windows than a query may have."""
        found = list(points)
        if fill.kind != "none" and points:
            found = self._filled(points, fill, whole=whole, descending=descending)
        return found[::-1] if descending else found

    def _filled(self, points: Sequence[Point], fill: ast.Fill, *, whole: bool, descending: bool) -> list[Point]:
        start = points[0][0] if self.times.start == TIME_MIN else self.start_of(self.times.start)
        stop = points[-1][0] if self.times.stop == TIME_MAX else self.start_of(self.times.stop)
        check_windows(start, stop, self.interval)
        known = dict(points)
        times = self._starts(start, stop)
        match fill.kind:
            case "null":
                return [(at, known.get(at)) for at in times]
            case "number":
                number = int(fill.number) if whole else fill.number
                return [(at, known.get(at, number)) for at in times]
            case "previous":
                return _previous(times[::-1], known)[::-1] if descending else _previous(times, known)
        return _linear(times, known, points, whole=whole)

    def _starts(self, start: int, stop: int) -> Sequence[int]:
        """The starts of the windows from one to another, inclusive."""
        if self.zone is None:
            return range(start, stop + 1, self.interval)
        local = range(self._local(start), self._local(stop) + 1, self.interval)
        return [self._absolute(at) for at in local]

    def _local(self, ns: int) -> int:
        """The local time of the zone at a time."""
        return ns if self.zone is None else ns + _zone_offset(ns, self.zone)

    def _absolute(self, local: int) -> int:
        """The time at which the zone has this local time; the first, if it has it twice."""
        return local if self.zone is None else local - _local_offset(local, self.zone)


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of no zone, or of any


def _zone_offset(ns: int, zone: str) -> int:
    moment = (_EPOCH + timedelta(microseconds=ns // US)).replace(tzinfo=UTC)
    return _nanoseconds(moment.astimezone(time_zone(zone)))


def _local_offset(local: int, zone: str) -> int:
    return _nanoseconds((_EPOCH + timedelta(microseconds=local // US)).replace(tzinfo=time_zone(zone)))


def _nanoseconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None, "the moment has a zone"
    return offset // timedelta(microseconds=1) * US


def check_windows(start: int, stop: int, interval: int) -> None:
    """Raise InvalidSql for more windows than a query may have."""
    count = (stop - start) // interval + 1
    if count > limits.INFLUXQL_WINDOWS_MAX:
        raise InvalidSql(
            f"max-select-buckets limit exceeded: ({count}/{limits.INFLUXQL_WINDOWS_MAX}); take a longer interval, a "
            "shorter time range, or fill(none)"
        )


def _previous(times: Sequence[int], known: dict[int, Any]) -> list[Point]:
    found: list[Point] = []
    last = None
    for at in times:
        last = known.get(at, last)
        found.append((at, last))
    return found


def _linear(times: Sequence[int], known: dict[int, Any], points: Sequence[Point], *, whole: bool) -> list[Point]:
    """Interpolates linearly between the value before and the value after."""
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
