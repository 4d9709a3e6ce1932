"""Keeping a consumer to a rate."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.pace import STEP_S, Pace
from anabranch.errors import InvalidArgument
from anabranch.model.rate import Rate


def taken(pace: Pace, seconds: float, *, start: float = 0.0, row_bytes: int = 10, rows: int = 1_000) -> int:
    """How many rows a consumer gets who takes them as soon as it may."""
    now, total = start, 0
    while now < start + seconds:
        if wait_s := pace.wait_s(now):
            now += wait_s
        else:
            total += pace.take(rows, rows * row_bytes)
    return total


@pytest.mark.parametrize("rate", [0.5, 3, 10, 1_000, 123_456.7])
def test_over_a_long_time_the_rate_is_kept(rate: float) -> None:
    assert taken(Pace(Rate(events_per_s=rate), 0.0), 200.0) == pytest.approx(rate * 200, rel=0.02, abs=2)


def test_bytes_are_limited_as_well_and_the_lower_limit_counts() -> None:
    assert taken(Pace(Rate(bytes_per_s=5_000), 0.0), 100.0) == pytest.approx(50_000, rel=0.02)
    assert taken(Pace(Rate(events_per_s=100, bytes_per_s="5kB"), 0.0), 100.0) == pytest.approx(10_000, rel=0.02)


def test_a_pause_is_not_made_up_for() -> None:
    pace = Pace(Rate(events_per_s=100), 0.0)
    assert taken(pace, STEP_S, start=3_600.0) <= 100 * STEP_S * 2 + 1


def test_a_changed_rate_counts_at_once() -> None:
    pace = Pace(Rate(events_per_s=1), 0.0)
    pace.take(1_000, 0)
    assert pace.wait_s(0.0) > 0.5
    pace.change(Rate(events_per_s=1_000), 0.0)
    assert pace.wait_s(0.0) < 0.01
    assert taken(pace, 10.0) == pytest.approx(10_000, rel=0.02)
    pace.change(Rate(bytes_per_s=100), 10.0)
    assert taken(pace, 100.0, start=10.0) == pytest.approx(1_000, rel=0.02)


@pytest.mark.parametrize(
    "given", [{}, {"events_per_s": 0}, {"bytes_per_s": -1}, {"events_per_s": float("nan")}, {"events_per_s": True}]
)
def test_a_rate_is_above_zero(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"events_per_s|bytes_per_s"):
        Rate(**given)
