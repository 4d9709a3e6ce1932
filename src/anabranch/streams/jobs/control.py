"""Who may work on a job: every step is taken in a transaction that finds the job's row still this run's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.errors import JobRunning, JobStopped
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.streams.jobs.row import JobRow, State, need_job
from anabranch.streams.jobs.site import Site


class Stopped(Exception):
    """Somebody wants the run to stop in this state."""

    def __init__(self, state: State) -> None:
        super().__init__(state.value)
        self.state = state


class Control:
    """One run of a job, and the token that names it. Thread-safe."""

    def __init__(self, site: Site, job: str, owner: str | None = None) -> None:
        self.job = job
        self.owner = owner or token(site.runtime.ids)
        self._site = site
        self._wanted: State | None = None
        self.lag: int | None = None  # how far behind its source a copy was found to be: the next step writes it down

    def stop(self, state: State) -> None:
        """Have the run stop before its next step."""
        self._wanted = state

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._wanted is not None

    def begin(self, *, take_over: bool, moved: Callable[[Writing, JobRow], int]) -> JobRow:
        """Make the job this run's. `moved` tells how many bytes were moved before. Raises JobNotFound; JobRunning where
        another run was heard of lately, unless it is to be taken over; JobStopped for a cancelled job."""
        now = self._site.runtime.clock.now()
        with self._site.catalog.writing() as txn:
            row = need_job(txn, self.job)
            if row.state is State.CANCELLED:
                raise JobStopped(self.job, row.state.value)
            if row.state is State.DONE or row.owner == self.owner:  # this run's already, if its answer was lost
                return row
            if row.state is State.RUNNING and not row.silent(now) and not take_over:
                raise JobRunning(self.job)
            row = replace(
                row,
                state=State.RUNNING,
                owner=self.owner,
                wanted=None,
                error=None,
                seen_at=now,
                begun_at=now,
                bytes_before=moved(txn, row),
            )
            txn.put_piece(row.to_piece())
        return row

    def step(self, txn: Writing) -> JobRow:
        """The job's row in a transaction that works on it, marked as heard of. Raises Stopped; JobRunning where another
        run took the job over."""
        row = self._mine(need_job(txn, self.job))
        row = replace(row, seen_at=Micros(max(row.seen_at, self._site.runtime.clock.now())))
        if self.lag is not None:
            row, self.lag = replace(row, lag=self.lag), None
        txn.put_piece(row.to_piece())
        return row

    def look(self) -> JobRow:
        """The job's row, without a mark. Raises as `step`."""
        with self._site.catalog.reading() as txn:
            return self._mine(need_job(txn, self.job))

    def _mine(self, row: JobRow) -> JobRow:
        if row.owner != self.owner:
            if row.state is State.RUNNING:
                raise JobRunning(self.job)
            raise Stopped(row.state)
        wanted = self._wanted or row.wanted
        if wanted is not None:
            raise Stopped(wanted)
        return row

    def check(self) -> None:
        """Raises as `step`, between two steps."""
        with self._site.catalog.writing(f"job {self.job}") as txn:
            self.step(txn)
