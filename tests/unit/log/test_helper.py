"""The task that does for readers what they are about to need."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from anabranch import limits
from anabranch.log import read_ahead as helper
from anabranch.log.read_ahead import ReadAhead
from anabranch.runtime.tasks import Task, ThreadTasks
from tests.waiting import until


class Works:
    """Works that wait for `go`, and what was done of them."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.done: list[int] = []

    def work(self, number: int) -> None:
        self.begun.set()
        assert self.go.wait(60)
        self.done.append(number)


def test_works_are_done_in_order_and_who_needs_one_waits_for_its_end() -> None:
    works, helped = Works(), ReadAhead(ThreadTasks())
    for number in range(3):
        helped.begin(number, lambda number=number: works.work(number))  # type: ignore[misc]
    assert works.begun.wait(60)
    threading.Timer(0.05, works.go.set).start()
    helped.settle(0)
    assert works.done[:1] == [0]
    until(lambda: works.done == [0, 1, 2])


def test_what_was_not_begun_is_left_to_who_needs_it() -> None:
    works, helped = Works(), ReadAhead(ThreadTasks())
    for number in range(3):
        helped.begin(number, lambda number=number: works.work(number))  # type: ignore[misc]
    assert works.begun.wait(60)
    helped.settle(1)  # at once, though the first has not ended
    assert works.done == []
    works.go.set()
    until(lambda: works.done == [0, 2])


def test_where_no_thread_is_to_be_had_who_needs_a_work_does_it() -> None:
    class Tasks(ThreadTasks):
        refused = 0

        def spawn(self, name: str, work: Callable[[], None]) -> Task:
            if not self.refused:
                self.refused += 1
                raise RuntimeError("can't start new thread")
            return super().spawn(name, work)

    works, helped = Works(), ReadAhead(Tasks())
    works.go.set()
    helped.begin(0, lambda: works.work(0))
    helped.settle(0)
    assert works.done == []
    helped.begin(1, lambda: works.work(1))
    until(lambda: works.done == [1])


def test_no_more_wait_than_the_limit_allows() -> None:
    works, helped = Works(), ReadAhead(ThreadTasks())
    helped.begin("first", lambda: works.work(0))
    assert works.begun.wait(60)
    for number in range(1, limits.VERIFY_AHEAD_QUEUE_MAX + 10):
        helped.begin(number, lambda number=number: works.work(number))  # type: ignore[misc]
    helped.begin("first", lambda: works.work(-1))  # under way already
    works.go.set()
    until(lambda: len(works.done) == limits.VERIFY_AHEAD_QUEUE_MAX + 1)
    assert works.done == list(range(limits.VERIFY_AHEAD_QUEUE_MAX + 1))


def test_the_task_ends_where_nothing_is_to_do_and_another_begins_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "_IDLE_S", 0.001)
    works, helped = Works(), ReadAhead(ThreadTasks())
    works.go.set()
    for number in range(3):
        helped.begin(number, lambda number=number: works.work(number))  # type: ignore[misc]
        until(lambda number=number: works.done[-1:] == [number])  # type: ignore[misc]
        until(lambda: not helped._running)
    assert works.done == [0, 1, 2]
