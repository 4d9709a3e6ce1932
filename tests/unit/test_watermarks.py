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
    first_beyond,
    least,
    leave,
    note,
    pass_by,
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
    return None if state.mark is None else state.mark.time_us


def test_the_least_of_all_writers_is_the_watermark() -> None:
    state = noted(noted(TimeState(), "a", 10, 1), "b", 5, 2)
    assert time_of(state) == 10  # that of "a" stood before "b" was known of
    state = noted(noted(state, "b", 30, 3), "a", 20, 4)
    assert state.mark is not None
    assert (state.mark.time_us, state.mark.cut) == (20, tail(4))


def test_a_writer_that_is_idle_is_waited_for_no_longer() -> None:
    state = noted(noted(TimeState(), "a", 10, now=0), "b", 20, now=1)
    assert time_of(noted(state, "b", 30, now=IDLE_US - 1)) == 10
    state = noted(state, "b", 30, now=IDLE_US)
    assert (time_of(state), set(state.writers)) == (30, {"b"})


def test_an_idle_writer_is_told_of_until_it_ends_comes_back_or_is_forgotten() -> None:
    state = noted(noted(TimeState(), "a", 10, now=0), "b", 30, now=IDLE_US)

    def idle(state: TimeState, now: int) -> tuple[str, ...]:
        assert TimeCodec().decode(TimeCodec().encode(state)) == state
        return status(state, "s/a", None, Micros(now), idle_us=IDLE_US).idle

    assert idle(state, IDLE_US) == ("a",)
    assert idle(leave(state, "a", tail(1), Micros(IDLE_US), idle_us=IDLE_US), IDLE_US) == ()
    back = noted(state, "a", 5, now=IDLE_US + 1)  # it is as new, so it may begin where it likes
    assert idle(back, IDLE_US + 1) == () and time_of(back) == 30
    later = limits.SILENT_WRITERS_KEPT_US
    assert idle(noted(state, "b", 40, now=later - 1), later - 1) == ("a",)
    assert idle(noted(state, "b", 40, now=later), later) == ()
    for i in range(limits.SILENT_WRITERS_KEPT + 2):
        state = noted(state, f"w{i}", 50, now=2 * IDLE_US + i)
    state = noted(state, "b", 60, now=5 * IDLE_US)
    assert len(idle(state, 5 * IDLE_US)) == limits.SILENT_WRITERS_KEPT


def test_a_writer_that_ends_is_waited_for_no_longer() -> None:
    state = noted(noted(TimeState(), "a", 10), "b", 20)
    state = leave(state, "a", tail(7), Micros(2), idle_us=IDLE_US)
    assert state.mark is not None
    assert (state.mark.time_us, state.mark.cut) == (20, tail(7))
    assert leave(state, "unknown", tail(8), Micros(2), idle_us=IDLE_US) == state
    assert time_of(leave(state, "b", tail(8), Micros(2), idle_us=IDLE_US)) == 20


def test_whoever_looked_at_the_tail_first_and_was_heard_second_hides_no_event() -> None:
    # "b" saw the tail at 1; "a" then wrote up to 5 and noted that what follows is not older than 20.
    state = noted(noted(TimeState(), "b", 5, 1), "a", 20, 5)
    state = noted(state, "b", 30, 1)
    assert state.mark is not None
    assert (state.mark.time_us, state.mark.cut) == (20, tail(5))
    scaled = StreamCut.of(StreamId(1), {SegmentId(1, 1): 0, SegmentId(1, 2): 0})
    state = note(state, "a", Micros(40), scaled, Micros(0), idle_us=IDLE_US)
    state = noted(state, "b", 40, 9)
    assert state.mark is not None
    assert state.mark.cut == scaled


def test_the_latest_time_noted_by_anybody_is_known_of_each_watermark() -> None:
    state = noted(noted(TimeState(), "a", 10), "b", 90)
    state = leave(state, "b", tail(1), Micros(0), idle_us=IDLE_US)
    state = noted(state, "a", 20)
    assert state.mark is not None
    assert (state.mark.time_us, state.mark.latest_us) == (20, 90)  # "b" had written before the cut
    state = noted(state, "a", 30)
    assert state.mark is not None
    assert state.mark.latest_us == 30


def test_who_notes_a_time_in_passing_holds_nobody_up() -> None:
    state = pass_by(TimeState(), "a", Micros(10), tail(1), Micros(0), idle_us=IDLE_US)
    assert (time_of(state), dict(state.writers)) == (10, {})
    state = pass_by(noted(state, "b", 20, 2), "a", Micros(90), tail(3), Micros(0), idle_us=IDLE_US)
    assert (time_of(state), set(state.writers)) == (20, {"b"})


def test_the_status_tells_who_is_idle_and_who_is_furthest_behind() -> None:
    state = noted(noted(TimeState(), "a", 10, now=0), "b", 5, now=900)
    found = status(state, "s/a", Micros(70), Micros(1_000), idle_us=IDLE_US)
    assert [(each.writer, each.idle) for each in found.writers] == [("b", False), ("a", True)]
    assert (found.idle, found.lag_us, found.still_us) == (("a",), 60, 1_000)


def test_a_writer_can_not_go_back() -> None:
    with pytest.raises(InvalidArgument, match="can't go back"):
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
        if before.mark is not None:
            assert state.mark is not None
            assert state.mark.time_us >= before.mark.time_us
        if state.mark != before.mark:
            assert state.mark is not None
            assert state.mark.time_us == min(each.time_us for each in state.writers.values())
            assert state.mark.cut == tail(length)
        assert TimeCodec().decode(TimeCodec().encode(state)) == state


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_first_that_is_not_passed_is_found(low: int, more: int, edge: int) -> None:
    assert first_beyond(low, low + more, lambda each: each < edge) == min(max(low, edge), low + more)


def test_of_several_windows_the_least_bounds_hold() -> None:
    one, other = TimeWindow(Micros(5), Micros(9)), TimeWindow(Micros(3), None)
    assert least([one, other]) == TimeWindow(Micros(3), None)
    assert least([]) == TimeWindow()


def test_what_is_no_watermark_is_refused() -> None:
    with pytest.raises(CorruptStore):
        TimeCodec().decode(b"{}")
    with pytest.raises(FormatTooNew):
        TimeCodec().decode(b'{"format":2}')
