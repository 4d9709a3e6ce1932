"""Scaling policies: how many segments a stream has, and whether the number follows the load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import to_size


@dataclass(frozen=True, slots=True)
class Fixed:
    """Scaling: a fixed number of segments, changed only manually."""

    segments: int = 1

    def __post_init__(self) -> None:
        _check_count("number of segments", self.segments)


@dataclass(frozen=True, slots=True)
class _ByRate:
    """The number of segments follows the load. A segment that gets more than `target` per second is split, into at most
    `factor` segments. Neighbours that get little are merged, down to `minimum` segments."""

    target: float
    factor: int = 2
    minimum: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.target, int | float) or not 0 < self.target < math.inf:
            raise InvalidArgument(
                f"expected the target of a scaling policy to be above 0 per second, got {self.target}"
            )
        _check_count("factor of a scaling policy", self.factor, least=2)
        _check_count("minimum number of segments", self.minimum)


@dataclass(frozen=True, slots=True)
class ByEventRate(_ByRate):
    """Scaling by the events per second that a segment gets."""

    unit: ClassVar[str] = "events"


@dataclass(frozen=True, slots=True)
class ByByteRate(_ByRate):
    """Scaling by the logical bytes per second that a segment gets: an integer, or text such as `2MB`."""

    unit: ClassVar[str] = "bytes"

    def __init__(self, target: float | str, factor: int = 2, minimum: int = 1) -> None:
        number = to_size(target) if isinstance(target, str) else target
        for name, value in (("target", number), ("factor", factor), ("minimum", minimum)):
            object.__setattr__(self, name, value)
        self.__post_init__()


ByRate: TypeAlias = ByEventRate | ByByteRate
Scaling: TypeAlias = Fixed | ByRate


def rate_to_json(policy: ByRate) -> dict[str, object]:
    """The form stored in the catalog."""
    return {"unit": policy.unit, "target": policy.target, "factor": policy.factor, "minimum": policy.minimum}


def rate_from_json(value: Mapping[str, Any]) -> ByRate:
    """The inverse of `rate_to_json`."""
    kind = ByEventRate if value["unit"] == ByEventRate.unit else ByByteRate
    return kind(value["target"], value["factor"], value["minimum"])


def initial_segments(policy: Scaling) -> int:
    """How many segments a stream starts with."""
    return policy.segments if isinstance(policy, Fixed) else policy.minimum


def _check_count(what: str, count: int, least: int = 1) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise InvalidArgument(f"expected the {what} to be an integer, got {type(count).__name__}")
    if not least <= count <= limits.SEGMENTS_MAX:
        raise InvalidArgument(f"expected the {what} to be {least} to {limits.SEGMENTS_MAX:,}, got {count}")
