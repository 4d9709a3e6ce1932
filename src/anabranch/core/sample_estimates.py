"""Estimates of count, sum and average from a sample in which each value was kept by itself with a known chance. Pure.

A value that was kept with the chance p has the weight 1/p. Totals are Horvitz and Thompson's (1952): the sum of weighted
values, whose variance is estimated by that of w(w-1)x². The average is their ratio (Hájek 1971), with the residuals in
place of x.

`error` is the half-width of an interval that holds the true value in about 95 % of windows. A normal interval is too short
where few events were kept: then a low estimate comes with a low error. So for totals the interval contains Wilson's
(1927) score interval, and for averages Student's t takes the place of 1.96. A count is a whole number, and has the
continuity correction of one half. Where no value was kept, others of its window say how many it may have lost.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Estimate", "Z", "average", "count", "total"]

Z: Final = 1.959964  # of 95 %, both sides

Values = npt.NDArray[np.float64]
_NONE: Final[Values] = np.empty(0)


class Estimate(NamedTuple):
    """`error` is None if nothing can be said about it."""

    value: float
    error: float | None


def count(weights: Values, others: Values = _NONE) -> Estimate:
    """How many values there were, as a whole number. `weights` are those of the kept ones, `others` those of the kept
    events of the same window that have no value."""
    size = float(np.sum(weights))
    variance = _excess(weights)
    step = _step(variance, _sampled(weights)) if size else _step(_excess(others), _sampled(others))
    return Estimate(math.floor(size + 0.5), (0.5 if step else 0.0) + _half_width(step, variance))


def total(values: Values, weights: Values) -> Estimate:
    """The sum of all values, from those kept."""
    variance = float(np.sum(weights * (weights - 1) * values**2))
    step = _step(variance, _sampled(weights, np.abs(values)))
    return Estimate(float(np.sum(weights * values)), _half_width(step, variance))


def average(values: Values, weights: Values) -> Estimate:
    """The average of all values, from those kept, of which there is at least one. Its error is unknown if just one of
    them stands for others."""
    size = float(np.sum(weights))
    mean = float(np.sum(weights * values)) / size
    variance = float(np.sum(weights * (weights - 1) * (values - mean) ** 2)) / size**2
    sampled = int(np.count_nonzero(weights > 1))
    if sampled < 2:
        return Estimate(mean, None if sampled else 0.0)
    return Estimate(mean, t_quantile(sampled - 1) * math.sqrt(variance * sampled / (sampled - 1)))


def _excess(weights: Values) -> float:
    return float(np.sum(weights * (weights - 1)))


def _sampled(weights: Values, values: Values | float = 1.0) -> float:
    """The sum of weighted values, less those that were kept for certain."""
    return float(np.sum(np.where(weights > 1, weights * values, 0.0)))


def _step(variance: float, magnitude: float) -> float:
    return variance / magnitude if magnitude else 0.0


def _half_width(step: float, variance: float) -> float:
    return Z * Z * step / 2 + math.sqrt(Z**2 * variance + Z**4 * step**2 / 4)


def t_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t, by the expansion in Abramowitz and Stegun 26.7.5: within 4 % from 2 degrees
    of freedom on."""
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / freedom + second / freedom**2 + third / freedom**3
