"""Durations and sizes as text."""

from __future__ import annotations

import pytest

from anabranch.cli.stream_places import parse_place
from anabranch.model.amounts import UNITS_US, duration_text, size_text, to_duration
from anabranch.model.ids import Micros


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (10_000_000_000, "10.0 GB"),
        (3e15, "3000.0 TB"),
    ],
)
def test_a_size_is_shown_in_powers_of_a_thousand(count: float, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize("text", ["7d", "12h", "30m", "90s", "1.5s", "14d", "10000001s", "100000.5s"])
def test_a_duration_is_shown_as_it_was_written(text: str) -> None:
    assert duration_text(to_duration(text)) == text


def test_a_duration_is_shown_in_its_largest_whole_unit() -> None:
    assert [duration_text(to_duration(each)) for each in ("2w", "48h", "60m", "250ms", "0s")] == [
        "14d",
        "2d",
        "1h",
        "0.25s",
        "0s",
    ]


def test_a_place_before_now_takes_every_unit_of_durations() -> None:
    now = Micros(10 * UNITS_US["w"])
    for unit, length in UNITS_US.items():
        assert parse_place(f"-2{unit}", now=now) == now - 2 * length
