"""Watermarks as pure decisions: the least of what writers noted, never back, and nobody idle holds it up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.core.watermarks import (
    TimeCodec,
    TimeState,
    TimeWindow,
    common_bounds,
    first_not_passed,
    leave,
    note,
    note_and_leave,
    status,
)
from anabranch.errors import CorruptStore, FormatTooNew, InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId

IDLE_US = 1_000


def tail(length: int) -> StreamCut:
    return StreamCut.of(StreamId(1), {SegmentId(0, 0): length})


def noted(state: TimeState, writer: str, time: int, length: int = 0, now: int = 0) -> TimeState:
    return note(state, writer, Micros(time), tail(length), Micros(now), idle_us=IDLE_US)


def time_of(state: TimeState) -> int | None:
    return None if state.watermark is None else state.watermark.time_us


def test_the_watermark_is_the_minimum_of_all_writers() -> None:
    state = noted(noted(TimeState(), "a", 10, 1), "b", 5, 2)
    assert time_of(state) == 10  # that of "a" stood before "b" was known of
    state = noted(noted(state, "b", 30, 3), "a", 20, 4)
    assert state.watermark is not None
    assert (state.watermark.time_us, state.watermark.cut) == (20, tail(4))


def test_the_watermark_does_not_wait_for_an_idle_writer() -> None:
    state = noted(noted(TimeState(), "a", 10, now=0), "b", 20, now=1)
    assert time_of(noted(state, "b", 30, now=IDLE_US - 1)) == 10
    state = noted(state, "b", 30, now=IDLE_US)
    assert (time_of(state), set(state.writers)) == (30, {"b"})


def test_an_idle_writer_is_reported_until_it_ends_returns_or_is_dropped() -> None:
    state = noted(noted(TimeState(), "a", 10, now=0), "b", 30, now=IDLE_US)

    def idle(state: TimeState, now: int) -> tuple[str, ...]:
        assert TimeCodec().decode(TimeCodec().encode(state)) == state
        return status(state, "s/a", None, Micros(now), idle_us=IDLE_US).idle

    assert idle(state, IDLE_US) == ("a",)
    assert idle(leave(state, "a", tail(1), Micros(IDLE_US), idle_us=IDLE_US), IDLE_US) == ()
    back = noted(state, "a", 5, now=IDLE_US + 1)  # it is as new, so it may begin where it likes
    assert idle(back, IDLE_US + 1) == () and time_of(back) == 30
    later = limits.IDLE_WRITERS_KEPT_US
    assert idle(noted(state, "b", 40, now=later - 1), later - 1) == ("a",)
    assert idle(noted(state, "b", 40, now=later), later) == ()
    for i in range(limits.IDLE_WRITERS_KEPT + 2):
        state = noted(state, f"w{i}", 50, now=2 * IDLE_US + i)
    state = noted(state, "b", 60, now=5 * IDLE_US)
    assert len(idle(state, 5 * IDLE_US)) == limits.IDLE_WRITERS_KEPT


def test_the_watermark_does_not_wait_for_an_ended_writer() -> None:
    state = noted(noted(TimeState(), "a", 10), "b", 20)
    state = leave(state, "a", tail(7), Micros(2), idle_us=IDLE_US)
    assert state.watermark is not None
    assert (state.watermark.time_us, state.watermark.cut) == (20, tail(7))
    assert leave(state, "unknown", tail(8), Micros(2), idle_us=IDLE_US) == state
    assert time_of(leave(state, "b", tail(8), Micros(2), idle_us=IDLE_US)) == 20


def test_notes_recorded_out_of_order_hide_no_event() -> None:
    # "b" saw the tail at 1; "a" then wrote up to 5 and noted that what follows is not older than 20.
    state = noted(noted(TimeState(), "b", 5, 1), "a", 20, 5)
    state = noted(state, "b", 30, 1)
    assert state.watermark is not None
    assert (state.watermark.time_us, state.watermark.cut) == (20, tail(5))
    scaled = StreamCut.of(StreamId(1), {SegmentId(1, 1): 0, SegmentId(1, 2): 0})
    state = note(state, "a", Micros(40), scaled, Micros(0), idle_us=IDLE_US)
    state = noted(state, "b", 40, 9)
    assert state.watermark is not None
    assert state.watermark.cut == scaled


def test_each_watermark_has_the_latest_noted_time() -> None:
    state = noted(noted(TimeState(), "a", 10), "b", 90)
    state = leave(state, "b", tail(1), Micros(0), idle_us=IDLE_US)
    state = noted(state, "a", 20)
    assert state.watermark is not None
    assert (state.watermark.time_us, state.watermark.latest_us) == (20, 90)  # "b" had written before the cut
    state = noted(state, "a", 30)
    assert state.watermark is not None
    assert state.watermark.latest_us == 30


def test_noting_and_leaving_does_not_hold_back_the_watermark() -> None:
    state = note_and_leave(TimeState(), "a", Micros(10), tail(1), Micros(0), idle_us=IDLE_US)
    assert (time_of(state), dict(state.writers)) == (10, {})
    state = note_and_leave(noted(state, "b", 20, 2), "a", Micros(90), tail(3), Micros(0), idle_us=IDLE_US)
    assert (time_of(state), set(state.writers)) == (20, {"b"})


def test_the_status_lists_idle_and_slow_writers() -> None:
    state = noted(noted(TimeState(), "a", 10, now=0), "b", 5, now=900)
    found = status(state, "s/a", Micros(70), Micros(1_000), idle_us=IDLE_US)
    assert [(each.writer, each.idle) for each in found.writers] == [("b", False), ("a", True)]
    assert (found.idle, found.lag_us, found.stalled_us) == (("a",), 60, 1_000)


def test_a_writer_can_not_go_back() -> None:
    with pytest.raises(InvalidArgument, match="expected a time of at least"):
        noted(noted(TimeState(), "a", 10), "a", 9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 400), st.booleans()), max_size=30))
def test_the_watermark_never_goes_back_and_never_passes_a_live_writer(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    state, now = TimeState(), 0
    for length, (writer, forward, passed, leaves) in enumerate(steps):
        before, now = state, now + passed
        if leaves:
            state = leave(state, writer, tail(length), Micros(now), idle_us=IDLE_US)
        else:
            known = before.writers.get(writer)
            state = noted(before, writer, (known.time_us if known else 0) + forward, length, now)
        if before.watermark is not None:
            assert state.watermark is not None
            assert state.watermark.time_us >= before.watermark.time_us
        if state.watermark != before.watermark:
            assert state.watermark is not None
            assert state.watermark.time_us == min(each.time_us for each in state.writers.values())
            assert state.watermark.cut == tail(length)
        assert TimeCodec().decode(TimeCodec().encode(state)) == state


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_first_that_is_not_passed_is_found(low: int, more: int, edge: int) -> None:
    assert first_not_passed(low, low + more, lambda each: each < edge) == min(max(low, edge), low + more)


def test_common_bounds_are_the_least_of_several_windows() -> None:
    one, other = TimeWindow(Micros(5), Micros(9)), TimeWindow(Micros(3), None)
    assert common_bounds([one, other]) == TimeWindow(Micros(3), None)
    assert common_bounds([]) == TimeWindow()


def test_invalid_watermarks_are_refused() -> None:
    with pytest.raises(CorruptStore):
        TimeCodec().decode(b"{}")
    with pytest.raises(FormatTooNew):
        TimeCodec().decode(b'{"format":2}')
