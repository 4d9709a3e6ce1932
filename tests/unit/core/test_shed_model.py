"""Load shedding held to a model: which part is kept, which events these are, and what estimates are worth, computed over all
samples that could have been kept instead of some that were drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.core import sample_estimates
from anabranch.core.sample_estimates import Z, t_quantile
from anabranch.core.shed_rule import KEEP_RATE_MIN, ShedRule, draws

LIMITS = st.floats(min_value=0, max_value=1e300, exclude_min=True)
RULES = st.builds(ShedRule, st.sampled_from(["lag", "rate"]), LIMITS) | st.just(ShedRule("never"))
RATES = st.sampled_from([1.0, 0.9, 0.5, 0.3333, 0.1, 0.01])
EVENTS = st.lists(st.tuples(st.integers(-9, 9), RATES), max_size=7)
"""The values of a window's events, each with the chance with which it is kept."""


# the decision


@given(RULES)
@example(ShedRule("lag", 1e-07))
@example(ShedRule("rate", 1e17))
def test_any_rule_is_read_again_from_its_own_text(rule: ShedRule) -> None:
    assert ShedRule.parse(str(rule)) == rule


@given(RULES, st.lists(st.floats(0, 1e300), max_size=20))
def test_over_any_loads_the_part_is_the_limit_by_the_load(rule: ShedRule, loads: list[float]) -> None:
    for load in (*loads, rule.limit, math.nextafter(rule.limit, math.inf)):
        rate = rule.keep_rate(load)
        if rule.by == "never" or load <= rule.limit:
            assert rate == 1
            continue
        exact = Fraction(rule.limit) / Fraction(load)
        if exact < Fraction(KEEP_RATE_MIN):
            assert rate == KEEP_RATE_MIN
        else:  # four digits
            assert abs(Fraction(rate) - exact) <= exact * Fraction(1, 2_000) * Fraction(1_000_001, 1_000_000)
        assert float(repr(rate)) == rate
    ordered = [rule.keep_rate(load) for load in sorted(loads)]
    assert ordered == sorted(ordered, reverse=True)


# the choice


def number(segment: int, offset: int) -> float:
    """The number of an event, by whole numbers of any size."""
    words = 1 << 64

    def mixed(value: int) -> int:
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % words
        value = (value ^ value >> 27) * 0x94D049BB133111EB % words
        return value ^ value >> 31

    return (mixed((offset + mixed((segment + 1) % words)) % words) >> 11) / (1 << 53)


@given(
    st.integers(0, (1 << 63) - 1),
    st.lists(st.integers(0, (1 << 62)), unique=True, max_size=30),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_what_is_kept_is_a_matter_of_segment_and_offset_alone(
    segment: int, offsets: list[int], rate: float, other: float
) -> None:
    together = draws(segment, np.array(offsets, np.int64))
    assert together.tolist() == [number(segment, offset) for offset in offsets]
    low, high = sorted((rate, other))
    assert set(np.flatnonzero(together < low)) <= set(np.flatnonzero(together < high))
    assert (together < 1).all()


# estimates, over all samples


def samples(events: Sequence[tuple[int, float]]) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:  # type: ignore[type-arg]
    """Every part of the events that may be kept: its chance, its values and their weights."""
    values = np.array([value for value, _ in events], np.float64)
    rates = np.array([rate for _, rate in events], np.float64)
    for choice in product([True, False], repeat=len(events)):
        kept = np.array(choice, np.bool_)
        chance = float(np.prod(np.where(kept, rates, 1 - rates)))
        if chance:
            yield chance, values[kept], 1 / rates[kept]


def variance_of(error: float, magnitude: float) -> float:
    """The variance that a total's error stands for: error² = Z² · variance · (1 + error / magnitude), with the magnitude of
    what was not kept for certain."""
    return error**2 / (Z**2 * (1 + error / magnitude)) if error else 0.0


@settings(max_examples=60)
@given(EVENTS)
def test_totals_are_right_on_average_and_so_are_their_variances(events: list[tuple[int, float]]) -> None:
    size = total = variance = variance_of_size = 0.0
    for chance, values, weights in samples(events):
        counted = sample_estimates.total(np.ones_like(values), weights)
        summed = sample_estimates.total(values, weights)
        assert counted.error is not None and summed.error is not None
        size += chance * counted.value
        total += chance * summed.value
        variance_of_size += chance * variance_of(counted.error, float(weights[weights > 1].sum()))
        variance += chance * variance_of(summed.error, float((weights * abs(values))[weights > 1].sum()))
    assert size == pytest.approx(len(events))
    assert total == pytest.approx(sum(value for value, _ in events), abs=1e-9)
    assert variance_of_size == pytest.approx(sum((1 - rate) / rate for _, rate in events), abs=1e-9)
    assert variance == pytest.approx(sum(value**2 * (1 - rate) / rate for value, rate in events), abs=1e-9)


@settings(max_examples=60)
@given(EVENTS)
def test_a_count_is_the_whole_number_nearest_to_the_total_and_its_interval_holds_that_of_the_total(
    events: list[tuple[int, float]],
) -> None:
    for _, _, weights in samples(events):
        found, total = sample_estimates.count(weights), sample_estimates.total(np.ones_like(weights), weights)
        assert found.error is not None and total.error is not None
        assert found.value == int(found.value) and abs(found.value - total.value) <= 0.5
        assert (found.error == 0) == (not (weights > 1).any())
        assert found.error == 0 or found.error >= abs(found.value - total.value) + total.error - 1e-9


@settings(max_examples=60)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=7), RATES)
def test_an_average_of_equal_chances_is_right_on_average_and_so_is_its_variance(values: list[int], rate: float) -> None:
    of_size: dict[int, list[tuple[float, float, float | None]]] = {}
    for chance, kept, weights in samples([(value, rate) for value in values]):
        if len(kept):
            of_size.setdefault(len(kept), []).append((chance, *sample_estimates.average(kept, weights)))
    spread = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    for size, found in of_size.items():
        assert np.mean([mean for _, mean, _ in found]) == pytest.approx(np.mean(values))
        errors = [error for _, _, error in found]
        if rate == 1:
            assert errors == [0.0]
        elif size == 1:
            assert set(errors) == {None}
        else:
            squares = [(error / t_quantile(size - 1)) ** 2 for error in errors if error is not None]
            assert len(squares) == len(errors)
            # What is expected to be missing takes the place of what is missing in this sample.
            assert np.mean(squares) == pytest.approx((1 - rate) * spread / size, abs=1e-9)
            missing = float(np.var([mean for _, mean, _ in found]))
            assert missing == pytest.approx((1 - size / len(values)) * spread / size, abs=1e-9)


