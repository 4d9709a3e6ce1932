"""Computes a query on a grid of times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from anabranch import limits
from anabranch.errors import InvalidSql, QueryLimitExceeded
from anabranch.query.promql import syntax as ast
from anabranch.query.promql.aggregate import aggregated
from anabranch.query.promql.binary import combined
from anabranch.query.promql.functions import (
    NUMBER_FUNCTIONS,
    TIME_FUNCTIONS,
    absent_labels,
    label_joined,
    label_replaced,
    sorted_rows,
)
from anabranch.query.promql.histograms import histogram_quantile
from anabranch.query.promql.samples import Samples
from anabranch.query.promql.vectors import NAME, Bools, Floats, Integers, SampledSeries, SeriesVector, merged, without
from anabranch.query.promql.windows import WINDOW_FUNCTIONS, over_windows

LOOKBACK_MS: Final = 300_000
"""How long a sample is the value of its series, if no newer one follows."""
_SUBQUERY_STEP_MS: Final = 60_000
_PARAMETER: Final = {"quantile_over_time": 0, "predict_linear": 1}
PromValue = SeriesVector | Floats | str | list[SampledSeries]
"""A vector, a scalar at each time, a text, or the samples of a range."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Where and when a query is computed. `times` (ms) is the grid. `start` and `end` (ms) are the values of `@
    start()` and `@ end()`: the first and the last time of the whole query. `check` raises once the query has taken too
    long."""

    samples: Samples
    times: Integers
    start: int
    end: int
    check: Callable[[], None]

    def value(self, node: ast.PromNode) -> PromValue:
        """The value of a query. Raises InvalidSql, QueryLimitExceeded."""
        with np.errstate(all="ignore"):
            found = self._value(node)
        self.check()  # the last step may have been the long one
        return merged(found) if isinstance(found, SeriesVector) else found

    def _value(self, node: ast.PromNode) -> PromValue:
        self.check()
        match node:
            case ast.NumberNode(number):
                return np.full(len(self.times), number)
            case ast.TextNode(text):
                return text
            case ast.Selector(range=None):
                return self._instant(node)[0]
            case ast.Selector() | ast.Subquery():
                return self._range(node)[0]
            case ast.Negation(inner):
                return self._negation(inner)
            case ast.Aggregation(_, inner, parameter):
                argument = None if parameter is None else self._value(parameter)
                assert argument is None or isinstance(argument, np.ndarray | str), "the parser has checked it"
                return aggregated(node, self._vector(inner), argument)
            case ast.BinaryNode(_, left, right):
                return combined(node, self._operand(left), self._operand(right))
        return self._call(node)

    def _vector(self, node: ast.PromNode) -> SeriesVector:
        found = self._value(node)
        assert isinstance(found, SeriesVector), "the parser has checked it"
        return found

    def _scalar(self, node: ast.PromNode) -> Floats:
        found = self._value(node)
        assert isinstance(found, np.ndarray), "the parser has checked it"
        return found

    def _operand(self, node: ast.PromNode) -> SeriesVector | Floats:
        found = self._value(node)
        assert isinstance(found, SeriesVector | np.ndarray), "the parser has checked it"
        return found

    def _negation(self, inner: ast.PromNode) -> PromValue:
        found = self._operand(inner)
        if isinstance(found, SeriesVector):
            return SeriesVector(found.labels, -found.values, found.present).without_name()
        return -found

    def _moments(self, shift: ast.Shift) -> Integers:
        """For each time of the grid, the time at which a selector with this offset and this `@` is evaluated."""
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

    def _instant(self, node: ast.Selector) -> tuple[SeriesVector, Floats]:
        """The last sample of each series at each time, unless it is older than the lookback; and the samples' times in
        seconds."""
        moments = self._moments(node.shift)
        found = self.samples.select(node.matchers, int(moments.min()) - LOOKBACK_MS, int(moments.max()))
        self._check_cells(len(found))
        shape = (len(found), len(moments))
        values, at = np.zeros(shape), np.zeros(shape)
        present: Bools = np.zeros(shape, np.bool_)
        for row, series in enumerate(found):
            last = np.searchsorted(series.at, moments, "right") - 1
            times = series.at[last]
            present[row] = (last >= 0) & (times >= moments - LOOKBACK_MS)
            values[row], at[row] = series.values[last], times / 1000
        return SeriesVector([series.labels for series in found], values, present), at

    def _range(self, node: ast.Selector | ast.Subquery) -> tuple[list[SampledSeries], Integers, Integers]:
        """The samples, and the start and the end of each window (ms)."""
        ends = self._moments(node.shift)
        starts = ends - (node.range or 0)
        first, last = int(starts.min()), int(ends.max())
        if isinstance(node, ast.Selector):
            return self.samples.select(node.matchers, first, last), starts, ends
        step = node.step or _SUBQUERY_STEP_MS
        begin = -(-first // step) * step
        if (last - begin) // step >= limits.PROMQL_CELLS_MAX:
            raise self._too_many(f"{(last - begin) // step:,} times of a subquery")
        times = np.arange(begin, last + 1, step, dtype=np.int64)
        if not len(times):
            return [], starts, ends
        found = merged(replace(self, times=times)._vector(node.inner))
        rows = zip(found.labels, found.values, found.present, strict=True)
        return [SampledSeries(labels, times[there], values[there]) for labels, values, there in rows], starts, ends

    def _call(self, node: ast.PromCall) -> PromValue:
        name, arguments = node.name, node.arguments
        if name in WINDOW_FUNCTIONS:
            return self._over_windows(node)
        if name in NUMBER_FUNCTIONS:
            return self._numbers(node)
        if name in TIME_FUNCTIONS:
            return self._time_part(node)
        match name, arguments:
            case "time", ():
                return self.times / 1000
            case "pi", ():
                return np.full(len(self.times), np.pi)
            case "timestamp", (ast.Selector(range=None) as selector,):
                found, at = self._instant(selector)
                return SeriesVector(found.labels, at, found.present).without_name()
            case "timestamp", (inner,):
                found = self._vector(inner)
                at = np.broadcast_to(self.times / 1000, found.values.shape)
                return SeriesVector(found.labels, at.copy(), found.present).without_name()
            case "vector", (inner,):
                return self._single({}, self._scalar(inner), np.ones(len(self.times), np.bool_))
            case "scalar", (inner,):
                found = merged(self._vector(inner))
                one = found.present.sum(axis=0) == 1
                return np.where(one, np.where(found.present, found.values, 0.0).sum(axis=0), np.nan)
            case "absent", (inner,):
                missing: Bools = np.logical_not(self._vector(inner).present.any(axis=0))
                return self._single(absent_labels(inner), np.ones(len(self.times)), missing)
            case "absent_over_time", (inner,):
                counted = self._over_windows(ast.PromCall("count_over_time", arguments))
                missing = np.logical_not(counted.present.any(axis=0))
                return self._single(absent_labels(inner), np.ones(len(self.times)), missing)
            case (("sort" | "sort_desc"), (inner,)):
                found = merged(self._vector(inner))
                return sorted_rows(found, descending=name == "sort_desc") if found.labels else found
            case "histogram_quantile", (wanted, inner):
                return histogram_quantile(self._scalar(wanted), self._vector(inner))
            case (("label_replace" | "label_join"), (inner, *texts)):
                relabel = label_replaced if name == "label_replace" else label_joined
                return relabel(self._vector(inner), [each.value for each in texts if isinstance(each, ast.TextNode)])
        raise InvalidSql(f"the function {name} is not supported")

    def _single(self, labels: dict[str, str], values: Floats, present: Bools) -> SeriesVector:
        return merged(SeriesVector([labels], values[None, :], present[None, :]))

    def _over_windows(self, node: ast.PromCall) -> SeriesVector:
        parameter, ranged = np.zeros(len(self.times)), node.arguments[0]
        if node.name in _PARAMETER:
            position = _PARAMETER[node.name]
            ranged, parameter = node.arguments[1 - position], self._scalar(node.arguments[position])
        if not isinstance(ranged, ast.Selector | ast.Subquery):
            raise InvalidSql(f"{node.name}() takes a range such as cpu[5m]")
        series, starts, ends = self._range(ranged)
        self._check_cells(len(series))
        # The prediction is counted from the time of the result, even if the range is shifted.
        if node.name == "predict_linear":
            parameter = parameter + (self.times - ends) / 1000
        function = WINDOW_FUNCTIONS[node.name]
        values, present = over_windows(series, starts, ends, function, parameter, self.check)
        named = node.name == "last_over_time"
        labels = [each.labels if named else without(each.labels, (NAME,)) for each in series]
        return merged(SeriesVector(labels, values, present))

    def _numbers(self, node: ast.PromCall) -> SeriesVector:
        inner, *scalars = node.arguments
        vector, numbers = self._vector(inner), [self._scalar(each) for each in scalars]
        values, present = NUMBER_FUNCTIONS[node.name](vector.values, *numbers), vector.present
        if node.name == "clamp":
            present = present & ~(numbers[1] < numbers[0])
        return SeriesVector(vector.labels, values, present).without_name()

    def _time_part(self, node: ast.PromCall) -> SeriesVector:
        part = TIME_FUNCTIONS[node.name]
        if not node.arguments:
            return self._single({}, part(self.times / 1000), np.ones(len(self.times), np.bool_))
        vector = self._vector(node.arguments[0])
        return SeriesVector(vector.labels, part(vector.values), vector.present).without_name()

    def _check_cells(self, series: int) -> None:
        """Raise QueryLimitExceeded if a vector of this many series is too large."""
        if series * len(self.times) > limits.PROMQL_CELLS_MAX:
            raise self._too_many(f"{series:,} series at {len(self.times):,} times")

    def _too_many(self, what: str) -> QueryLimitExceeded:
        most = f"{limits.PROMQL_CELLS_MAX:,} values"
        return QueryLimitExceeded(
            f"the query computes {what} at once, more than {most}; select fewer series, or take a longer step", "memory"
        )
