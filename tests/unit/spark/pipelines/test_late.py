"""Which events are late, compared with the definition of a window."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.pipelines.late_commit import is_late
from anabranch.spark.pipelines.windows.spans import StatementWindow, first_ends


@st.composite
def windows(draw: st.DrawFn) -> StatementWindow:
    size = draw(st.integers(1, 30))
    slide = draw(st.integers(1, size))
    return StatementWindow("at", size, slide, draw(st.integers(1 - slide, slide - 1)))


def ends_by_definition(time: int, window: StatementWindow) -> list[int]:
    """The ends of all windows [start, start + size) that hold `time`, with start ≡ start_us modulo the slide."""
    starts = range(time - window.size_us + 1, time + 1)
    return [start + window.size_us for start in starts if (start - window.start_us) % window.slide_us == 0]


@given(st.integers(-100, 100), windows())
def test_the_first_end_is_the_smallest_of_all_windows_that_hold_the_event(time: int, window: StatementWindow) -> None:
    assert first_ends(np.array([time]), window).tolist() == [min(ends_by_definition(time, window))]


@given(st.lists(st.integers(-100, 100)), st.lists(windows(), min_size=1, max_size=3), st.integers(-50, 50))
def test_an_event_is_late_when_any_of_its_windows_has_ended(
    times: list[int], several: list[StatementWindow], watermark: int
) -> None:
    expected = [
        any(end <= watermark for window in several for end in ends_by_definition(time, window)) for time in times
    ]
    assert is_late(np.array(times, dtype=np.int64), several, watermark).tolist() == expected


def test_a_session_ends_one_gap_after_its_only_event() -> None:
    assert is_late(np.array([4, 5, 6]), [StatementWindow("at", 5, 0)], 10).tolist() == [True, True, False]


def test_without_windows_the_events_own_time_counts() -> None:
    assert is_late(np.array([9, 10, 11]), [], 10).tolist() == [True, True, False]
