"""Dividing a commit: the parts are read through in step, and make no event late that was in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core import divide
from anabranch.core.divide import Times, evenly_spread, look_ahead, take_earliest
from anabranch.model.ids import SegmentId

Part = dict[SegmentId, range]


def parts(commit: Mapping[SegmentId, Sequence[int]], events_max: int, *, timed: bool) -> Iterator[Part]:
    """The offsets that each part holds of each segment, decided as the source of Spark decides them."""
    at = dict.fromkeys(commit, 0)
    while any(at[s] < len(times) for s, times in commit.items()):
        left = {s: len(times) - at[s] for s, times in commit.items() if at[s] < len(times)}
        windows = look_ahead(left, events_max)
        seen: dict[SegmentId, Times] = {
            s: np.array(commit[s][at[s] : at[s] + count], np.int64)
            if timed
            else evenly_spread(at[s], at[s] + count, len(commit[s]))
            for s, count in windows.items()
        }
        taken = take_earliest(seen, [s for s in windows if windows[s] < left[s]], events_max)
        assert 1 <= sum(taken.values()) <= events_max
        yield {s: range(at[s], at[s] + count) for s, count in taken.items() if count}
        for segment, count in taken.items():
            at[segment] += count


def late(commit: Mapping[SegmentId, Sequence[int]], events_max: int, *, delay: int) -> int:
    """How many events come behind the watermark: Spark drops in a batch what is older than that of the batches before."""
    newest, found = None, 0
    for part in parts(commit, events_max, timed=True):
        times = [commit[segment][offset] for segment, offsets in part.items() for offset in offsets]
        if newest is not None:
            found += sum(time < newest - delay for time in times)
        newest = max(times) if newest is None else max(newest, *times)
    return found


@st.composite
def commits(draw: st.DrawFn, *, disorder: int = 0) -> dict[SegmentId, list[int]]:
    """A commit of events that come every tick but for so much `disorder`, over segments of any share, that may begin and
    end anywhere in it."""
    size = draw(st.integers(1, 400))
    segments = [SegmentId(0, number) for number in range(draw(st.integers(1, 6)))]
    weights = draw(st.lists(st.integers(1, 60), min_size=len(segments), max_size=len(segments)))
    begins = draw(st.lists(st.integers(0, size), min_size=len(segments), max_size=len(segments)))
    chance = draw(st.randoms(use_true_random=False))
    commit: dict[SegmentId, list[int]] = {segment: [] for segment in segments}
    for time in range(size):
        there = [i for i in range(len(segments)) if begins[i] <= time] or [0]
        (chosen,) = chance.choices(there, [weights[i] for i in there])
        commit[segments[chosen]].append(time - chance.randint(0, disorder))
    return {segment: times for segment, times in commit.items() if times}


@settings(deadline=None)
@given(commits(), st.integers(1, 150), st.sampled_from([0, 3, 1_024]))
def test_no_event_of_a_commit_in_order_is_late_however_it_is_divided(
    commit: dict[SegmentId, list[int]], events_max: int, ahead: int
) -> None:
    before, divide.LOOK_AHEAD_EVENTS = divide.LOOK_AHEAD_EVENTS, ahead
    try:
        assert late(commit, events_max, delay=0) == 0
    finally:
        divide.LOOK_AHEAD_EVENTS = before


@settings(deadline=None)
@given(commits(disorder=20), st.integers(1, 150))
def test_a_delay_as_long_as_the_disorder_is_enough(commit: dict[SegmentId, list[int]], events_max: int) -> None:
    assert late(commit, events_max, delay=20) == 0


@settings(deadline=None)
@given(commits(), st.integers(1, 150), st.booleans())
def test_every_event_is_in_one_part_in_the_order_of_its_segment(
    commit: dict[SegmentId, list[int]], events_max: int, timed: bool
) -> None:
    read: dict[SegmentId, list[int]] = {segment: [] for segment in commit}
    for part in parts(commit, events_max, timed=timed):
        for segment, offsets in part.items():
            read[segment] += offsets
    assert read == {segment: list(range(len(times))) for segment, times in commit.items()}


@settings(deadline=None)
@given(commits(), st.integers(1, 150))
def test_without_event_times_each_segment_gives_its_share(commit: dict[SegmentId, list[int]], events_max: int) -> None:
    size = sum(map(len, commit.values()))
    at, done = dict.fromkeys(commit, 0), 0
    for part in parts(commit, events_max, timed=False):
        for segment, offsets in part.items():
            at[segment] += len(offsets)
            done += len(offsets)
        # Between two events of its own, a segment may wait for its next; and the others for one of theirs.
        for segment, times in commit.items():
            share = len(times) * done / size
            assert abs(at[segment] - share) <= 1 + len(commit) * len(times) / size


def test_what_was_not_looked_at_is_not_overtaken() -> None:
    one, two = SegmentId(0, 0), SegmentId(0, 1)
    times: dict[SegmentId, Times] = {one: np.array([1, 2]), two: np.array([1, 5, 6])}
    assert take_earliest(times, [], 4) == {one: 2, two: 2}
    assert take_earliest(times, [one], 4) == {one: 2, two: 1}
    assert take_earliest({}, [], 4) == {}


def test_an_event_counts_as_of_the_newest_time_before_it() -> None:
    one, two = SegmentId(0, 0), SegmentId(0, 1)
    times: dict[SegmentId, Times] = {one: np.array([1, 9, 2]), two: np.array([3, 4])}
    assert take_earliest(times, [], 3) == {one: 1, two: 2}
