"""Work that is done again and again in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable

from anabranch.errors import AnabranchError, Closed
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

_log = logging.getLogger("anabranch.maintenance")


class Periodic:
    """Calls `work` every `period_s` seconds in a task of its own; None: never. The first time is a whole period away.

    An error does not end it: it is logged, kept in `failure` until a round succeeds, and the next one tries again. One that
    is none of the store's own stays in `fault`.
    """

    def __init__(self, runtime: Runtime, name: str, period_s: float | None, work: Callable[[], object]) -> None:
        self._runtime = runtime
        self._name = name
        self._period_s = period_s
        self._work = work
        self._changed = runtime.tasks.condition()
        self._task: Task | None = None
        self.closing = False
        self.rounds = 0
        self.failure: AnabranchError | None = None
        self.fault: Exception | None = None

    def start(self) -> None:
        """Begin, where there is a period. A second call is harmless."""
        if self._period_s is not None and self._task is None:
            self._task = self._runtime.tasks.spawn(self._name, self._run)

    def close(self) -> None:
        """Begin no other round, and wait for the one under way; it may look at `closing` to end sooner. A second call is
        harmless."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()
        if self._task is not None:
            self._task.join()

    def _run(self) -> None:
        assert self._period_s is not None
        while self._rest(self._period_s):
            try:
                self._work()
                self.failure = None
            except Closed:
                return
            except AnabranchError as exc:
                self.failure = exc
                _log.warning("%s failed and will be tried again in %g s: %s", self._name, self._period_s, exc)
            except Exception as exc:  # ours to mend; but what else is to be done shall not wait for that
                self.failure = AnabranchError(f"{self._name} failed: {exc!r}")
                self.failure.__cause__ = self.fault = exc
                _log.exception("%s failed and will be tried again in %g s", self._name, self._period_s)
            self.rounds += 1

    def _rest(self, seconds: float) -> bool:
        """Wait for the next round; False once closing."""
        until = self._runtime.clock.monotonic() + seconds
        with self._changed:
            while not self.closing and (left := until - self._runtime.clock.monotonic()) > 0:
                self._changed.wait(left)
            return not self.closing
