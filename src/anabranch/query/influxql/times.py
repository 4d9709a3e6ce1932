"""Times and durations of InfluxQL, as numbers of nanoseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from anabranch.errors import InvalidSql

US: Final = 1_000
SECOND: Final = 1_000_000_000
UNITS: Final = {
    "ns": 1,
    "n": 1,
    "u": US,
    "us": US,
    "µ": US,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 7 * 86_400 * SECOND,
}
TIME_MIN: Final = -(1 << 63) + 2
TIME_MAX: Final = (1 << 63) - 2
_PART = re.compile(r"(\d+)(ns|us|ms|[uµsmhdw])")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:\d\d)?)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `start` to `stop` in nanoseconds, both inclusive."""

    start: int = TIME_MIN
    stop: int = TIME_MAX

    def within(self, other: TimeRange) -> TimeRange:
        """The intersection of both ranges."""
        return TimeRange(max(self.start, other.start), min(self.stop, other.stop))


ALL_TIMES: Final = TimeRange()


def parse_duration(text: str) -> int:
    """`1h30m` in nanoseconds."""
    return sum(int(count) * UNITS[unit] for count, unit in _PART.findall(text))


def parse_time(text: str, zone: str | None = None) -> int | None:
    """A time such as `2026-01-31T08:00:00Z` or `2026-01-31 08:00:00.5`, in UTC or the zone unless it says otherwise; None if
    it is none."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    day, clock, fraction, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{'+00:00' if offset in (None, 'Z') else offset}")
    except ValueError:
        return None
    if offset is None and zone is not None:
        moment = moment.replace(tzinfo=time_zone(zone))
    return micros(moment) * US + int((fraction or "0").ljust(9, "0"))


def time_zone(name: str) -> ZoneInfo:
    """A zone by its name, as in `Europe/Berlin`. Raises InvalidSql."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise InvalidSql(f"unable to find time zone {name}") from exc


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def time_text(ns: int, zone: ZoneInfo | None = None) -> str:
    """A time in RFC 3339, with as many digits of a second as it needs."""
    seconds, fraction = divmod(ns, SECOND)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return str(ns)
    suffix = "Z"
    if zone is not None:
        moment = moment.astimezone(zone)
        offset = moment.strftime("%z")
        suffix = "Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:]}"
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + digits + suffix


def in_unit(ns: int, unit: int) -> int:
    """A time as a whole number of a unit, truncated toward 1970."""
    return ns // unit if ns >= 0 else -(-ns // unit)
