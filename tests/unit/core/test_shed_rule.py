"""When a query sheds load, and which events it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.core.shed_rule import KEEP_RATE_MIN, ShedRule, draws
from anabranch.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("lag > 10 s", ShedRule("lag", 10)),
        ("LAG>2 minutes", ShedRule("lag", 120)),
        ("lag > 0.5 seconds", ShedRule("lag", 0.5)),
        ("rate > 50000", ShedRule("rate", 50_000)),
        (" never ", ShedRule("never")),
    ],
)
def test_a_rule_is_read_from_its_text_and_from_its_own(text: str, rule: ShedRule) -> None:
    assert ShedRule.parse(text) == rule
    assert ShedRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "text", ["", "lag", "lag > 10", "rate > 10 s", "lag < 10 s", "lag > 0 s", "size > 3", "lag > x s"]
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"lag > 10 s|above 0"):
        ShedRule.parse(text)


def test_the_keep_rate_falls_in_proportion_to_the_overload() -> None:
    rule = ShedRule("lag", 10)
    assert [rule.keep_rate(load) for load in (0, 10, 20, 40, 30)] == [1, 1, 0.5, 0.25, 0.3333]
    assert rule.keep_rate(1e9) == KEEP_RATE_MIN
    assert ShedRule("never").keep_rate(1e9) == 1
    rates = [rule.keep_rate(load) for load in np.linspace(1, 5_000, 997)]
    assert rates == sorted(rates, reverse=True)
    assert all(float(repr(rate)) == rate for rate in rates)


def test_events_are_kept_evenly_in_every_segment_and_stretch() -> None:
    for segment in (0, 1, 2, 1 << 32, (1 << 63) - 1):
        numbers = draws(segment, np.arange(10_000_000, 10_200_000))
        assert numbers.min() >= 0 and numbers.max() < 1
        for rate in (0.01, 0.3, 0.9):
            kept = (numbers < rate).reshape(20, -1).mean(axis=1)  # of 10,000 each
            assert abs(kept - rate).max() < 5 * np.sqrt(rate * (1 - rate) / 10_000)
    one, other = (draws(segment, np.arange(100_000)) for segment in (3, 4))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


def test_an_event_has_the_same_number_alone_and_among_others_for_ever() -> None:
    together = draws(5, np.arange(100))
    assert [draws(5, np.array([each]))[0] for each in range(100)] == together.tolist()
    # A checkpoint of an earlier version is replayed with these.
    assert together[:3].tolist() == [0.1895938546420859, 0.9435765639466576, 0.6625403188621467]
