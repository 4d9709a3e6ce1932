"""Doing for a reader what it will need next, in a task beside it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from anabranch import limits
from anabranch.runtime.tasks import Tasks

_IDLE_S: Final = 0.05  # the task waits so long for more before it ends


class Helper:
    """Does works one after another, each known by its place. Thread-safe. The task that does them ends by itself where there
    is nothing to do.

    A work must leave its result somewhere and raise nothing: who needs it calls `settle` and looks whether it is there.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._changed = tasks.condition()
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._under_way: Hashable | None = None
        self._running = False

    def begin(self, place: Hashable, work: Callable[[], None]) -> None:
        """Have it done soon, unless `limits.HELPED_MAX` others wait already. Returns at once."""
        with self._changed:
            if place == self._under_way or place in self._waiting or len(self._waiting) >= limits.HELPED_MAX:
                return
            self._waiting[place] = work
            if self._running:
                self._changed.notify_all()
                return
            try:
                self._tasks.spawn("helper", self._run)
                self._running = True
            except RuntimeError:  # no thread is to be had: whoever needs it does it
                self._waiting.clear()

    def settle(self, place: Hashable) -> None:
        """Wait for the end of a work that is under way. One that was not begun is not done any more."""
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
