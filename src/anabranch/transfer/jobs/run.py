"""Running a job: its bundles of ranges in a window, then its last transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Final, Protocol

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.errors import AnabranchError, CorruptArchive, InvalidArgument, JobRunning
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.ids import StreamId
from anabranch.runtime.log_events import JOB_ENDED, JOB_FAILED, JOB_STARTED
from anabranch.runtime.retry import UNCERTAIN
from anabranch.streams.directory.find import need_view
from anabranch.transfer.jobs.archive import ArchiveRun, files_of, remove_files
from anabranch.transfer.jobs.archived_files import drop_files
from anabranch.transfer.jobs.bundles import bundled
from anabranch.transfer.jobs.context import JobContext
from anabranch.transfer.jobs.control import RunControl, StopRequested
from anabranch.transfer.jobs.copy_scope import ScopeCopyRun
from anabranch.transfer.jobs.copy_where import FilteredCopyRun, drop_filtered_copy
from anabranch.transfer.jobs.deduplicate import (
    ComparedRanges,
    build_deduplicator,
    columns_compared,
    existing_ranges,
    preferred,
)
from anabranch.transfer.jobs.deduplicate_remote import DeduplicatingCarrier, KeptRanges, compare_remotely
from anabranch.transfer.jobs.delete_sources import delete_sources, refuse_written
from anabranch.transfer.jobs.finish import drop_plans, drop_stages, finish_job
from anabranch.transfer.jobs.follow import FollowRun, open_positions
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.heartbeat import job_heartbeat
from anabranch.transfer.jobs.import_archive import ImportRun
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.measure import measure
from anabranch.transfer.jobs.members import drop_members
from anabranch.transfer.jobs.memory import MemoryGauge
from anabranch.transfer.jobs.move import RangeMover
from anabranch.transfer.jobs.range_reader import RangeReader
from anabranch.transfer.jobs.record import (
    ARCHIVE,
    COPY_SCOPE,
    COPY_WHERE,
    IMPORT,
    REPLACE,
    JobRow,
    JobSource,
    JobState,
    SourcePlan,
    need_job,
    need_plan,
    put_job,
)
from anabranch.transfer.jobs.remote_tasks import Carrier, MoveBundle
from anabranch.transfer.jobs.replace_range import ReplaceRun, drop_replacement
from anabranch.transfer.jobs.window import WorkWindow


class JobWorker(Protocol):
    """Carries out jobs of one kind."""

    def run(self, row: JobRow) -> JobRow:
        """Do what is missing of a job. Returns its row, done."""
        ...


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
        *,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.control = RunControl(target, job)
        self.window = WorkWindow(target.runtime.tasks, window, around=self._step_span)
        self.memory = MemoryGauge(target.runtime.tasks)
        self._sources = sources
        self._target = target
        self._carrier = carrier
        self._progress = progress
        self._changed = changed
        self._telling = target.runtime.tasks.lock()
        self._done = self._total = 0
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
            runtime = self._target.runtime
            with (
                HeldLease(self._target.catalog, runtime, "job", row.id) as hold,
                job_heartbeat(self.control, hold, runtime),
            ):
                return self._work(row, hold)
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

    def _work(self, row: JobRow, hold: HeldLease) -> JobRow:
        if row.verb in _WORKERS:
            return _WORKERS[row.verb](self._context(hold)).run(row)
        if row.result is None:
            with self._target.catalog.reading() as snapshot:
                plans = [need_plan(snapshot, row.id, number) for number in range(len(row.parts))]
            if self._carrier is None:
                self._move(row, plans, hold)
            else:
                self._carry(self._carrier, row, plans, hold)
            row = self._finish(plans)
        if "follow" in row.options:
            row = self._follow(row, hold)
        elif row.state is not JobState.DONE:
            row = self._give_up(row)
        return row

    def _give_up(self, row: JobRow) -> JobRow:
        """Delete the sources, now that the target is in place, and end the job. Any of it may have been done before."""
        for number, job_store in enumerate(self._sources):
            with job_store.catalog.reading() as snapshot:
                refuse_written(snapshot, row, number)
        for number, job_store in enumerate(self._sources):

            def let_go(number: int = number, job_store: JobStore = job_store) -> None:
                with job_store.catalog.writing() as txn:
                    delete_sources(txn, row, number, job_store.runtime.clock.now())

            UNCERTAIN.call(self._target.runtime, let_go)
        return self._end()

    def _end(self) -> JobRow:
        with self._target.catalog.writing(f"job {self.control.job}") as txn:
            row = self.control.step(txn).released(JobState.DONE)
            put_job(txn, row)
        return row

    def _context(self, hold: HeldLease) -> JobContext:
        return JobContext(
            self._sources[0],
            self._target,
            self.control,
            self.window,
            self.memory,
            hold,
            self._carrier,
            self._progress,
            self._changed,
        )

    def _move(self, row: JobRow, plans: Sequence[SourcePlan], hold: HeldLease) -> None:
        self._done, self._total = row.bytes_before, row.bytes
        range_readers = [self._range_reader(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        order = preferred(row)
        keep_masks = None
        if "deduplicate" in row.options:
            compared = self._compared(row, range_readers, plans)
            columns = columns_compared(row, self._target)
            keep_masks = build_deduplicator(columns, compared, self.control, self._target.runtime.tasks, self._progress)
            self._note(keep_masks.repeats)
        works = []
        for number in order:
            stage = row.parts[number].stage
            mover = RangeMover(
                range_readers[number],
                self._target,
                stage,
                self.control,
                hold,
                self.memory,
                self._report,
                keep_masks=keep_masks,
            )
            works += [lambda each=each, mover=mover: mover.move(each) for each in bundled(plans[number].ranges)]
        try:
            self.window.run(works, interrupted=lambda: self.control.stop(JobState.PAUSED))
        finally:
            if keep_masks is not None:
                keep_masks.close()

    def _carry(self, carrier: Carrier, row: JobRow, plans: Sequence[SourcePlan], hold: HeldLease) -> None:
        """Have the bundles moved in other processes. The last transaction checks that everything has arrived."""
        kept: KeptRanges | None = None
        try:
            if "deduplicate" in row.options:
                kept = self._compare(carrier, row, plans)
            bundles = [
                MoveBundle(
                    row.id,
                    self.control.owner,
                    hold.lease,
                    part.stream,
                    part.stage,
                    plan.schema_version,
                    tuple(each),
                    None if kept is None else kept.of(each),
                    part.store,
                )
                for part, plan in ((row.parts[number], plans[number]) for number in preferred(row))
                for each in bundled(plan.ranges)
            ]
            carrier(bundles)
        except Exception:
            self.control.check_state()  # a job that was asked to stop has not failed
            raise
        self.control.check_state()

    def _compare(self, carrier: Carrier, row: JobRow, plans: Sequence[SourcePlan]) -> KeptRanges:
        """Have the repeats found in other processes too."""
        if not isinstance(carrier, DeduplicatingCarrier):
            raise InvalidArgument("this carrier copies bytes and can't find repeats: resume the job without it")
        range_readers = [self._range_reader(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        compared = self._compared(row, range_readers, plans)
        kept = compare_remotely(compared, columns_compared(row, self._target), carrier, self.control)
        self._note(kept.repeats)
        return kept

    def _compared(
        self, row: JobRow, range_readers: Sequence[RangeReader], plans: Sequence[SourcePlan]
    ) -> list[ComparedRanges]:
        """What is searched for repeats, in the order of preference."""
        sources = [
            ComparedRanges(range_readers[n], plans[n].ranges, moved=True, store=row.parts[n].store)
            for n in preferred(row)
        ]
        return [*existing_ranges(row, self._target), *sources]

    def _note(self, repeats: int) -> None:
        with self._target.catalog.writing(f"job {self.control.job}") as txn:
            put_job(txn, replace(self.control.step(txn), repeats=repeats))

    def _follow(self, row: JobRow, hold: HeldLease) -> JobRow:
        until = Until.from_json(row.options["follow"])
        return FollowRun(
            self._sources[0],
            self._target,
            row.parts[0],
            until,
            shared=bool(row.options.get("shared")),
            control=self.control,
            window=self.window,
            hold=hold,
            memory=self.memory,
            progress=self._progress,
            changed=self._changed,
        ).run()

    def _range_reader(self, part: JobSource, plan: SourcePlan) -> RangeReader:
        with self._target.catalog.reading() as snapshot:
            schemas = [snapshot.schema(part.stage, version) for version in range(1, plan.schema_version + 1)]
        return RangeReader(self._sources[part.store], part.stream, schemas)

    def _report(self, events: int, size: int) -> None:
        with self._telling:
            self._done += size
            self._progress("copy", self._done, self._total)

    def _finish(self, plans: Sequence[SourcePlan]) -> JobRow:
        now = self._target.runtime.clock.now()
        stream = StreamId(self._target.runtime.ids.bits(63))
        with self._target.catalog.writing() as txn:
            row = self.control.step(txn)
            result = finish_job(txn, row, plans, stream, now)
            drop_plans(txn, row)
            row = replace(row, result=result)
            if "follow" in row.options:
                row = replace(row, positions=open_positions(need_view(txn, row.parts[0].stage)))
            elif not row.gives_up or row.options.get("within"):
                row = row.released(JobState.DONE)
            put_job(txn, row)
        self._changed()
        return row

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
