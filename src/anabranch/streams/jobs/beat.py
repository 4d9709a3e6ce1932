"""Letting a run be heard of while its steps take long: a slow object store, or tasks that wait for their turn."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError, JobRunning
from anabranch.log.lease import Hold
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task
from anabranch.streams.jobs.control import Control, Stopped

BEAT_S: Final = limits.JOB_SILENT_US / 3_000_000


class Beat:
    """Marks the job as heard of, and renews its lease, every third of `limits.JOB_SILENT_US` within this context."""

    def __init__(self, control: Control, hold: Hold, runtime: Runtime) -> None:
        self._control = control
        self._hold = hold
        self._tasks = runtime.tasks
        self._changed = runtime.tasks.condition()
        self._over = False
        self._task: Task | None = None

    def __enter__(self) -> Beat:
        self._task = self._tasks.spawn("job beat", self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        assert self._task is not None
        self._task.join()

    def _run(self) -> None:
        while not self._rest():
            try:
                self._control.check()
                self._hold.renew()
            except (Stopped, JobRunning):
                return  # the next step finds it too, and says so
            except AnabranchError:
                continue  # the store is away for a while; the steps will tell if it stays so

    def _rest(self) -> bool:
        """Wait for the next beat; True when it is over."""
        with self._changed:
            if not self._over:
                self._changed.wait(BEAT_S)
            return self._over
