"""Ownership of a job: every step runs in a transaction that checks that the job's row still belongs to this run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from anabranch.catalog.port import Writing
from anabranch.errors import JobRunning, JobStopped
from anabranch.log.lease import HeldLease
from anabranch.model.ids import Micros, StreamId
from anabranch.runtime.ids import token
from anabranch.runtime.retry import UNCERTAIN
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.memory import MemoryGauge
from anabranch.transfer.jobs.record import JobRow, JobState, need_job, put_job

T = TypeVar("T")

Moved = Callable[[int, int], None]  # called with events and logical bytes that were appended


class StopRequested(Exception):
    """The run is asked to stop, leaving the job in this state."""

    def __init__(self, state: JobState) -> None:
        super().__init__(state.value)
        self.state = state


class RunControl:
    """One run of a job, and the token that identifies it. Thread-safe."""

    def __init__(self, job_store: JobStore, job: str, owner: str | None = None) -> None:
        self.job = job
        self.owner = owner or token(job_store.runtime.ids)
        self._job_store = job_store
        self._wanted: JobState | None = None
        self.lag: int | None = None  # how far a copy lags behind its source, as last measured; the next step stores it

    def stop(self, state: JobState) -> None:
        """Have the run stop before its next step."""
        self._wanted = state

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._wanted is not None

    def begin(self, *, take_over: bool, moved: Callable[[Writing, JobRow], int]) -> JobRow:
        """Make this run the job's owner. `moved` returns how many bytes were moved before. Raises JobNotFound;
        JobRunning if another run sent a heartbeat recently, unless `take_over` is set; JobStopped for a cancelled
        job."""
        now = self._job_store.runtime.clock.now()
        with self._job_store.catalog.writing() as txn:
            row = need_job(txn, self.job)
            if row.state is JobState.CANCELLED:
                raise JobStopped(self.job, row.state.value)
            if row.state is JobState.DONE or row.owner == self.owner:  # owned already: the answer of this call was lost
                return row
            if row.state is JobState.RUNNING and not row.silent(now) and not take_over:
                raise JobRunning(self.job)
            row = replace(
                row,
                state=JobState.RUNNING,
                owner=self.owner,
                wanted=None,
                error=None,
                seen_at=now,
                begun_at=now,
                bytes_before=moved(txn, row),
            )
            put_job(txn, row)
        return row

    def step(self, txn: Writing) -> JobRow:
        """The job's row in a transaction that works on it; also records a heartbeat. Raises StopRequested; JobRunning
        if another run took the job over."""
        row = self._mine(need_job(txn, self.job))
        row = replace(row, seen_at=Micros(max(row.seen_at, self._job_store.runtime.clock.now())))
        if self.lag is not None:
            row, self.lag = replace(row, lag=self.lag), None
        put_job(txn, row)
        return row

    def check_state(self) -> JobRow:
        """The job's row, without a heartbeat. Raises as `step`."""
        with self._job_store.catalog.reading() as txn:
            return self._mine(need_job(txn, self.job))

    def _mine(self, row: JobRow) -> JobRow:
        if row.owner != self.owner:
            if row.state is JobState.RUNNING:
                raise JobRunning(self.job)
            raise StopRequested(row.state)
        wanted = self._wanted or row.wanted
        if wanted is not None:
            raise StopRequested(wanted)
        return row

    def check(self) -> None:
        """Raise as `step`, between two steps."""
        with self._job_store.catalog.writing(f"job {self.job}") as txn:
            self.step(txn)

    def act(self, act: Callable[[Writing, JobRow], T], *, on: StreamId | str | None = None) -> T:
        """Act in one transaction of the job's store, on the one stream or subject `on`, with the job's row. It is repeated
        while its outcome is unknown, so `act` recognizes what it has already done. Raises as `step`."""

        def act_once() -> T:
            with self._job_store.catalog.writing(on) as txn:
                return act(txn, self.step(txn))

        return UNCERTAIN.call(self._job_store.runtime, act_once)

    def end(self, act: Callable[[Writing, JobRow], JobRow], *, on: str | None = None) -> JobRow:
        """Act in the job's last transaction; returns the job's row, done. Raises as `step`."""

        def end_once() -> JobRow:
            with self._job_store.catalog.writing(on) as txn:
                row = need_job(txn, self.job)
                if row.state is JobState.DONE:  # an answer was lost
                    return row
                row = act(txn, self.step(txn)).released(JobState.DONE)
                put_job(txn, row)
                return row

        return UNCERTAIN.call(self._job_store.runtime, end_once)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The context in which a process moves a bundle: the run's control, the lease, the memory gauge, and the callback
    for progress."""

    control: RunControl
    hold: HeldLease
    memory: MemoryGauge
    moved: Moved
