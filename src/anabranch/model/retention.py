"""How long the events of a stream are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.model.amounts import to_duration, to_size


@dataclass(frozen=True, slots=True)
class Retention:
    """An event may go when it is older than `age_us`, or when `size` logical bytes lie behind it; None: not for this
    reason. It stays all the same while it is younger than `age_min_us` or among the newest `size_min` bytes. Ages are
    those of append times. Two policies are joined by `|`.
    """

    age_us: int | None = None
    size: int | None = None
    age_min_us: int = 0
    size_min: int = 0

    def __post_init__(self) -> None:
        if self.age_us is None and self.size is None:
            raise InvalidArgument("a retention policy says for how long, or how many bytes, events are kept")
        if self.age_us is not None and self.age_us < self.age_min_us:
            raise InvalidArgument("the least age of a retention policy is above the age at which events go")
        if self.size is not None and self.size < self.size_min:
            raise InvalidArgument("the least size of a retention policy is above the size at which events go")

    def __or__(self, other: Retention) -> Retention:
        """What either lets go, goes; what either keeps at least, stays. Raises InvalidArgument where both have an age or
        both have a size."""
        if (self.age_us is not None and other.age_us is not None) or (self.size is not None and other.size is not None):
            raise InvalidArgument("two retention policies are joined where one says an age and the other a size")
        return Retention(
            self.age_us if other.age_us is None else other.age_us,
            self.size if other.size is None else other.size,
            max(self.age_min_us, other.age_min_us),
            max(self.size_min, other.size_min),
        )

    def to_json(self) -> dict[str, object]:
        """As the catalog keeps it."""
        return {"age_us": self.age_us, "size": self.size, "age_min_us": self.age_min_us, "size_min": self.size_min}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Retention:
        """The inverse of `to_json`."""
        return cls(value["age_us"], value["size"], value["age_min_us"], value["size_min"])


def RetainFor(age: timedelta | int | str, *, bytes_min: int | str = 0) -> Retention:  # noqa: N802 - reads as a policy
    """Events go when they are older than `age` (`7d`, a timedelta, or µs), but for the newest `bytes_min` bytes."""
    return Retention(age_us=to_duration(age), size_min=to_size(bytes_min))


def RetainBytes(size: int | str, *, age_min: timedelta | int | str = 0) -> Retention:  # noqa: N802 - reads as a policy
    """The newest `size` bytes (`10GB`, or an integer) are kept; what lies before them goes once it is older than
    `age_min`."""
    return Retention(size=to_size(size), age_min_us=to_duration(age_min))
