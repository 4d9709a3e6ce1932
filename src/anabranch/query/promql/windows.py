"""Functions over the samples of a range: all windows of all series at once, in blocks.

What they compute is what Prometheus 2.42 computes (`promql/functions.go`): ranges include both ends, and rates are
extrapolated to the ends of the range, but not below zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from anabranch.query.promql.vectors import Bools, Floats, Integers, SampledSeries

_BLOCK_SAMPLES: Final = 1 << 20
# Samples are extrapolated to an end of the range that is nearer than this factor times their mean distance.
_EXTRAPOLATION_FACTOR: Final = 1.1


@dataclass(frozen=True, slots=True)
class SampleWindows:
    """Windows with at least one sample each. `at` and `values` are the samples of all windows, one window after the
    other. Window i has `counts[i]` samples from index `first[i]` on, and lasts from `starts[i]` to `ends[i]` (ms).
    `parameter` is the function's second argument at each window."""

    at: Integers
    values: Floats
    first: Integers
    counts: Integers
    starts: Integers
    ends: Integers
    parameter: Floats

    @property
    def last(self) -> Integers:
        """The index of the last sample of each window."""
        return self.first + self.counts - 1

    def total(self, numbers: Floats) -> Floats:
        """The sum over each window of `numbers`, which has one number for each sample."""
        found: Floats = np.add.reduceat(numbers, self.first)
        return found

    def spread_out(self, numbers: Floats) -> Floats:
        """Repeats the number of each window for each of its samples."""
        return np.repeat(numbers, self.counts)

    def followers(self) -> Bools:
        """True for each sample that is not the first of its window."""
        found = np.ones(len(self.values), np.bool_)
        found[self.first] = False
        return found


WindowFunction = Callable[[SampleWindows], Floats | tuple[Floats, Bools]]
"""Returns the result of each window; if some windows have none, also a mask of the windows with a result."""


def over_windows(
    series: Sequence[SampledSeries],
    starts: Integers,
    ends: Integers,
    function: WindowFunction,
    parameter: Floats,
    check: Callable[[], None],
) -> tuple[Floats, Bools]:
    """The results of a function for each series (row) and window (column), and a mask of those that exist."""
    shape = (len(series), len(starts))
    values: Floats = np.zeros(shape[0] * shape[1])
    present: Bools = np.zeros(shape[0] * shape[1], np.bool_)
    if not series:
        return values.reshape(shape), present.reshape(shape)
    bases = np.cumsum([0, *(len(each.at) for each in series[:-1])])
    low = np.concatenate(
        [np.searchsorted(each.at, starts, "left") + base for each, base in zip(series, bases, strict=True)]
    )
    high = np.concatenate(
        [np.searchsorted(each.at, ends, "right") + base for each, base in zip(series, bases, strict=True)]
    )
    at, numbers = np.concatenate([each.at for each in series]), np.concatenate([each.values for each in series])
    used = np.flatnonzero(high > low)
    for block in _blocks(used, (high - low)[used]):
        check()
        counts = high[block] - low[block]
        first = np.cumsum(counts) - counts
        positions = np.arange(counts.sum()) - np.repeat(first - low[block], counts)
        column = block % shape[1]
        windows = SampleWindows(
            at[positions], numbers[positions], first, counts, starts[column], ends[column], parameter[column]
        )
        found = function(windows)
        if isinstance(found, tuple):
            values[block], present[block] = found
        else:
            values[block], present[block] = found, True
    return values.reshape(shape), present.reshape(shape)


def _blocks(used: Integers, counts: Integers) -> Iterator[Integers]:
    """The windows in blocks of at most `_BLOCK_SAMPLES` samples; a window with more samples is a block of its own."""
    total = np.cumsum(counts)
    start = 0
    while start < len(used):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + _BLOCK_SAMPLES, "right")))
        yield used[start:stop]
        start = stop


def extrapolated(windows: SampleWindows, *, counter: bool, rate: bool) -> tuple[Floats, Bools]:
    """`rate`, `increase` and `delta`."""
    first, last = windows.values[windows.first], windows.values[windows.last]
    change = last - first
    if counter:
        change = change + windows.total(_resets(windows))
    first_at, last_at = windows.at[windows.first], windows.at[windows.last]
    sampled = (last_at - first_at) / 1000
    distance = sampled / (windows.counts - 1)
    to_start, to_end = (first_at - windows.starts) / 1000, (windows.ends - last_at) / 1000
    if counter:
        to_zero = sampled * (first / change)
        to_start = np.where((change > 0) & (first >= 0) & (to_zero < to_start), to_zero, to_start)
    threshold = distance * _EXTRAPOLATION_FACTOR
    length = sampled + np.where(to_start < threshold, to_start, distance / 2)
    length = length + np.where(to_end < threshold, to_end, distance / 2)
    found = change * (length / sampled)
    if rate:
        found = found / ((windows.ends - windows.starts) / 1000)
    return found, windows.counts > 1


def _resets(windows: SampleWindows) -> Floats:
    """For each sample that is lower than the one before, the value of the one before; else 0."""
    before = np.roll(windows.values, 1)
    return np.where(windows.followers() & (windows.values < before), before, 0.0)


