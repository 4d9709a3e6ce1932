"""Times: integers of µs since the Unix epoch, UTC. Naive datetimes are taken as UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


def to_micros(value: datetime | int | str) -> Micros:
    """A datetime, an integer of µs or an ISO 8601 text as µs UTC. Raises InvalidArgument."""
    if isinstance(value, bool):
        raise InvalidArgument("a truth value is no time")
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgument(f"{value} µs is no time that 64 bits can hold")
        return Micros(value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as exc:
            raise InvalidArgument(f"'{value}' is no time: write ISO 8601, as 2026-01-31T12:00:00Z") from exc
    if not isinstance(value, datetime):
        raise InvalidArgument(f"a time is a datetime, ISO 8601 text or µs since 1970, not {type(value).__name__}")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return Micros((value - _EPOCH) // _MICRO)


def to_datetime(micros: int) -> datetime:
    """µs UTC as an aware datetime. Raises InvalidArgument beyond year 9999."""
    try:
        return _EPOCH + micros * _MICRO
    except OverflowError as exc:
        raise InvalidArgument(f"{micros} µs lies beyond the years a datetime can hold") from exc
