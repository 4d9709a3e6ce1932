"""Times: integers of µs since the Unix epoch, UTC, and how other forms of times are converted to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.model.warn import are_passed_on, warn_caller

REFUSE: Final = "refuse"
UNITS_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}  # units of integer times, each in ns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_NANOSECOND_DIGITS = re.compile(r"[.,]\d{6}(\d+)")  # digits of a text that a datetime can't hold
# The smallest integer that is plausible in any unit: in seconds.
_CHECKED_MIN: Final = limits.TIME_PLAUSIBLE_MIN_US // 1_000_000
_UNIT_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_warned: set[str] = set()  # warnings that this process has already issued


class TimeWarning(UserWarning):
    """A time was interpreted in a way that may not be intended: without a zone, or, if such times are accepted, as µs
    where another unit is likely."""


@dataclass(frozen=True, slots=True)
class TimeRules:
    """How times are interpreted.

    `zone` applies to times without a zone: an IANA name; `refuse`; or None for UTC, with one warning per process. With
    `truncate`, digits beyond µs are cut off; otherwise times with such digits are refused. Integers are µs; with
    `implausible`, integers that are a plausible time only in another unit are accepted, with one warning per process;
    otherwise they are refused."""

    zone: str | None = None
    truncate: bool = False
    implausible: bool = False
    _zone: tzinfo = field(init=False, repr=False, compare=False, default=UTC)

    def __post_init__(self) -> None:
        """Raises InvalidArgument for an unknown zone."""
        if self.zone is not None and not isinstance(self.zone, str):
            raise InvalidArgument(f"expected a time zone as text, got {self.zone!r:.100}")
        if self.zone is None or self.zone == REFUSE or self.zone.upper() == "UTC":
            return
        from zoneinfo import ZoneInfo  # most programs never use one

        try:
            object.__setattr__(self, "_zone", ZoneInfo(self.zone))
        except (OSError, ValueError, KeyError) as exc:  # ZoneInfoNotFoundError is a KeyError
            raise _no_zone(self.zone) from exc

    def zone_for_naive(self) -> str:
        """The name of the zone for times without one. Warns once per process if none was set. Raises InvalidArgument if
        such times are refused."""
        if self.zone == REFUSE:
            raise InvalidArgument(
                "the time has no zone, and such times are refused: add Z, an offset such as +02:00, or tzinfo"
            )
        if self.zone is None:
            warn_once("zone", "a time without a zone was taken as UTC; give times a zone, or set time_zone")
            return "UTC"
        return "UTC" if self._zone is UTC else self.zone

    def aware(self, value: datetime) -> datetime:
        """A datetime with its zone. Raises InvalidArgument if it has none and such times are refused, or if the local
        time is skipped or repeated by a clock change."""
        if value.tzinfo is not None:
            return value
        self.zone_for_naive()
        found = value.replace(tzinfo=self._zone)
        if self._zone is not UTC and found.utcoffset() != value.replace(tzinfo=self._zone, fold=1).utcoffset():
            raise InvalidArgument(
                f"{value.isoformat()} is skipped or repeated in {self.zone} by a clock change: give its UTC offset"
            )
        return found


DEFAULT_RULES: Final = TimeRules()


def to_micros(value: datetime | int | str, rules: TimeRules = DEFAULT_RULES) -> Micros:
    """Convert a datetime, an integer of µs or ISO 8601 text to µs UTC. Raises InvalidArgument, also if digits beyond µs
    would be lost, and for an integer that looks like another unit unless the rules accept it."""
    if isinstance(value, bool):
        raise InvalidArgument("expected a timestamp, got a bool")
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgument(f"{value} µs does not fit in 64 bits")
        if value >= _CHECKED_MIN and not limits.TIME_PLAUSIBLE_MIN_US <= value < limits.TIME_PLAUSIBLE_MAX_US:
            check_unit(value, rules)
        return Micros(value)
    if isinstance(value, str):
        text = value
        try:
            value = datetime.fromisoformat(text)
        except ValueError as exc:
            raise InvalidArgument(
                f"'{text:.100}' is not a time: expected ISO 8601, such as 2026-01-31T12:00:00Z"
            ) from exc
        if not rules.truncate and (finer := _NANOSECOND_DIGITS.search(text)) is not None and finer[1].strip("0"):
            raise precision_error(text)
    if not isinstance(value, datetime) or is_nat(value):
        raise InvalidArgument(f"expected a datetime, ISO 8601 text or µs since 1970; got {type(value).__name__}")
    if not rules.truncate and has_nanoseconds(value):
        raise precision_error(value)
    return Micros((rules.aware(value) - _EPOCH) // _MICRO)


def to_datetime(micros: int) -> datetime:
    """µs UTC as an aware datetime. Raises InvalidArgument outside the years 1 to 9999."""
    try:
        return _EPOCH + micros * _MICRO
    except OverflowError as exc:
        raise InvalidArgument(f"{micros} µs is outside the years 1 to 9999, all that a datetime can hold") from exc


def is_plausible(value: int, unit: str = "us") -> bool:
    """True if an integer of that unit is a time between 1980 and 2200, the usual range of event times."""
    return limits.TIME_PLAUSIBLE_MIN_US <= value * UNITS_NS[unit] // 1_000 < limits.TIME_PLAUSIBLE_MAX_US


def plausible_unit(value: int) -> str | None:
    """The unit other than µs in which an integer is a plausible time; None if it is plausible in µs, or in no unit."""
    return None if is_plausible(value) else next((unit for unit in UNITS_NS if is_plausible(value, unit)), None)


def format_time(value: int, unit: str) -> str:
    """An integer of that unit as ISO 8601, or a phrase saying that it is out of range."""
    try:
        return to_datetime(value * UNITS_NS[unit] // 1_000).isoformat().replace("+00:00", "Z")
    except (InvalidArgument, OverflowError):
        return "beyond year 9999" if value > 0 else "before year 1"


def has_nanoseconds(value: datetime) -> bool:
    """True for a pandas timestamp with digits beyond µs."""
    return value.__class__ is not datetime and getattr(value, "nanosecond", None) not in (None, 0)


def is_nat(value: object) -> bool:
    """True for pandas' NaT, which calls itself a datetime."""
    return isinstance(value, datetime) and value != value


