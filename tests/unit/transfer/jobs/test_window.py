"""The window of a job: what runs side by side, what follows from it, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from anabranch.runtime.tasks import Task, ThreadTasks
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


class InterruptedTasks(ThreadTasks):
    """Ctrl-C strikes once, in the first wait for a task."""

    def __init__(self) -> None:
        self.struck = False

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        task = super().spawn(name, work)
        join = task.join

        def interrupted(timeout: float | None = None) -> bool:
            if not self.struck:
                self.struck = True
                raise KeyboardInterrupt
            return join(timeout)

        task.join = interrupted  # type: ignore[method-assign]
        return task


def test_ctrl_c_while_works_in_flight_end_after_a_failure_waits_for_them() -> None:
    hurried, ended = threading.Event(), threading.Event()
    both = threading.Barrier(2)

    def fails() -> None:
        both.wait(60)
        raise ValueError("no")

    def slow() -> None:
        both.wait(60)
        hurried.wait(60)
        ended.set()

    with pytest.raises(ValueError, match="no"):
        WorkWindow(InterruptedTasks(), 2).run([slow, fails], interrupted=hurried.set)
    assert hurried.is_set() and ended.is_set()
