"""A job in the hands of its user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from anabranch.core.archive import Imported
from anabranch.core.copy import Copied
from anabranch.core.stitch import Joined
from anabranch.errors import JobStopped
from anabranch.model.ids import Micros
from anabranch.streams.archive.export import ArchiveReport
from anabranch.streams.jobs.archive import files_of, remove_files
from anabranch.streams.jobs.measure import measure
from anabranch.streams.jobs.progress import Progress
from anabranch.streams.jobs.row import ARCHIVE, COPY_SCOPE, IMPORT, JobRow, State, need_job
from anabranch.streams.jobs.run import Run, settle
from anabranch.streams.jobs.site import Site

_LOOK_S: Final = 0.1


class Job:
    """One job, run here or elsewhere. `id` finds it again, from any process."""

    def __init__(self, site: Site, job: str) -> None:
        self.id = job
        self._site = site
        self._run: Run | None = None
        # Not the task itself is waited for: an interrupt would let a thread seem to have ended.
        self._changed = site.runtime.tasks.condition()
        self._ended = False
        self._failure: BaseException | None = None

    def start(self, run: Run, *, take_over: bool = False, ended: Callable[[], None] = lambda: None) -> None:
        """Run it here, beside the caller; `ended` is called when that is over. Raises JobNotFound, JobRunning, JobStopped for a cancelled one."""
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
        self._site.runtime.tasks.spawn(f"job {self.id}", work)

    def _join(self, timeout_s: float | None = None) -> bool:
        """Wait until the run has ended; False after `timeout_s`."""
        clock = self._site.runtime.clock
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
        """How many bundles of ranges may be in flight; None where the job runs elsewhere. It may be set meanwhile."""
        return None if self._run is None else self._run.window.width

    @window.setter
    def window(self, width: int) -> None:
        if self._run is not None:
            self._run.window.width = width

    @property
    def memory_peak(self) -> int | None:
        """The most bytes that were read and not yet written, at a time; None where the job runs elsewhere."""
        return None if self._run is None else self._run.gauge.peak

    def row(self) -> JobRow:
        """How it stands. Raises JobNotFound."""
        with self._site.catalog.reading() as txn:
            return need_job(txn, self.id)

    def progress(self) -> Progress:
        """How far it has come. Raises JobNotFound."""
        now = self._site.runtime.clock.now()
        with self._site.catalog.reading() as txn:
            row = need_job(txn, self.id)
            if row.result is not None or row.state.ended:
                return (
                    Progress(row, row.events, row.bytes, None, None) if row.result else Progress(row, 0, 0, None, None)
                )
            events, size, reached = measure(txn, row)
        rate = _rate(row, size, now)
        left = max(row.bytes - size, 0) / rate if rate else None
        return Progress(row, events, size, rate, left, reached, row.silent(now))

    def wait(self, timeout_s: float | None = None) -> Any:
        """Wait until it has ended, and return what it made: Copied or Joined, a list of Copied for a scope,
        ArchiveReport, Imported. Raises JobStopped where it was paused or
        cancelled, or has failed elsewhere; what it failed with where it ran here; TimeoutError."""
        clock = self._site.runtime.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        if self._run is not None:
            if not self._join(timeout_s):
                raise TimeoutError(f"job {self.id} is still running after {timeout_s:g} s")
            if self._failure is not None:
                raise self._failure
        while (row := self.row()).state is State.RUNNING:
            if until is not None and clock.monotonic() >= until:
                raise TimeoutError(f"job {self.id} is still running after {timeout_s:g} s")
            self._site.runtime.tasks.sleep(_LOOK_S)
        if row.state is not State.DONE:
            raise JobStopped(self.id, row.state.value, row.error)
        return result_of(row)

    def pause(self) -> JobRow:
        """Stop it before its next step. What it moved stays; resuming it goes on from there. Returns when it has stopped,
        where it runs here; elsewhere it stops by itself soon."""
        return self._want(State.PAUSED)

    def cancel(self) -> JobRow:
        """Stop it and give up what it moved; the collector removes that. A job that is done stays as it is."""
        return self._want(State.CANCELLED)

    def stop(self) -> None:
        """Pause it, if it runs here, and wait until it has stopped."""
        if self._run is not None:
            self._run.control.stop(State.PAUSED)
            self._join()

    def _want(self, state: State) -> JobRow:
        now = self._site.runtime.clock.now()
        files: list[str] = []
        with self._site.catalog.writing() as txn:
            row = need_job(txn, self.id)
            if row.state is State.RUNNING and not row.silent(now):
                row = replace(row, wanted=state)
                txn.put_piece(row.to_piece())
            elif not (state is State.PAUSED and row.state is State.FAILED):
                files = files_of(txn, self.id) if state is State.CANCELLED else []
                row = settle(txn, row, state)
        remove_files(self._site, row, files)
        if self._run is not None:
            self._run.control.stop(state)
            self._join()
            return self.row()
        return row


def result_of(row: JobRow) -> Any:
    """What a job that is done has made."""
    assert row.result is not None
    match row.verb:
        case "copy":
            return Copied.from_json(dict(row.result))
        case verb if verb == COPY_SCOPE:
            return [Copied.from_json(each) for each in row.result["streams"]]
        case verb if verb == ARCHIVE:
            return ArchiveReport.from_json(row.result)
        case verb if verb == IMPORT:
            return Imported.from_json(row.result)
        case _:
            return Joined.from_json(row.result)


def _rate(row: JobRow, size: int, now: Micros) -> float | None:
    seconds = (now - row.begun_at) / 1_000_000
    moved = size - row.bytes_before
    return moved / seconds if row.state is State.RUNNING and seconds > 0 and moved > 0 else None
