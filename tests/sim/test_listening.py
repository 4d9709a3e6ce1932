"""What listeners were told is judged: a sound story passes, each lie is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.core.notifications import READERS, SCALED, SEGMENTS, GroupPicture, Notification
from anabranch.model.ids import Micros, StreamId
from anabranch.testing.listening import Due, Life, due_to_group

STREAM = StreamId(7)
BEGUN = GroupPicture("s/g", {STREAM: 2})


def scaled(ident: int, segments: int) -> Notification:
    return Notification(ident, Micros(ident), SCALED, "s/a", STREAM, segments=segments, detail={"epoch": ident})


def joined(ident: int, name: str) -> Notification:
    detail = {"names": [name], "joined": [name], "left": []}
    return Notification(ident, Micros(ident), READERS, group="s/g", readers=1, detail=detail)


JOURNAL = [scaled(1, 3), joined(2, "r"), scaled(3, 1), scaled(4, 2)]
DUE = due_to_group(JOURNAL, BEGUN, SEGMENTS)
ALL = Due(None, JOURNAL)


def present(ident: int, segments: int, readers: int) -> Notification:
    return Notification(ident, Micros(9), SEGMENTS, group="s/g", segments=segments, readers=readers)


def alone() -> Life:
    """It came behind the second change."""
    return Life([present(2, 3, 1), *DUE.changes[1:]], orderly=True)


def test_who_is_told_of_the_present_and_of_each_change_behind_it_is_right() -> None:
    assert [(each.id, each.segments, each.readers) for each in DUE.changes] == [(1, 3, 0), (3, 1, 1), (4, 2, 1)]
    assert DUE.wrong_in(alone()) == []
    assert DUE.wrong_in(Life(alone().heard[:2])) == []  # it was killed, or closed


def test_lives_of_one_name_go_on_where_the_last_was_killed() -> None:
    first, second = Life(JOURNAL[:2], since=0), Life(JOURNAL[1:], orderly=True)
    assert ALL.wrong_in_name([first, second], done=True) == []


def leave_one_out(life: Life) -> list[str]:
    return DUE.wrong_in(replace(life, heard=[life.heard[0], life.heard[2]]))


def tell_one_twice(life: Life) -> list[str]:
    return DUE.wrong_in(replace(life, heard=[*life.heard, life.heard[-1]]))


def tell_of_another_present(life: Life) -> list[str]:
    return DUE.wrong_in(replace(life, heard=[present(2, 2, 1), *life.heard[1:]]))


def tell_of_no_present(life: Life) -> list[str]:
    return DUE.wrong_in(replace(life, heard=life.heard[1:]))


def tell_what_was_not(life: Life) -> list[str]:
    return DUE.wrong_in(replace(life, heard=[*life.heard[:-1], replace(life.heard[-1], segments=9)]))


def never_tell_the_last(life: Life) -> list[str]:
    return ALL.wrong_in_name([Life(JOURNAL[:3], since=0, orderly=True)], done=True)


def tell_again_without_a_kill(life: Life) -> list[str]:
    lives = [Life(JOURNAL[:2], since=0, orderly=True), Life(JOURNAL[1:], orderly=True)]
    return ALL.wrong_in_name(lives, done=True)


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (leave_one_out, "heard of the changes [4], and was to hear of [3, 4]"),
        (tell_one_twice, "twice or out of order"),
        (tell_of_another_present, "of the present at 2"),
        (tell_of_no_present, "was not told of the present segments first"),
        (tell_what_was_not, "which did not happen"),
        (never_tell_the_last, "were never told of [4]"),
        (tell_again_without_a_kill, "were told 1 changes again"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_lie_is_found(lie: Callable[[Life], list[str]], told: str) -> None:
    found = lie(alone())
    assert any(told in each for each in found), found