def instantaneous(windows: SampleWindows, *, rate: bool) -> tuple[Floats, Bools]:
    """`irate` and `idelta`, from the last two samples of each window."""
    last = windows.last
    before = np.maximum(last - 1, windows.first)
    found, elapsed = windows.values[last] - windows.values[before], windows.at[last] - windows.at[before]
    if rate:
        found = np.where(windows.values[last] < windows.values[before], windows.values[last], found) / (elapsed / 1000)
    return found, elapsed > 0


def regression(windows: SampleWindows, *, ahead: bool) -> tuple[Floats, Bools]:
    """`deriv`, the slope of the line of least squares; `predict_linear`, its value `parameter` seconds after the
    end."""
    origin = windows.ends if ahead else windows.at[windows.first]
    x = (windows.at - windows.spread_out(origin.astype(np.float64))) / 1000
    y, count = windows.values, windows.counts
    mean_x, mean_y = windows.total(x) / count, windows.total(y) / count
    from_x = x - windows.spread_out(mean_x)
    slope = windows.total(from_x * (y - windows.spread_out(mean_y))) / windows.total(from_x * from_x)
    level = np.minimum.reduceat(y, windows.first) == np.maximum.reduceat(y, windows.first)
    flat = np.where(np.isinf(y[windows.first]), np.nan, 0.0)
    slope = np.where(level, flat, slope)
    constant = np.where(level, np.where(np.isnan(flat), np.nan, y[windows.first]), mean_y - slope * mean_x)
    return (constant + slope * windows.parameter if ahead else slope), count > 1


def average(windows: SampleWindows) -> Floats:
    """The mean, even if the sum of the values overflows a double."""
    found = windows.total(windows.values) / windows.counts
    if not np.isinf(found).any():
        return found
    return np.where(np.isinf(found), windows.total(windows.values / np.repeat(windows.counts, windows.counts)), found)


def variance(windows: SampleWindows) -> Floats:
    """The population variance."""
    difference = windows.values - windows.spread_out(average(windows))
    return windows.total(difference * difference) / windows.counts


def quantile(windows: SampleWindows) -> Floats:
    """The quantile `parameter`, interpolated between its two neighbours. NaN sorts below all numbers."""
    number = np.repeat(np.arange(len(windows.first)), windows.counts)
    is_number = ~np.isnan(windows.values)
    values = windows.values[np.lexsort((windows.values, is_number, number))]
    return between(windows.parameter, windows.counts, lambda rank: values[windows.first + rank])


def between(wanted: Floats, counts: Integers, ranked: Callable[[Integers], Floats]) -> Floats:
    """The quantile `wanted` of `counts` sorted values, interpolated. `ranked` returns the values at ranks, from 0."""
    rank = np.clip(np.nan_to_num(wanted), 0, 1) * (counts - 1)
    lower = np.floor(rank)
    weight = rank - lower
    low = ranked(np.maximum(lower.astype(np.int64), 0))
    high = ranked(np.minimum(lower.astype(np.int64) + 1, np.maximum(counts - 1, 0)))
    found = low * (1 - weight) + high * weight
    found = np.where(wanted < 0, -np.inf, np.where(wanted > 1, np.inf, found))
    return np.where(np.isnan(wanted), np.nan, found)


def changes(windows: SampleWindows) -> Floats:
    """How often a sample differs from the one before; two NaN don't differ."""
    before = np.roll(windows.values, 1)
    differ = (windows.values != before) & ~(np.isnan(windows.values) & np.isnan(before))
    return windows.total((windows.followers() & differ).astype(np.float64))


def resets(windows: SampleWindows) -> Floats:
    """How often a sample is lower than the one before."""
    lower = windows.followers() & (windows.values < np.roll(windows.values, 1))
    return windows.total(lower.astype(np.float64))


WINDOW_FUNCTIONS: Final[dict[str, WindowFunction]] = {
    "rate": lambda windows: extrapolated(windows, counter=True, rate=True),
    "increase": lambda windows: extrapolated(windows, counter=True, rate=False),
    "delta": lambda windows: extrapolated(windows, counter=False, rate=False),
    "irate": lambda windows: instantaneous(windows, rate=True),
    "idelta": lambda windows: instantaneous(windows, rate=False),
    "deriv": lambda windows: regression(windows, ahead=False),
    "predict_linear": lambda windows: regression(windows, ahead=True),
    "changes": changes,
    "resets": resets,
    "avg_over_time": average,
    "sum_over_time": lambda windows: windows.total(windows.values),
    "min_over_time": lambda windows: np.fmin.reduceat(windows.values, windows.first),
    "max_over_time": lambda windows: np.fmax.reduceat(windows.values, windows.first),
    "count_over_time": lambda windows: windows.counts.astype(np.float64),
    "last_over_time": lambda windows: windows.values[windows.last],
    "present_over_time": lambda windows: np.ones(len(windows.first)),
    "quantile_over_time": quantile,
    "stddev_over_time": lambda windows: np.sqrt(variance(windows)),
    "stdvar_over_time": variance,
}
"""The functions of a range, by name."""
