"""The window of a job: what runs side by side, what follows from it, and how it ends."""

from __future__ import annotations

import threading

import pytest

from anabranch.runtime.tasks import ThreadTasks
from anabranch.transfer.jobs.window import Work, WorkWindow


def test_what_follows_from_a_work_goes_before_all_that_waits() -> None:
    done: list[str] = []

    def work(name: str, *then: Work) -> Work:
        def run() -> list[Work]:
            done.append(name)
            return list(then)

        return run

    WorkWindow(ThreadTasks(), 1).run([work("a", work("a1", work("a1x")), work("a2")), work("b"), work("c", work("c1"))])
    assert done == ["a", "a1", "a1x", "a2", "b", "c", "c1"]


def test_works_that_follow_are_within_the_width_too() -> None:
    lock, flying, most = threading.Lock(), 0, 0
    meeting = threading.Barrier(3)

    def leaf() -> None:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        meeting.wait(60)
        with lock:
            flying -= 1

    WorkWindow(ThreadTasks(), 3).run([lambda: [leaf, leaf, leaf], lambda: [leaf, leaf, leaf]])
    assert most == 3


def test_nothing_follows_where_a_work_failed() -> None:
    done: list[str] = []

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        WorkWindow(ThreadTasks(), 1).run([fails, lambda: done.append("later")])
    assert done == []
