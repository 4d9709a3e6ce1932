"""What listeners were told is judged: a sound story passes, each wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.catalog.state.listener import GroupSummary
from anabranch.model.ids import Micros, StreamId
from anabranch.notifications.kinds import READERS, SCALED, SEGMENTS, Notification
from tests.simulation.listening import Due, ListenerRun, due_to_group

STREAM = StreamId(7)
BEGUN = GroupSummary("s/g", {STREAM: 2})


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


def alone() -> ListenerRun:
    """It came behind the second change."""
    return ListenerRun([present(2, 3, 1), *DUE.changes[1:]], orderly=True)


def test_the_initial_state_and_each_later_change_are_correct() -> None:
    assert [(each.id, each.segments, each.readers) for each in DUE.changes] == [(1, 3, 0), (3, 1, 1), (4, 2, 1)]
    assert DUE.wrong_in(alone()) == []
    assert DUE.wrong_in(ListenerRun(alone().received[:2])) == []  # it was killed, or closed


def test_runs_of_one_name_continue_where_the_last_was_killed() -> None:
    first, second = ListenerRun(JOURNAL[:2], since=0), ListenerRun(JOURNAL[1:], orderly=True)
    assert ALL.wrong_in_name([first, second], done=True) == []


def leave_one_out(run: ListenerRun) -> list[str]:
    return DUE.wrong_in(replace(run, received=[run.received[0], run.received[2]]))


def tell_one_twice(run: ListenerRun) -> list[str]:
    return DUE.wrong_in(replace(run, received=[*run.received, run.received[-1]]))


def tell_of_another_present(run: ListenerRun) -> list[str]:
    return DUE.wrong_in(replace(run, received=[present(2, 2, 1), *run.received[1:]]))


def tell_of_no_present(run: ListenerRun) -> list[str]:
    return DUE.wrong_in(replace(run, received=run.received[1:]))


def tell_what_was_not(run: ListenerRun) -> list[str]:
    return DUE.wrong_in(replace(run, received=[*run.received[:-1], replace(run.received[-1], segments=9)]))


def never_tell_the_last(run: ListenerRun) -> list[str]:
    return ALL.wrong_in_name([ListenerRun(JOURNAL[:3], since=0, orderly=True)], done=True)


def tell_again_without_a_kill(run: ListenerRun) -> list[str]:
    runs = [ListenerRun(JOURNAL[:2], since=0, orderly=True), ListenerRun(JOURNAL[1:], orderly=True)]
    return ALL.wrong_in_name(runs, done=True)


@pytest.mark.parametrize(
    ("wrong", "told"),
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
def test_a_wrong_notification_is_found(wrong: Callable[[ListenerRun], list[str]], told: str) -> None:
    found = wrong(alone())
    assert any(told in each for each in found), found
