"""Running work items with a limit on how many are in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from anabranch.model.amounts import check_integer
from anabranch.runtime.tasks import Task, Tasks

# A work item. It may return further items, which are run before those that wait.
Work: TypeAlias = "Callable[[], Sequence[Work] | None]"


class WorkWindow:
    """Runs work items in parallel, at most `width` at a time; `width` can be changed while they run. Each runs inside
    the context manager that `around` returns."""

    def __init__(
        self, tasks: Tasks, width: int, *, around: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._tasks = tasks
        self._around = around
        self._changed = tasks.condition()
        self._width = max(1, width)
        self._left: deque[Work] = deque()
        self._active = 0
        self._failure: BaseException | None = None

    @property
    def width(self) -> int:
        """How many work items may be in flight."""
        return self._width

    @width.setter
    def width(self, width: int) -> None:
        width = max(1, check_integer("window", width))
        with self._changed:
            self._width = width
            self._changed.notify_all()

    def run(self, works: Iterable[Work], *, interrupted: Callable[[], None] = lambda: None) -> None:
        """Start the work items in order, the items that one returns before the waiting ones, and return when all have
        ended. If one raises, no more are started, and the first error is raised once those in flight have ended. The
        same holds if the caller is interrupted; `interrupted` is called then and may speed them up."""
        self._left, self._failure = deque(works), None
        started: list[Task] = []
        try:
            self._hand_out(started)
            _join(started)
        except BaseException as exc:
            with self._changed:
                self._failure = self._failure or exc
            interrupted()
            _join(started)
        if self._failure is not None:
            raise self._failure

    def _hand_out(self, started: list[Task]) -> None:
        while True:
            with self._changed:
                while self._active and (self._active >= self._width or not self._left) and self._failure is None:
                    self._changed.wait()
                if self._failure is not None or not self._left:
                    return
                work = self._left.popleft()
                self._active += 1
            started.append(self._tasks.spawn("job", lambda work=work: self._run(work)))  # type: ignore[misc]

    def _run(self, work: Work) -> None:
        failure: BaseException | None = None
        more: Sequence[Work] = ()
        try:
            with self._around():
                more = work() or ()
        except BaseException as exc:
            failure = exc
        with self._changed:
            self._left.extendleft(reversed(more))
            self._active -= 1
            self._failure = self._failure or failure
            self._changed.notify_all()


def _join(tasks: Iterable[Task]) -> None:
    for task in tasks:
        task.join()
