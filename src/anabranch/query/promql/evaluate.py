"""Computes a query on a grid of times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from anabranch import limits
from anabranch.errors import InvalidSql, QueryLimitExceeded
from anabranch.query.promql.samples import Samples
from anabranch.query.promql.syntax import NumberNode, PromNode, Selector, Shift, TextNode
from anabranch.query.promql.vectors import Bools, Floats, Integers, SampledSeries, SeriesVector

LOOKBACK_MS: Final = 300_000
"""How long a sample is the value of its series, if no newer one follows."""
PromValue = SeriesVector | Floats | str | list[SampledSeries]
"""A vector, a scalar at each time, a text, or the samples of a range."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Where and when a query is computed. `times` (ms) is the grid, `start` and `end` are those of the whole query, which
    `@ start()` and `@ end()` mean. `check` raises once the query has taken too long."""

    samples: Samples
    times: Integers
    start: int
    end: int
    check: Callable[[], None]

    def value(self, node: PromNode) -> PromValue:
        """The value of a node. Raises InvalidSql, QueryLimitExceeded."""
        self.check()
        with np.errstate(all="ignore"):
            return self._value(node)

    def _value(self, node: PromNode) -> PromValue:
        match node:
            case NumberNode(number):
                return np.full(len(self.times), number)
            case TextNode(text):
                return text
            case Selector(range=None):
                return self.instant(node)[0]
            case Selector(_, shift, range_):
                moments = self.moments(shift)
                return self._range(node, int(moments[0]) - (range_ or 0), int(moments[-1]))
        raise InvalidSql(f"{type(node).__name__} is not supported")

    def moments(self, shift: Shift) -> Integers:
        """The times at which something shifted is looked at, for each time of the grid."""
        match shift.at:
            case None:
                return self.times - shift.offset
            case "start":
                at = self.start
            case "end":
                at = self.end
            case int() as at:
                pass
        return np.full(len(self.times), at - shift.offset, np.int64)

    def at(self, times: Integers) -> Evaluation:
        """The same on another grid."""
        return replace(self, times=times)

    def instant(self, node: Selector) -> tuple[SeriesVector, Floats]:
        """The last sample of each series that is not older than the lookback, and the time of each in seconds."""
        moments = self.moments(node.shift)
        found = self._range(node, int(moments.min()) - LOOKBACK_MS, int(moments.max()))
        self.check_cells(len(found))
        values = np.zeros((len(found), len(moments)))
        at = np.zeros((len(found), len(moments)))
        present: Bools = np.zeros((len(found), len(moments)), np.bool_)
        for row, series in enumerate(found):
            last = np.searchsorted(series.at, moments, "right") - 1
            times = series.at[last]
            present[row] = (last >= 0) & (times >= moments - LOOKBACK_MS)
            values[row], at[row] = series.values[last], times / 1000
        return SeriesVector([series.labels for series in found], values, present), at

    def check_cells(self, series: int) -> None:
        """Raise QueryLimitExceeded for a vector of so many series that is too large."""
        cells = series * len(self.times)
        if cells > limits.PROMQL_CELLS_MAX:
            raise QueryLimitExceeded(
                f"the query computes {cells:,} values at once, {series:,} series at {len(self.times):,} times; it may "
                f"{limits.PROMQL_CELLS_MAX:,}. Select fewer series, or a longer step",
                "memory",
            )

    def _range(self, node: Selector, first: int, last: int) -> list[SampledSeries]:
        return self.samples.select(node.matchers, first, last)
