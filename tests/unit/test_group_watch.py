"""Who is presumed dead: only who was silent for a whole lease in which one watched oneself."""

from __future__ import annotations

from anabranch.core.group import Member
from anabranch.model.ids import Micros
from anabranch.readers.group.watch import Watch


def member(beat: int, session: str = "s") -> Member:
    return Member(session, beat, Micros(0))


def test_a_reader_is_dead_when_its_count_stands_still_for_a_lease() -> None:
    watch = Watch("me", 10.0)
    assert [watch.look({"r": member(3)}, second) for second in range(0, 12, 2)] == [frozenset()] * 5 + [{"r"}]


def test_a_sign_of_life_or_another_opening_begins_anew() -> None:
    for second_life in (member(4), member(3, "other")):
        watch = Watch("me", 10.0)
        for second in range(0, 10, 2):
            assert not watch.look({"r": member(3)}, second)
        for second in range(10, 20, 2):
            assert not watch.look({"r": second_life}, second)
        assert watch.look({"r": second_life}, 20) == {"r"}


def test_a_process_that_was_stopped_itself_takes_nobody_for_dead_when_it_wakes() -> None:
    watch = Watch("me", 10.0)
    watch.look({"r": member(3)}, 0)
    assert not watch.look({"r": member(3)}, 1_000)
    assert not watch.look({"r": member(3)}, 1_002)


def test_nobody_takes_oneself_for_dead() -> None:
    watch = Watch("me", 1.0)
    for tenth in range(50):
        assert not watch.look({"me": member(0)}, tenth / 10)


def test_who_gave_a_sign_of_life_meanwhile_is_spared() -> None:
    watch = Watch("me", 1.0)
    for tenth in range(20):
        dead = watch.look({"r": member(0), "q": member(0)}, tenth / 10)
    assert dead == {"r", "q"}
    assert watch.silent({"r": member(0), "q": member(1)}, dead) == {"r"}
    assert watch.silent({"r": member(0, "other")}, dead) == frozenset()
