"""Ownership of a job: every step runs in a transaction that checks that the job's row still belongs to this run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.errors import JobRunning, JobStopped
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.record import JobRow, JobState, need_job, put_job


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
            if row.state is JobState.DONE or row.owner == self.owner:  # owned already if an answer was lost
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
