"""Running a job that copies, appends or stitches streams: its ranges are moved into stages, which become the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.runtime.retry import UNCERTAIN
from anabranch.streams.directory.find import need_view
from anabranch.transfer.jobs.bundles import bundled
from anabranch.transfer.jobs.context import JobContext, ProgressCounter
from anabranch.transfer.jobs.deduplicate import (
    ComparedRanges,
    build_deduplicator,
    columns_compared,
    existing_ranges,
    preferred,
)
from anabranch.transfer.jobs.deduplicate_remote import DeduplicatingCarrier, KeptRanges, compare_remotely
from anabranch.transfer.jobs.delete_sources import delete_sources, refuse_written
from anabranch.transfer.jobs.finish import drop_plans, finish_job
from anabranch.transfer.jobs.follow import FollowRun, open_positions
from anabranch.transfer.jobs.move import RangeMover
from anabranch.transfer.jobs.range_reader import RangeReader
from anabranch.transfer.jobs.record import JobRow, JobSource, JobState, SourcePlan, need_plan, put_job
from anabranch.transfer.jobs.remote_tasks import Carrier, MoveBundle


class TransferRun:
    """One run of a job that copies, appends or stitches."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._control = context.control
        self._sources, self._target = context.sources, context.target

    def run(self, row: JobRow) -> JobRow:
        """Move what is missing, make the target, and follow the source or delete the sources if the job's options say
        so."""
        if row.result is None:
            with self._target.catalog.reading() as snapshot:
                plans = [need_plan(snapshot, row.id, number) for number in range(len(row.parts))]
            if self._context.carrier is None:
                self._move(row, plans)
            else:
                self._context.elsewhere(lambda carrier: carrier(self._bundles(carrier, row, plans)))
            row = self._finish(plans)
        if "follow" in row.options:
            return FollowRun(self._context, row).run()
        return row if row.state is JobState.DONE else self._give_up(row)

    def _move(self, row: JobRow, plans: Sequence[SourcePlan]) -> None:
        range_readers = [self._range_reader(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        keep_masks = None
        if "deduplicate" in row.options:
            compared, tasks = self._compared_ranges(row, range_readers, plans), self._target.runtime.tasks
            columns = columns_compared(row, self._target)
            keep_masks = build_deduplicator(columns, compared, self._control, tasks, self._context.progress)
            self._note(keep_masks.repeats)
        counter = ProgressCounter(self._context, "copy", row.bytes, row.bytes_before)
        task = self._context.task(lambda _, size: counter.add(size))
        works = []
        for number in preferred(row):
            stage = row.parts[number].stage
            mover = RangeMover(range_readers[number], self._target, stage, task, keep_masks=keep_masks)
            works += [partial(mover.move, each) for each in bundled(plans[number].ranges)]
        try:
            self._context.run(works)
        finally:
            if keep_masks is not None:
                keep_masks.close()

    def _bundles(self, carrier: Carrier, row: JobRow, plans: Sequence[SourcePlan]) -> list[MoveBundle]:
        """The bundles that the carrier moves. The last transaction checks that everything has arrived."""
        kept = self._compare(carrier, row, plans) if "deduplicate" in row.options else None
        run = (row.id, self._control.owner, self._context.hold.lease)
        return [
            MoveBundle(
                *run,
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

    def _compare(self, carrier: Carrier, row: JobRow, plans: Sequence[SourcePlan]) -> KeptRanges:
        """Have the repeats found in other processes too."""
        if not isinstance(carrier, DeduplicatingCarrier):
            raise InvalidArgument("this carrier copies bytes and can't find repeats: resume the job without it")
        range_readers = [self._range_reader(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        compared = self._compared_ranges(row, range_readers, plans)
        kept = compare_remotely(compared, columns_compared(row, self._target), carrier, self._control)
        self._note(kept.repeats)
        return kept

    def _compared_ranges(
        self, row: JobRow, range_readers: Sequence[RangeReader], plans: Sequence[SourcePlan]
    ) -> list[ComparedRanges]:
        """The ranges that are searched for repeats, in the order of preference."""
        sources = [
            ComparedRanges(range_readers[n], plans[n].ranges, moved=True, store=row.parts[n].store)
            for n in preferred(row)
        ]
        return [*existing_ranges(row, self._target), *sources]

    def _range_reader(self, part: JobSource, plan: SourcePlan) -> RangeReader:
        source = self._sources[part.store]
        return RangeReader.into(self._target, part.stage, plan.schema_version, source, part.stream)

    def _note(self, repeats: int) -> None:
        self._control.act(lambda txn, row: put_job(txn, replace(row, repeats=repeats)), on=f"job {self._control.job}")

    def _finish(self, plans: Sequence[SourcePlan]) -> JobRow:
        now = self._target.runtime.clock.now()
        stream = StreamId(self._target.runtime.ids.bits(63))
        with self._target.catalog.writing() as txn:
            row = self._control.step(txn)
            row = replace(row, result=finish_job(txn, row, plans, stream, now))
            drop_plans(txn, row)
            if "follow" in row.options:
                row = replace(row, positions=open_positions(need_view(txn, row.parts[0].stage)))
            elif not row.gives_up or row.options.get("within"):
                row = row.released(JobState.DONE)
            put_job(txn, row)
        self._context.changed()
        return row

    def _give_up(self, row: JobRow) -> JobRow:
        """Delete the sources, now that the target is in place, and end the job. May be repeated after a part of it was
        done."""
        for number, job_store in enumerate(self._sources):
            with job_store.catalog.reading() as snapshot:
                refuse_written(snapshot, row, number)
        for number in range(len(self._sources)):
            UNCERTAIN.call(self._target.runtime, partial(self._delete_sources, row, number))
        return self._control.end(lambda _, row: row, on=f"job {self._control.job}")

    def _delete_sources(self, row: JobRow, number: int) -> None:
        job_store = self._sources[number]
        with job_store.catalog.writing() as txn:
            delete_sources(txn, row, number, job_store.runtime.clock.now())
