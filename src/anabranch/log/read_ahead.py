"""Prepares what a reader will need next, in a background task."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from anabranch import limits
from anabranch.runtime.tasks import Tasks

_IDLE_S: Final = 0.05  # how long the task waits for more work before it ends


class ReadAhead:
    """Runs callables one after another, each identified by its place. Thread-safe. The background task ends by itself
    when there is nothing to do.

    A callable must store its result somewhere and raise nothing. A caller that needs the result calls `settle`, then
    checks whether the result exists.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._changed = tasks.condition()
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._under_way: Hashable | None = None
        self._running = False

    def begin(self, place: Hashable, work: Callable[[], None]) -> None:
        """Queues the work, unless `limits.VERIFY_AHEAD_QUEUE_MAX` others wait already. Returns at once."""
        with self._changed:
            if (
                place == self._under_way
                or place in self._waiting
                or len(self._waiting) >= limits.VERIFY_AHEAD_QUEUE_MAX
            ):
                return
            self._waiting[place] = work
            if self._running:
                self._changed.notify_all()
                return
            try:
                self._tasks.spawn("helper", self._run)
                self._running = True
            except RuntimeError:  # no thread can be started: the caller that needs the result does the work
                self._waiting.clear()

    def settle(self, place: Hashable) -> None:
        """Waits for the end of the work if it is under way. If it was not begun, cancels it."""
        with self._changed:
            self._waiting.pop(place, None)
            while self._under_way == place:
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._changed.wait(_IDLE_S)
                if not self._waiting:
                    self._running = False
                    return
                self._under_way = next(iter(self._waiting))
                work = self._waiting.pop(self._under_way)
            try:
                work()
            finally:
                with self._changed:
                    self._under_way = None
                    self._changed.notify_all()
