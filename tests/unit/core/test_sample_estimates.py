"""Estimates from a sample, against the values of all events."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from anabranch.core import sample_estimates
from anabranch.core.sample_estimates import Estimate
from anabranch.core.shed_rule import draws

COVERED_MIN = 0.93


def holds(estimate: Estimate, true: float) -> bool:
    return estimate.error is None or abs(estimate.value - true) <= estimate.error + 1e-9


def values_of(kind: str, size: int, chance: np.random.Generator) -> np.ndarray:  # type: ignore[type-arg]
    if kind == "temperatures":
        return chance.normal(20, 5, size)
    return chance.normal(0, 5, size) if kind == "signed" else chance.exponential(3, size)


@pytest.mark.parametrize("kind", ["temperatures", "signed", "waits"])
def test_the_stated_intervals_hold_the_true_values_of_nearly_all_windows(kind: str) -> None:
    chance = np.random.default_rng(7)
    held: dict[str, list[bool]] = {"count": [], "total": [], "average": []}
    offset = 0
    # Windows in which a sample of this part has at least some 20 events on average.
    for size, rate in product((50, 200, 1_000, 4_000), (0.8, 0.5, 0.1, 0.02)):
        if size * rate < 20:
            continue
        for segment in range(200):
            values = values_of(kind, size, chance)
            kept = values[draws(segment, np.arange(offset, offset + size)) < rate]
            offset += size
            weights = np.full(len(kept), 1 / rate)
            held["count"].append(holds(sample_estimates.count(weights), size))
            held["total"].append(holds(sample_estimates.total(kept, weights), values.sum()))
            held["average"].append(holds(sample_estimates.average(kept, weights), values.mean()))
    for name, each in held.items():
        assert len(each) >= 2_000
        assert np.mean(each) >= COVERED_MIN, (name, np.mean(each))


def test_estimates_are_right_on_average_also_with_weights_that_differ() -> None:
    chance = np.random.default_rng(11)
    values = chance.exponential(10, 400)
    rates = np.where(values > 20, 1.0, 0.2)  # the great ones are always kept
    found = []
    for segment in range(3_000):
        kept = draws(segment, np.arange(400)) < rates
        weights = 1 / rates[kept]
        found.append(
            (
                sample_estimates.count(weights).value,
                sample_estimates.total(values[kept], weights).value,
                sample_estimates.average(values[kept], weights).value,
            )
        )
    means = np.mean(found, axis=0)
    assert means == pytest.approx([400, values.sum(), values.mean()], rel=0.01)


def test_without_shedding_estimates_are_exact() -> None:
    values, weights = np.array([1.0, -2.0, 7.5]), np.ones(3)
    assert sample_estimates.count(weights) == (3, 0)
    assert sample_estimates.total(values, weights) == (6.5, 0)
    assert sample_estimates.average(values, weights) == (pytest.approx(6.5 / 3), 0)
    assert sample_estimates.count(np.empty(0)) == (0, 0)


def test_one_event_that_stands_for_others_has_no_error_of_an_average() -> None:
    assert sample_estimates.average(np.array([4.0]), np.array([2.0])) == (4.0, None)
    # A count has one: this event may have been the only one.
    found = sample_estimates.count(np.array([100.0]))
    assert found.error is not None and found.value - found.error <= 1