def precision_error(value: object) -> InvalidArgument:
    """The error for a time with digits beyond µs."""
    return InvalidArgument(
        f"{value} has digits beyond µs, which would be lost: round it, or set truncate_times (--truncate-times)"
    )


def warn_once(what: str, message: str) -> None:
    """Warn once per process for each `what`, attributed to the caller outside this package. Warnings that are passed on
    to callers in other processes are counted there."""
    if are_passed_on():
        warn_caller(TimeWarning(message))
        return
    if what in _warned:
        return
    _warned.add(what)
    warn_caller(TimeWarning(message))


def check_unit(value: int, rules: TimeRules) -> None:
    """Refuse an integer of µs that is a plausible time only in another unit; or, if the rules accept such times, warn
    once per process. Raises InvalidArgument."""
    unit = plausible_unit(value)
    if unit is None or (rules.implausible and "unit" in _warned):
        return
    if rules.implausible:
        warn_once(
            "unit",
            f"{value} was taken as µs since 1970, {format_time(value, 'us')}; as {unit} it is {format_time(value, unit)}",
        )
        return
    raise InvalidArgument(
        f"{value} is not a plausible time in µs since 1970 ({format_time(value, 'us')}); it looks like {_UNIT_NAMES[unit]} "
        f"({format_time(value, unit)}): convert it to µs, give a datetime, or set implausible_times to accept it"
    )


def reset_warnings() -> None:
    """Allow all warnings again. The command line calls this for each of its runs."""
    _warned.clear()


def _no_zone(zone: str) -> InvalidArgument:
    return InvalidArgument(f"unknown time zone '{zone}': expected an IANA name such as Europe/Berlin, UTC, or {REFUSE}")
