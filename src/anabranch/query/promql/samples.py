"""The samples and the labels that selectors select, from the streams that a caller may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.errors import QueryLimitExceeded
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.promql import syntax as ast
from anabranch.query.promql.metrics import Metric, metrics_of
from anabranch.query.promql.vectors import NAME, Key, Labels, SampledSeries, key_of


class MetricStreams(Protocol):
    """The streams of one scope that a caller may read."""

    def measurements(self) -> Sequence[Measurement]:
        """All of them."""
        ...

    def run(self, sql: str, measurement: Measurement) -> Iterable[pa.RecordBatch]:
        """The result of a query over a stream. Raises InvalidSql, QueryLimitExceeded."""
        ...


class Samples:
    """Selects samples. Repeated selectors of one query are read once."""

    def __init__(self, streams: MetricStreams) -> None:
        self._streams = streams
        self._metrics = list(metrics_of(streams.measurements()))
        self._found: dict[tuple[tuple[ast.LabelMatcher, ...], int, int], list[SampledSeries]] = {}
        self._count = 0

    def names(self) -> list[str]:
        """The names of metrics that are no column, in order."""
        return sorted({each.name for each in self._metrics if not each.named_by_column})

    def label_names(self) -> list[str]:
        """The labels that series may have, in order."""
        return sorted({NAME, *(label for each in self._metrics for label in each.labels)} if self._metrics else ())

    def select(self, matchers: tuple[ast.LabelMatcher, ...], first: int, last: int) -> list[SampledSeries]:
        """The series that match, in the order of their labels, with their samples from `first` to `last` (ms, inclusive).
        Raises QueryLimitExceeded, InvalidSql."""
        key = (matchers, first, last)
        if key not in self._found:
            found = [each for metric in self._metrics for each in self._series(metric, matchers, first, last)]
            self._found[key] = sorted(_joined(found), key=lambda each: key_of(each.labels))
        return self._found[key]

    def series(
        self, matchers: Sequence[ast.LabelMatcher], first: int, last: int, *, held_names: bool = False
    ) -> list[Labels]:
        """The labels of the series that match and have a sample from `first` to `last`. With `held_names`, only of the
        metrics whose names are in a column."""
        found: dict[Key, Labels] = {}
        for metric in self._metrics:
            if held_names and not metric.named_by_column:
                continue
            sql = metric.labels_sql(matchers, first, last)
            for batch in self._streams.run(sql, metric.measurement) if sql is not None else ():
                for labels in _labels(metric, batch):
                    found[key_of(labels)] = labels
                    if len(found) > limits.PROMQL_SERIES_MAX:
                        raise _too_many(f"{limits.PROMQL_SERIES_MAX:,} series")
        return [found[key] for key in sorted(found)]

    def _series(
        self, metric: Metric, matchers: Sequence[ast.LabelMatcher], first: int, last: int
    ) -> Iterator[SampledSeries]:
        most = limits.PROMQL_SAMPLES_MAX - self._count
        sql = metric.samples_sql(matchers, first, last, most + 1)
        for batch in self._streams.run(sql, metric.measurement) if sql is not None else ():
            at, values = batch.column("ts"), batch.column("vs")
            times = at.flatten().to_numpy(zero_copy_only=False) // 1000
            numbers = values.flatten().to_numpy(zero_copy_only=False)
            self._count += len(times)
            if self._count > limits.PROMQL_SAMPLES_MAX:
                raise _too_many(f"{limits.PROMQL_SAMPLES_MAX:,} samples")
            ends = np.cumsum(at.value_lengths().to_numpy(zero_copy_only=False)).tolist()
            for labels, start, stop in zip(_labels(metric, batch), [0, *ends[:-1]], ends, strict=True):
                yield _distinct(SampledSeries(labels, times[start:stop], numbers[start:stop]))


def _labels(metric: Metric, batch: pa.RecordBatch) -> Iterator[Labels]:
    own = {} if metric.named_by_column else {NAME: metric.name}
    names = list(metric.labels)
    columns = [batch.column(f"l{number}").to_pylist() for number in range(len(names))]
    for row in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
        yield {**own, **{name: value for name, value in zip(names, row, strict=True) if value}}


def _joined(found: list[SampledSeries]) -> Iterator[SampledSeries]:
    """Series of the same labels, which several streams may have, as one."""
    same: dict[Key, list[SampledSeries]] = {}
    for each in found:
        same.setdefault(key_of(each.labels), []).append(each)
    for series in same.values():
        if len(series) == 1:
            yield series[0]
            continue
        at = np.concatenate([each.at for each in series])
        order = np.argsort(at, kind="stable")
        values = np.concatenate([each.values for each in series])
        yield _distinct(SampledSeries(series[0].labels, at[order], values[order]))


def _distinct(series: SampledSeries) -> SampledSeries:
    """The last sample of each millisecond."""
    if len(series.at) < 2:
        return series
    kept = np.append(series.at[1:] != series.at[:-1], True)
    return series if kept.all() else SampledSeries(series.labels, series.at[kept], series.values[kept])


def _too_many(what: str) -> QueryLimitExceeded:
    return QueryLimitExceeded(
        f"the query needs more than {what}; select fewer series or a shorter time range", "memory"
    )
