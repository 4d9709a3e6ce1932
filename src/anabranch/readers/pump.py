"""From blocking calls to coroutines: a task makes the calls, one at a time, and tells an event loop when one is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from anabranch.errors import Closed
from anabranch.runtime.tasks import Task, Tasks


class Pump:
    """`await pump.call()` has `work(interrupted)` called in a task of its own, and returns when it returned True.

    `work` keeps its result itself, so nothing is lost when a caller is cancelled. Then `interrupted()` becomes True,
    `wake` is called, and `work` should return soon: True if it was done, else False. One caller at a time.
    """

    def __init__(self, tasks: Tasks, work: Callable[[Callable[[], bool]], bool], wake: Callable[[], None]) -> None:
        self._tasks = tasks
        self._work = work
        self._wake = wake
        self._changed = tasks.condition()
        self._task: Task | None = None
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        """True while a caller waits."""
        return self._waiter is not None

    async def call(self) -> None:
        """Have the work done. Raises its error; Closed once the pump is closed."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if self._closed:
                raise Closed("reader")
            self._waiter = (loop, done)
            if self._task is None:
                self._task = self._tasks.spawn("read-async", self._run)
            self._changed.notify_all()
        try:
            await done
        except asyncio.CancelledError:
            with self._changed:
                self._waiter = None
            self._wake()
            raise

    def close(self) -> None:
        """End the task, once `work` returns. A caller who still waits gets Closed. A second close is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._answer(Closed("reader"))

    def _interrupted(self) -> bool:
        return self._closed or self._waiter is None

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._waiter is None and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
            done, error = True, None
            try:
                done = self._work(self._interrupted)
            except BaseException as exc:
                error = exc
            with self._changed:
                # Not done means that the caller was cancelled; one who came since then has the work done again.
                if done:
                    self._answer(error)

    def _answer(self, error: BaseException | None) -> None:
        if self._waiter is not None:
            (loop, done), self._waiter = self._waiter, None
            with suppress(RuntimeError):  # the loop is gone, and with it the caller
                loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
