"""Who is presumed dead: only who was silent for a whole lease in which one watched oneself."""

from __future__ import annotations

from anabranch.core.group import Member
from anabranch.groups.liveness import LivenessMonitor
from anabranch.model.ids import Micros


def member(beat: int, session: str = "s") -> Member:
    return Member(session, beat, Micros(0))


def test_a_reader_is_dead_when_its_heartbeats_stop_for_a_lease() -> None:
    watch = LivenessMonitor("me", 10.0)
    assert [watch.observe({"r": member(3)}, second) for second in range(0, 12, 2)] == [frozenset()] * 5 + [{"r"}]


def test_a_heartbeat_or_a_new_session_restarts_the_lease() -> None:
    for second_life in (member(4), member(3, "other")):
        watch = LivenessMonitor("me", 10.0)
        for second in range(0, 10, 2):
            assert not watch.observe({"r": member(3)}, second)
        for second in range(10, 20, 2):
            assert not watch.observe({"r": second_life}, second)
        assert watch.observe({"r": second_life}, 20) == {"r"}


def test_a_suspended_process_presumes_nobody_dead_when_it_resumes() -> None:
    watch = LivenessMonitor("me", 10.0)
    watch.observe({"r": member(3)}, 0)
    assert not watch.observe({"r": member(3)}, 1_000)
    assert not watch.observe({"r": member(3)}, 1_002)


def test_a_reader_never_presumes_itself_dead() -> None:
    watch = LivenessMonitor("me", 1.0)
    for tenth in range(50):
        assert not watch.observe({"me": member(0)}, tenth / 10)


def test_a_reader_with_a_newer_heartbeat_is_not_dead() -> None:
    watch = LivenessMonitor("me", 1.0)
    for tenth in range(20):
        dead = watch.observe({"r": member(0), "q": member(0)}, tenth / 10)
    assert dead == {"r", "q"}
    assert watch.still_dead({"r": member(0), "q": member(1)}, dead) == {"r"}
    assert watch.still_dead({"r": member(0, "other")}, dead) == frozenset()