@settings(max_examples=60)
@given(EVENTS, st.integers(-9, 9), st.sampled_from([-2.0, 0.5, 3.0]))
def test_an_average_of_any_chances_moves_and_grows_with_its_values(
    events: list[tuple[int, float]], shift: int, factor: float
) -> None:
    for _, values, weights in samples(events):
        if len(values):
            found = sample_estimates.average(values, weights)
            moved = sample_estimates.average(values * factor + shift, weights)
            assert moved.value == pytest.approx(found.value * factor + shift, abs=1e-9)
            assert (moved.error is None) == (found.error is None)
            assert (
                moved.error is None
                or found.error is None
                or moved.error == pytest.approx(found.error * abs(factor), abs=1e-6)
            )
            assert min(values) - 1e-9 <= found.value <= max(values) + 1e-9


@settings(max_examples=60)
@given(st.lists(st.integers(-1_000, 1_000), max_size=20))
def test_what_is_kept_whole_is_exact(values: list[int]) -> None:
    kept, weights = np.array(values, np.float64), np.ones(len(values))
    assert sample_estimates.count(weights) == (len(values), 0)
    assert sample_estimates.total(kept, weights) == (sum(values), 0)
    if values:
        assert sample_estimates.average(kept, weights) == (pytest.approx(sum(values) / len(values)), 0)


# intervals, by the chances of all numbers of kept events

SIZES = (*range(1, 61), 80, 150, 400, 1_000)
COVERED_MIN = 0.89  # near 95 %, where one event more or less weighs much: of 11 with the rate 0.95
COVERED_MEAN = 0.95


def binomial(size: int, rate: float) -> list[float]:
    """The chance of each number of kept events."""
    if rate == 1:
        return [0.0] * size + [1.0]
    logs = [
        math.lgamma(size + 1) - math.lgamma(kept + 1) - math.lgamma(size - kept + 1)
        + kept * math.log(rate) + (size - kept) * math.log1p(-rate)
        for kept in range(size + 1)
    ]  # fmt: skip
    return [math.exp(each) for each in logs]


@pytest.mark.parametrize("rate", [1.0, 0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.25, 0.1, 0.01])
@pytest.mark.parametrize(("others", "certain"), [(0, 0), (3, 0), (0, 1_000)])
def test_intervals_of_counts_hold_the_true_count_of_nearly_all_windows_of_any_size(
    rate: float, others: int, certain: int
) -> None:
    """With other kept events, which have no value, a window also has a result if none with a value was kept. With events
    that were kept for certain too, but then nothing tells of the others."""
    covered = []
    beside = np.full(others, 1 / rate)
    for size in SIZES:
        chances = binomial(size, rate)
        held = known = 0.0
        for kept, chance in enumerate(chances):
            if kept or others:
                found = sample_estimates.count(np.r_[np.full(kept, 1 / rate), np.ones(certain)], beside)
                assert found.error is not None
                known += chance
                held += chance * (abs(found.value - certain - size) <= found.error + 1e-9)
        covered.append(held / known)
    assert min(covered) >= COVERED_MIN, SIZES[int(np.argmin(covered))]
    assert np.mean(covered) >= COVERED_MEAN


@given(st.integers(1, 20), RATES)
def test_a_count_of_which_no_value_was_kept_is_not_certain_unless_all_events_were_read(
    others: int, rate: float
) -> None:
    found = sample_estimates.count(np.empty(0), np.full(others, 1 / rate))
    assert found.value == 0
    assert found.error == pytest.approx(0 if rate == 1 else Z**2 * (1 / rate - 1) + 0.5)
    assert sample_estimates.count(np.empty(0)) == (0, 0)
