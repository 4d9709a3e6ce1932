"""The context of a job's run: what its caller has chosen, and what all kinds of runs do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback
from anabranch.model.amounts import check_integer
from anabranch.transfer.jobs.control import Moved, RunControl, TaskContext
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.memory import MemoryGauge
from anabranch.transfer.jobs.record import JobState
from anabranch.transfer.jobs.remote_tasks import Carrier
from anabranch.transfer.jobs.window import Work, WorkWindow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The request id of a job, the number of bundles in flight, the carrier that moves them elsewhere if there is one,
    and the progress callback. Raises InvalidArgument for a window that is no integer."""

    request: str | None
    window: int
    carrier: Carrier | None
    progress: ProgressCallback

    def __post_init__(self) -> None:
        check_integer("window", self.window)


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of a run: the stores it reads, the store of the job, the run's control, the window of work in flight,
    the memory gauge, the lease, the carrier that moves the bytes elsewhere if there is one, and the progress callback.
    `changed` is called when a stream was created."""

    sources: Sequence[JobStore]
    target: JobStore
    control: RunControl
    window: WorkWindow
    memory: MemoryGauge
    hold: HeldLease
    carrier: Carrier | None
    progress: ProgressCallback
    changed: Callable[[], None]

    def task(self, moved: Moved = lambda _events, _size: None) -> TaskContext:
        """The context for moving in this process."""
        return TaskContext(self.control, self.hold, self.memory, moved)

    def run(self, works: Sequence[Work]) -> None:
        """Run work items in the window."""
        self.window.run(works, interrupted=lambda: self.control.stop(JobState.PAUSED))

    def elsewhere(self, act: Callable[[Carrier], T]) -> T:
        """The result of `act`, which has work done in other processes. Raises StopRequested if `act` failed because the
        job was asked to stop."""
        assert self.carrier is not None
        try:
            result = act(self.carrier)
        except Exception:
            self.control.check_state()
            raise
        self.control.check_state()
        return result


class ProgressCounter:
    """Counts what is done of a run, and reports it. Thread-safe."""

    def __init__(self, context: JobContext, step: str, total: int, done: int = 0) -> None:
        self._lock = context.target.runtime.tasks.lock()
        self._progress = context.progress
        self._step = step
        self.total = total
        self.done = done

    def add(self, count: int) -> None:
        """Add `count`, and report the sum."""
        with self._lock:
            self.done += count
            self._progress(self._step, self.done, self.total)
