"""Aggregations: `sum`, `topk` and the like, of the series of a vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from anabranch.errors import InvalidSql
from anabranch.query.promql import syntax as ast
from anabranch.query.promql.vectors import (
    NAME,
    Bools,
    Floats,
    Integers,
    Key,
    Labels,
    SeriesVector,
    merged,
    number_text,
    only,
    rows_by,
    without,
)
from anabranch.query.promql.windows import between

_INTEGERS_MAX: Final = 2.0**63


def aggregated(node: ast.Aggregation, vector: SeriesVector, parameter: Floats | str | None) -> SeriesVector:
    """The result of an aggregation. `parameter` is its first argument, if it has one. Raises InvalidSql."""
    vector = merged(vector)
    if not vector.labels:
        return vector
    groups = rows_by(vector.labels, partial(_group, node))
    match node.name, parameter:
        case "count_values", str() as label:
            return _count_values(vector, groups, label)
        case (("topk" | "bottomk"), np.ndarray() as most):
            return _top_series(vector, list(groups.values()), most, largest=node.name == "topk")
        case "quantile", np.ndarray() as wanted:
            found = [_quantile(vector.values[rows], vector.present[rows], wanted) for rows in groups.values()]
            present = [vector.present[rows].any(axis=0) for rows in groups.values()]
            return SeriesVector([dict(key) for key in groups], np.array(found), np.array(present))
    if node.name not in _REDUCERS:
        raise InvalidSql(f"the aggregation {node.name} is not supported")
    order = np.concatenate(list(groups.values()))
    starts = np.cumsum([0, *(len(rows) for rows in groups.values())])[:-1]
    values, present = vector.values[order], vector.present[order]
    counts = np.add.reduceat(present.astype(np.int64), starts, axis=0)
    result = _REDUCERS[node.name](values, present, starts, counts)
    return SeriesVector([dict(key) for key in groups], result, counts > 0)


def _group(node: ast.Aggregation, labels: Labels) -> Labels:
    return without(labels, (*node.labels, NAME)) if node.without else only(labels, node.labels)


def _sum(values: Floats, present: Bools, starts: Integers, _: Integers) -> Floats:
    found: Floats = np.add.reduceat(np.where(present, values, 0.0), starts, axis=0)
    return found


def _mean(values: Floats, present: Bools, starts: Integers, counts: Integers) -> Floats:
    return _sum(values, present, starts, counts) / counts


def _variance(values: Floats, present: Bools, starts: Integers, counts: Integers) -> Floats:
    sizes = np.diff([*starts, len(values)])
    difference = values - np.repeat(_mean(values, present, starts, counts), sizes, axis=0)
    return _mean(difference * difference, present, starts, counts)


def _extreme(largest: bool) -> Callable[[Floats, Bools, Integers, Integers], Floats]:
    def found(values: Floats, present: Bools, starts: Integers, _: Integers) -> Floats:
        pick = np.fmax if largest else np.fmin  # NaN only if there is no number
        result: Floats = pick.reduceat(np.where(present, values, np.nan), starts, axis=0)
        return result

    return found


_REDUCERS: Final[dict[str, Callable[[Floats, Bools, Integers, Integers], Floats]]] = {
    "sum": _sum,
    "avg": _mean,
    "count": lambda values, present, starts, counts: counts.astype(np.float64),
    "group": lambda values, present, starts, counts: np.ones(counts.shape),
    "min": _extreme(largest=False),
    "max": _extreme(largest=True),
    "stdvar": _variance,
    "stddev": lambda *arguments: np.sqrt(_variance(*arguments)),
}


def _quantile(values: Floats, present: Bools, wanted: Floats) -> Floats:
    kind = np.where(present, np.where(np.isnan(values), 0, 1), 2)  # NaN first, absent values last
    order = np.lexsort((values, kind), axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    columns = np.arange(values.shape[1])
    return between(wanted, present.sum(axis=0), lambda rank: ranked[rank, columns])


def _top_series(vector: SeriesVector, groups: list[list[int]], most: Floats, *, largest: bool) -> SeriesVector:
    """The `most` largest or smallest series of each group, with their own labels. Series are in the order of their
    ranks at the first time."""
    if not (np.abs(most) < _INTEGERS_MAX).all():
        raise InvalidSql(f"Scalar value {number_text(float(most[0]))} overflows int64")
    present = vector.present.copy()
    ordered: list[int] = []
    for rows in groups:
        values = -vector.values[rows] if largest else vector.values[rows]
        kind = np.where(vector.present[rows], np.where(np.isnan(values), 1, 0), 2)
        order = np.lexsort((values, kind), axis=0)
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(len(rows))[:, None], axis=0)
        present[rows] &= ranks < most.astype(np.int64)
        ordered += [rows[row] for row in order[:, 0]]
    return merged(SeriesVector(vector.labels, vector.values, present).taken(ordered))


def _count_values(vector: SeriesVector, groups: dict[Key, list[int]], label: str) -> SeriesVector:
    """For each value in a group, the number of series that have it, with the value as a label."""
    labels, values, present = [], [], []
    for key, rows in groups.items():
        own, there = vector.values[rows], vector.present[rows]
        for value in np.unique(own[there]).tolist():
            equal = there & ((own == value) | (np.isnan(own) & (value != value)))
            labels.append({**dict(key), label: number_text(value)})
            values.append(equal.sum(axis=0).astype(np.float64))
            present.append(equal.any(axis=0))
    if not labels:
        return SeriesVector.empty(vector.values.shape[1])
    return SeriesVector(labels, np.array(values), np.array(present))
