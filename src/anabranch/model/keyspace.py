"""The key space: the 64-bit unsigned integers, divided into half-open ranges. Never floats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from anabranch.errors import InvalidArgument

KEY_SPACE_END: Final = 1 << 64  # exclusive


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """Points `low <= p < high`; `0 <= low < high <= 2**64`."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= KEY_SPACE_END:
            raise InvalidArgument(f"[{self.low}, {self.high}) is not a key range: expected 0 <= low < high <= 2**64")

    def __contains__(self, point: int) -> bool:
        return self.low <= point < self.high

    def overlaps(self, other: KeyRange) -> bool:
        """True if the ranges have a point in common."""
        return self.low < other.high and other.low < self.high

    def split(self, parts: int) -> tuple[KeyRange, ...]:
        """`parts` adjacent ranges of (nearly) equal width that cover this one, in order."""
        width = self.high - self.low
        if not 1 <= parts <= width:
            raise InvalidArgument(f"a range of {width} points can't be split into {parts}")
        edges = [self.low + width * i // parts for i in range(parts + 1)]
        return tuple(KeyRange(low, high) for low, high in pairwise(edges))

    def __str__(self) -> str:
        return f"[{self.low:016x}, {self.high:016x})"


FULL_KEY_RANGE: Final = KeyRange(0, KEY_SPACE_END)


def covers_once(ranges: Iterable[KeyRange], whole: KeyRange = FULL_KEY_RANGE) -> bool:
    """True if the ranges cover `whole` exactly once: no gap, no overlap, nothing outside."""
    edge = whole.low
    for part in sorted(ranges):
        if part.low != edge:
            return False
        edge = part.high
    return edge == whole.high
