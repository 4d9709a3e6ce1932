"""Measures two things alternately, so that both run under the same conditions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple


class Rounds(NamedTuple):
    """The measurements of each round: ours, and the other's."""

    ours: list[float]
    other: list[float]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios, ours over the other's."""
        return median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        """Ours over the other's, round by round."""
        return [a / b for a, b in zip(self.ours, self.other, strict=True)]

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the greatest ratio."""
        return min(self.ratios), max(self.ratios)


def in_turn(rounds: int, ours: Callable[[], float], other: Callable[[], float]) -> Rounds:
    """Measures A B, B A, A B, …: the second in a round finds another state of caches and disk than the first."""
    found = Rounds([], [])
    for number in range(rounds):
        if number % 2:
            found.other.append(other())
            found.ours.append(ours())
        else:
            found.ours.append(ours())
            found.other.append(other())
    return found


def seconds(work: Callable[[], object]) -> float:
    """Returns the duration of the call in seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def percentile(values: Sequence[float], part: float) -> float:
    """Returns the smallest value that at least `part` (0 … 1) of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(part * len(ranked)) - 1)]
