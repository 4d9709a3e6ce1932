"""The handle through which a caller controls a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from anabranch.core.copy import CopyResult
from anabranch.core.display import Displayed
from anabranch.core.stitch import JoinResult
from anabranch.errors import CorruptCatalog, JobStopped
from anabranch.model.ids import Micros
from anabranch.model.replaced import Replaced
from anabranch.model.seconds import wait_limit
from anabranch.transfer.archives.export import ArchiveReport
from anabranch.transfer.archives.format import Imported
from anabranch.transfer.jobs.archive import files_of, remove_files
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.measure import measure
from anabranch.transfer.jobs.progress import JobProgress
from anabranch.transfer.jobs.record import ARCHIVE, COPY_SCOPE, IMPORT, REPLACE, JobRow, JobState, need_job, put_job
from anabranch.transfer.jobs.run import JobRun, settle

_LOOK_S: Final = 0.1
_RESULTS: Final[Mapping[str, Any]] = {
    "copy": CopyResult,
    "copy where": CopyResult,
    ARCHIVE: ArchiveReport,
    IMPORT: Imported,
    REPLACE: Replaced,
}


class Job(Displayed):
    """One job, run here or elsewhere. Any process can find it by its `id`."""

    def __init__(self, job_store: JobStore, job: str) -> None:
        self.id = job
        self._job_store = job_store
        self._run: JobRun | None = None
        # Wait on this rather than on the task: after an interrupt, a task's thread may seem to have ended.
        self._changed = job_store.runtime.tasks.condition()
        self._ended = False
        self._failure: BaseException | None = None

    def _facts(self) -> Mapping[str, object]:
        return {"id": self.id, "state": "elsewhere" if self._run is None else "ended" if self._ended else "running"}

    def start(self, run: JobRun, *, take_over: bool = False, ended: Callable[[], None] = lambda: None) -> None:
        """Run it here, in the background; `ended` is called when the run is over. Raises JobNotFound, JobRunning,
        JobStopped for a cancelled one."""
        row = run.begin(take_over=take_over)

        def work() -> None:
            try:
                run.carry_out(row)
            except BaseException as exc:
                self._failure = exc
            ended()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

        self._run = run
        self._job_store.runtime.tasks.spawn(f"job {self.id}", work)

    def _join(self, timeout_s: float | None = None) -> bool:
        """Wait until the run has ended; False after `timeout_s`."""
        clock = self._job_store.runtime.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        with self._changed:
            while not self._ended:
                left = None if until is None else until - clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    @property
    def alive(self) -> bool:
        """True while it runs here."""
        return self._run is not None and not self._ended

    @property
    def window(self) -> int | None:
        """How many bundles of ranges may be in flight; None if the job runs elsewhere. It can be changed while the job
        runs."""
        return None if self._run is None else self._run.window.width

    @window.setter
    def window(self, width: int) -> None:
        if self._run is not None:
            self._run.window.width = width

    @property
    def memory_peak(self) -> int | None:
        """The peak number of bytes read and not yet written; None if the job runs elsewhere."""
        return None if self._run is None else self._run.memory.peak

    def row(self) -> JobRow:
        """Its row, with its state. Raises JobNotFound."""
        with self._job_store.catalog.reading() as txn:
            return need_job(txn, self.id)

    def progress(self) -> JobProgress:
        """Its progress. Raises JobNotFound."""
        now = self._job_store.runtime.clock.now()
        with self._job_store.catalog.reading() as txn:
            row = need_job(txn, self.id)
            if row.result is not None or row.state.ended:
                events, size = (row.events, row.bytes) if row.result else (0, 0)
                return JobProgress(row, events, size, None, None)
            events, size, reached, scanned = measure(txn, row)
        rate = _rate(row, size, now)
        left = max(row.bytes - size, 0) / rate if rate else None
        return JobProgress(row, events, size, rate, left, reached, row.silent(now), scanned)

    def wait(self, timeout_s: float | None = None) -> Any:
        """Wait until it has ended and return its result: CopyResult or JoinResult, a list of CopyResult for a scope,
        ArchiveReport, Imported, Replaced. Raises JobStopped if it was paused or cancelled, or has failed elsewhere; its own error
        if it failed here; TimeoutError, InvalidArgument."""
        timeout_s = wait_limit("timeout_s", timeout_s)
        clock = self._job_store.runtime.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        if self._run is not None:
            if not self._join(timeout_s):
                raise TimeoutError(f"job {self.id} is still running after {timeout_s:g} s")
            if self._failure is not None:
                raise self._failure
        while (row := self.row()).state is JobState.RUNNING:
            if until is not None and clock.monotonic() >= until:
                raise TimeoutError(f"job {self.id} is still running after {timeout_s:g} s")
            self._job_store.runtime.tasks.sleep(_LOOK_S)
        if row.state is not JobState.DONE:
            raise JobStopped(self.id, row.state.value, row.error)
        return result_of(row)

    def pause(self) -> JobRow:
        """Stop it before its next step. What it moved is kept; a resumed job continues from there. If it runs here,
        returns when it has stopped; elsewhere it stops soon after."""
        return self._want(JobState.PAUSED)

    def cancel(self) -> JobRow:
        """Stop it and discard what it moved; the collector removes that. A job that is done does not change."""
        return self._want(JobState.CANCELLED)

    def stop(self) -> None:
        """Pause it if it runs here, and wait until it has stopped."""
        if self._run is not None:
            self._run.control.stop(JobState.PAUSED)
            self._join()

    def _want(self, state: JobState) -> JobRow:
        now = self._job_store.runtime.clock.now()
        files: list[str] = []
        with self._job_store.catalog.writing() as txn:
            row = need_job(txn, self.id)
            if row.state is JobState.RUNNING and not row.silent(now):
                row = replace(row, wanted=state)
                put_job(txn, row)
            elif not (state is JobState.PAUSED and row.state is JobState.FAILED):
                files = files_of(txn, self.id) if state is JobState.CANCELLED else []
                row = settle(txn, row, state)
        remove_files(self._job_store, row, files)
        if self._run is not None:
            self._run.control.stop(state)
            self._join()
            return self.row()
        return row


def result_of(row: JobRow) -> Any:
    """The result of a job that is done."""
    if row.result is None:
        raise CorruptCatalog(f"the job into '{row.target}' is done, but has no result", "states")
    if row.verb == COPY_SCOPE:
        return [CopyResult.from_json(each) for each in row.result["streams"]]
    return _RESULTS.get(row.verb, JoinResult).from_json(row.result)


def _rate(row: JobRow, size: int, now: Micros) -> float | None:
    seconds = (now - row.begun_at) / 1_000_000
    moved = size - row.bytes_before
    return moved / seconds if row.state is JobState.RUNNING and seconds > 0 and moved > 0 else None
