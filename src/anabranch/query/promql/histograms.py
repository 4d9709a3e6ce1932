"""`histogram_quantile`, of the buckets of classic histograms. Source: `promql/quantile.go` of Prometheus 2.42."""

from __future__ import annotations

import numpy as np

from anabranch.query.promql.vectors import NAME, Bools, Floats, Key, SeriesVector, key_of, merged, without


def histogram_quantile(wanted: Floats, vector: SeriesVector) -> SeriesVector:
    """The quantile of each histogram, between the ends of its bucket. Series without a number as `le` are left out."""
    vector = merged(vector)
    groups: dict[Key, list[tuple[float, int]]] = {}
    for row, labels in enumerate(vector.labels):
        bound = _bound(labels.get("le", ""))
        if bound is not None:
            groups.setdefault(key_of(without(labels, (NAME, "le"))), []).append((bound, row))
    if not groups:
        return SeriesVector.empty(len(wanted))
    values, present = [], []
    for buckets in groups.values():
        bounds, rows = [list(each) for each in zip(*sorted(buckets), strict=True)]
        there = vector.present[rows]
        values.append(_quantiles(wanted, np.array(bounds), vector.values[rows], there))
        present.append(there.any(axis=0))
    return SeriesVector([dict(key) for key in groups], np.array(values), np.array(present))


def _bound(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quantiles(wanted: Floats, bounds: Floats, counts: Floats, present: Bools) -> Floats:
    """The quantile at each time. Times with the same buckets are computed together."""
    found: Floats = np.full(len(wanted), np.nan)
    patterns, which = np.unique(present, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        columns = np.flatnonzero(which.reshape(-1) == number)
        if pattern.any():
            found[columns] = _of_buckets(wanted[columns], bounds[pattern], counts[pattern][:, columns])
    found = np.where(wanted < 0, -np.inf, np.where(wanted > 1, np.inf, found))
    return np.where(np.isnan(wanted), np.nan, found)


def _of_buckets(wanted: Floats, bounds: Floats, counts: Floats) -> Floats:
    starts = np.flatnonzero(np.append(True, bounds[1:] != bounds[:-1]))
    highest = bounds[-1]
    bounds, counts = bounds[starts], np.add.reduceat(counts, starts, axis=0)
    counts = np.fmax.accumulate(counts, axis=0)  # rounding may have made a bucket smaller than the one below
    if not np.isposinf(highest) or len(bounds) < 2:
        return np.full(len(wanted), np.nan)
    columns = np.arange(len(wanted))
    rank = wanted * counts[-1]
    bucket = np.argmax(np.vstack([counts[:-1] >= rank, np.ones((1, len(wanted)), np.bool_)]), axis=0)
    below = np.maximum(bucket - 1, 0)
    start = np.where(bucket > 0, bounds[below], 0.0)
    before = np.where(bucket > 0, counts[below, columns], 0.0)
    end, own = bounds[bucket], counts[bucket, columns] - before
    found = start + (end - start) * ((rank - before) / own)
    found = np.where((bucket == 0) & (bounds[0] <= 0), bounds[0], found)
    found = np.where(bucket == len(bounds) - 1, bounds[-2], found)
    return np.where(counts[-1] == 0, np.nan, found)
