"""Makes blocking calls awaitable: a task makes them, one at a time, and notifies an event loop when one is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from anabranch.errors import Closed
from anabranch.runtime.tasks import Task, Tasks


class AsyncBridge:
    """`await bridge.call()` runs `work(interrupted)` in a background task, and returns when it returned True.

    `work` stores its result itself, so nothing is lost when a caller is cancelled. On cancellation, `interrupted()`
    becomes True and `wake` is called; `work` should return soon: True if it was done, else False. One caller at a
    time.
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
        """Runs the work. Raises its error; raises Closed once the bridge is closed."""
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
        """Ends the task, once `work` returns. A caller that still waits gets Closed. May be called again."""
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
                # Not done means that the caller was cancelled; if another has called since, work runs again.
                if done:
                    self._answer(error)

    def _answer(self, error: BaseException | None) -> None:
        if self._waiter is not None:
            (loop, done), self._waiter = self._waiter, None
            with suppress(RuntimeError):  # the loop is closed, and with it the caller is gone
                loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
