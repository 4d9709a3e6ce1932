"""Policies a stream is created with."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch import limits
from anabranch.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Fixed:
    """Scaling: a fixed number of segments, changed by hand alone."""

    segments: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.segments, int) or isinstance(self.segments, bool):
            raise InvalidArgument(f"a number of segments is an integer, not {type(self.segments).__name__}")
        if not 1 <= self.segments <= limits.SEGMENTS_MAX:
            raise InvalidArgument(f"a stream has 1 to {limits.SEGMENTS_MAX:,} segments, not {self.segments}")
