"""Periodic work in the background: the one loop behind upkeep, heartbeats and renewals.

Loops that wait for something else than time are not periodic and have tasks of their own: the appender's workers and
other queues, the follower of notifications, PostgreSQL's listener, the supervision of a pipeline's queries.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from anabranch import limits
from anabranch.errors import AnabranchError, Closed
from anabranch.runtime.log_events import BACKGROUND_FAILED, BACKGROUND_RECOVERED, BACKGROUND_STUCK
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task


class Periodic:
    """Calls `work` every `period_s` seconds in its own task; None: never. The first call is after one whole period, or
    with `at_once` immediately. A context manager, which starts it and closes it.

    An error does not end it: it is logged, kept in `failure` until a round succeeds, and the next round tries again. An
    error that is not one of the store's own also stays in `fault`. Closed and the errors in `ends_on` are
    different: they end the loop without a report, and the error stays in `ended_by`.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        period_s: float | Callable[[], float] | None,
        work: Callable[[], object],
        *,
        at_once: bool = False,
        ends_on: tuple[type[Exception], ...] = (),
    ) -> None:
        """`period_s` may be a function, which is called before each wait."""
        self._runtime = runtime
        self._name = name
        self._period_s = period_s
        self._work = work
        self._at_once = at_once
        self._ends_on: tuple[type[Exception], ...] = (Closed, *ends_on)
        self._changed = runtime.tasks.condition()
        self._task: Task | None = None  # the last one; it may have ended
        self._running = False
        self._closed = False
        self._due = False  # the next round is to be made now
        self._failures = 0  # in a row
        self.closing = False
        self.rounds = 0
        self.failure: AnabranchError | None = None
        self.fault: Exception | None = None
        self.ended_by: Exception | None = None

    def start(self) -> None:
        """Start, if there is a period. No effect while it runs, or once it is closed; after `stop` it starts again."""
        with self._changed:
            if self._period_s is None or self._closed:
                return
            self.closing = False
            if self._running:
                return
            self._running = True
            self._due = self._at_once
            try:
                self._task = self._runtime.tasks.spawn(self._name, self._run)
            except BaseException:
                self._running = False
                raise

    def wake(self) -> None:
        """Make the next round now, or right after the current one."""
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Start no further round. Returns at once; `work` may call it too."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()

    def close(self, timeout_s: float = limits.TASK_END_S) -> bool:
        """Start no further round, ever, and wait for the current one, which may check `closing` to end sooner. Returns
        False, and logs an error, if it has not ended within `timeout_s`. A second call is harmless. If `work`
        itself calls it, it does not wait."""
        self._closed = True
        self.stop()
        task, began = self._task, self._runtime.clock.monotonic()
        if task is None or task.join(timeout_s) or not self._running:
            return True
        if self._runtime.clock.monotonic() - began < timeout_s:
            return False  # called by `work`: a task does not wait for itself
        BACKGROUND_STUCK(task=self._name, waited_s=timeout_s)
        return False

    def __enter__(self) -> Periodic:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while self._wait_for_round():
                self._round()
        except self._ends_on as exc:
            self.ended_by = exc
            with self._changed:
                self._running = False

    def _round(self) -> None:
        try:
            self._work()
        except self._ends_on:
            raise
        except AnabranchError as exc:
            self.failure = exc
            self._report(exc)
        except Exception as exc:  # a bug of ours; but other work should not wait for its fix
            self.failure = AnabranchError(f"{self._name} failed: {exc!r}")
            self.failure.__cause__ = self.fault = exc
            self._report(exc, traceback=exc)
        else:
            if self.failure is not None:
                BACKGROUND_RECOVERED(task=self._name, failures=self._failures)
            self.failure, self._failures = None, 0
        self.rounds += 1

    def _report(self, error: Exception, *, traceback: Exception | None = None) -> None:
        self._failures += 1
        # Only failures 1, 2, 4, 8 … in a row are warnings: an error that lasts does not fill the log.
        repeated = self._failures & (self._failures - 1) != 0
        BACKGROUND_FAILED(quiet=repeated, traceback=traceback, task=self._name, pause_s=self._pause_s(), error=error)

    def _pause_s(self) -> float:
        period_s = self._period_s() if callable(self._period_s) else self._period_s
        assert period_s is not None
        return max(0.0, period_s)

    def _wait_for_round(self) -> bool:
        """Wait for the next round; False once stopped."""
        until = self._runtime.clock.monotonic() + self._pause_s()
        with self._changed:
            while not self.closing and not self._due and (left := until - self._runtime.clock.monotonic()) > 0:
                if not self._changed.wait(left):
                    break  # the period has passed, even by a clock that a test or a suspension has stopped
            first, self._due = self._at_once and self.rounds == 0 and self._due, False
            if self.closing and not first:  # a round that was requested still runs
                self._running = False
                return False
            return True
