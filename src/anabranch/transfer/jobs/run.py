"""Running a job: by the worker of its verb, from the moment this process owns it until it is left in some state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final, Protocol

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.errors import AnabranchError, CorruptArchive, JobRunning
from anabranch.log.lease import HeldLease
from anabranch.runtime.log_events import JOB_ENDED, JOB_FAILED, JOB_STARTED
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.retry import UNCERTAIN
from anabranch.transfer.jobs.archive import ArchiveRun, files_of, remove_files
from anabranch.transfer.jobs.archived_files import drop_files
from anabranch.transfer.jobs.context import JobContext, JobOptions
from anabranch.transfer.jobs.control import RunControl, StopRequested
from anabranch.transfer.jobs.copy_scope import ScopeCopyRun
from anabranch.transfer.jobs.copy_where import FilteredCopyRun, drop_filtered_copy
from anabranch.transfer.jobs.finish import drop_plans, drop_stages
from anabranch.transfer.jobs.import_archive import ImportRun
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.measure import measure
from anabranch.transfer.jobs.members import drop_members
from anabranch.transfer.jobs.memory import MemoryGauge
from anabranch.transfer.jobs.record import (
    ARCHIVE,
    COPY_SCOPE,
    COPY_WHERE,
    IMPORT,
    REPLACE,
    JobRow,
    JobState,
    need_job,
    put_job,
)
from anabranch.transfer.jobs.replace_range import ReplaceRun, drop_replacement
from anabranch.transfer.jobs.transfer_run import TransferRun
from anabranch.transfer.jobs.window import WorkWindow


class JobWorker(Protocol):
    """Carries out jobs of one kind."""

    def run(self, row: JobRow) -> JobRow:
        """Do what is missing of a job. Returns its row, done."""
        ...


HEARTBEAT_S: Final = limits.JOB_HEARTBEAT_TIMEOUT_US / 3_000_000

_WORKERS: Final[Mapping[str, Callable[[JobContext], JobWorker]]] = {
    COPY_SCOPE: ScopeCopyRun,
    COPY_WHERE: FilteredCopyRun,
    ARCHIVE: ArchiveRun,
    IMPORT: ImportRun,
    REPLACE: ReplaceRun,
}


class JobRun:
    """One run of a job in this process; `sources` are the stores of `JobRow.places`."""

    def __init__(
        self,
        sources: Sequence[JobStore],
        target: JobStore,
        job: str,
        options: JobOptions,
        *,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.control = RunControl(target, job)
        self.window = WorkWindow(target.runtime.tasks, options.window, around=self._step_span)
        self.memory = MemoryGauge(target.runtime.tasks)
        self._sources = sources
        self._target = target
        self._options = options
        self._changed = changed
        self._verb = ""

    def begin(self, *, take_over: bool = False) -> JobRow:
        """Make this run the job's owner. Raises as `RunControl.begin`."""

        def act() -> JobRow:
            return self.control.begin(take_over=take_over, moved=lambda txn, row: measure(txn, row).bytes)

        return UNCERTAIN.call(self._target.runtime, act)

    def carry_out(self, row: JobRow) -> JobRow:
        """Run the job until it ends, and return its final row: done, paused or cancelled.

        Whatever stops it, appended events are kept, and another run continues from there. The exception is an import
        whose archive turns out to be corrupt: what it staged is discarded, and the job is cancelled. Raises JobRunning,
        and what moving and finishing raise; after these the job has failed.
        """
        if row.state is JobState.DONE:
            return row
        self._verb = row.verb
        JOB_STARTED(job=row.id, verb=row.verb, target=row.target)
        row = self._carry_out(row)
        JOB_ENDED(job=row.id, state=row.state.value)
        return row

    def _step_span(self) -> AbstractContextManager[None]:
        tracing = self._target.runtime.tracing
        if tracing is None:
            return nullcontext()
        return tracing.job_step(self.control.job, self._verb, stops=(StopRequested,))

    def _carry_out(self, row: JobRow) -> JobRow:
        try:
            with HeldLease(self._target.catalog, self._target.runtime, "job", row.id) as hold, self._heartbeat(hold):
                return _WORKERS.get(row.verb, TransferRun)(self._context(hold)).run(row)
        except StopRequested as exc:
            return self._settle(exc.state)
        except JobRunning:
            raise
        except Exception as exc:
            JOB_FAILED(job=row.id, error=exc)
            in_vain = row.verb == IMPORT and isinstance(exc, CorruptArchive)
            with suppress(AnabranchError):
                self._settle(JobState.CANCELLED if in_vain else JobState.FAILED, f"{type(exc).__name__}: {exc}")
            raise
        except BaseException:
            with suppress(AnabranchError):
                self._settle(JobState.PAUSED)
            raise

    def _heartbeat(self, hold: HeldLease) -> Periodic:
        """Records a heartbeat for the job and renews its lease, while its context is open, since a step may take long.
        Ends once the run must stop: its next step notices that too, and raises it."""

        def beat() -> None:
            self.control.check()
            hold.renew()

        name, ends_on = f"heartbeat of job {self.control.job}", (StopRequested, JobRunning)
        return Periodic(self._target.runtime, name, HEARTBEAT_S, beat, ends_on=ends_on)

    def _context(self, hold: HeldLease) -> JobContext:
        return JobContext(
            self._sources,
            self._target,
            self.control,
            self.window,
            self.memory,
            hold,
            self._options.carrier,
            self._options.progress,
            self._changed,
        )

    def _settle(self, state: JobState, error: str | None = None) -> JobRow:
        """End the run and leave the job in this state, if it still belongs to this run."""

        def act() -> JobRow:
            with self._target.catalog.writing() as txn:
                return settle(txn, need_job(txn, self.control.job), state, error, owner=self.control.owner)

        with self._target.catalog.reading() as snapshot:
            names = files_of(snapshot, self.control.job) if state is JobState.CANCELLED else []
        row = UNCERTAIN.call(self._target.runtime, act)
        if row.state is JobState.CANCELLED:
            remove_files(self._target, row, names)
        return row


def settle(txn: Writing, row: JobRow, state: JobState, error: str | None = None, *, owner: str | None = None) -> JobRow:
    """Leave a job in this state; for a cancelled one, discard what it wrote. Does nothing if `owner` is given and no
    longer owns the job, or if the job has ended."""
    if row.state.ended or (owner is not None and row.owner != owner):
        return row
    row = row.released(state, error)
    if state is JobState.CANCELLED and row.result is None:
        drop_stages(txn, row)
        drop_plans(txn, row)
        drop_members(txn, row)
        drop_files(txn, row)
        drop_replacement(txn, row.id)
        drop_filtered_copy(txn, row)
    put_job(txn, row)
    return row
