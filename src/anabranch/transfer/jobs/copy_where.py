"""Copying the events for which a condition is true, as a job: where the catalog can't tell which events match, or the
matching events lie scattered.

When the job is created, an internal stream takes a view of the source, so later changes of the source have no effect.
Then each portion is decided and, where matching events lie scattered, rewritten into logs that another internal stream
views. Its row says what it keeps, so a resumed job continues with the others. One transaction turns the first internal
stream into the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.job_plan import COPY_PORTION, CopyPortion, PortionKey, rows_of
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.copy import CopyResult
from anabranch.core.filtered_slice import KeptEvents, filtered_slice, in_place, summary
from anabranch.core.replacement import RewrittenRuns, Run
from anabranch.core.stream_slice import SegmentSlice, StreamSlice, plan_slice
from anabranch.errors import Conflict, InvalidArgument
from anabranch.log.read import LogReader
from anabranch.log.rewrite import RewrittenFile
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.streams.algebra.copy import (
    copy_arguments,
    existing_copy,
    insert_schemas,
    insert_slice,
    record_copy,
    schemas_of,
)
from anabranch.streams.directory.find import need_free, need_view
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lineage.origins import origin_part
from anabranch.transfer.filters.event_filter import EventFilter
from anabranch.transfer.filters.scan import ScannedPart, scattered, selected_runs
from anabranch.transfer.jobs.context import JobContext, ProgressCounter
from anabranch.transfer.jobs.create import SourceSnapshot, unfinished_copy
from anabranch.transfer.jobs.progress import MeasuredProgress, RangeProgress
from anabranch.transfer.jobs.record import COPY_WHERE, JobRow, JobSource, JobState, need_job, put_job
from anabranch.transfer.jobs.stage import open_portions, remove_stage, stage_name, view_portion

FILTERED: Final = "events filtered"
"""The step of a copy by a filter, as passed to progress callbacks."""


# creating and ending


def make_filtered_copy(
    txn: Writing,
    job: str,
    snapshot: SourceSnapshot,
    target: StreamName,
    where: str,
    *,
    stages: tuple[StreamId, StreamId],
    now: Micros,
) -> JobRow:
    """Create a job that copies the matching events of a source, or find an unfinished one with the same arguments. If
    the target is already that copy, the job is created as done. Raises StreamNotFound, ScopeNotFound, StreamExists,
    InvalidArgument, Truncated."""
    need_scope(txn, target.scope)
    source, asked = snapshot.stream, copy_arguments(snapshot.asked, where=where)
    if (same := unfinished_copy(txn, COPY_WHERE, source, target, asked)) is not None:
        return same
    row = JobRow(job, COPY_WHERE, str(target), (), {}, {"within": True, "where": where}, now)
    if (made := existing_copy(txn, source, target, asked)) is not None:
        row = replace(row, state=JobState.DONE, result=made.to_json(), source=str(snapshot.asked))
        put_job(txn, row)
        return row
    view = need_view(txn, source)
    reject_byte_stream(view.info)
    part_slice = plan_slice(view, snapshot.stream_slice.start, snapshot.stream_slice.end)
    stream, stage = stages
    info = replace(view.info, id=stream, name=stage_name(target, job, 0), created_at=now, sealed=False, version=1)
    insert_schemas(txn, info, schemas_of(txn, source, info.schema_version))
    insert_slice(txn, stream, part_slice)
    open_portions(txn, stage_name(target, job, 1), stage, now)
    for each in snapshot.slices:
        txn.put_state(COPY_PORTION, PortionKey(job, each.segment, each.start), CopyPortion(each.stop, each.bytes, None))
    size = sum(each.bytes for each in snapshot.slices)
    origin = origin_part(txn, part_slice)
    part = JobSource(
        source, view.info.name, part_slice.start, part_slice.end, asked, stream, part_slice.events, size, origin
    )
    row = replace(row, parts=(part,))
    put_job(txn, row)
    return row


def drop_filtered_copy(txn: Writing, row: JobRow) -> None:
    """Delete what a job has rewritten: the copy views it now, or the job was cancelled."""
    if row.verb != COPY_WHERE:
        return
    stage = txn.stream(stage_name(row.stream, row.id, 1))
    if stage is not None:
        txn.drop_stream(stage.id)
    for key, _ in txn.states(COPY_PORTION, prefix=rows_of(row.id)):
        txn.drop_state(COPY_PORTION, key)


def filtered_so_far(txn: Reading, row: JobRow) -> MeasuredProgress:
    """The events and logical bytes for which the filter was evaluated, and the progress of each portion."""
    found = txn.states(COPY_PORTION, prefix=rows_of(row.id))
    done = [(key, portion) for key, portion in found if portion.kept is not None]
    name = str(row.parts[0].name) if row.parts else ""
    ranges = tuple(
        RangeProgress(name, str(key.segment), key.start, each.stop, key.start if each.kept is None else each.stop)
        for key, each in found
    )
    events = sum(each.stop - key.start for key, each in done)
    return MeasuredProgress(events, sum(each.bytes for _, each in done), ranges)


# running


class FilteredCopyRun:
    """One run of a job that copies by a filter."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._job_store = context.target
        self._job = context.control.job
        self._logs = LogReader(self._job_store.catalog, self._job_store.blobs, self._job_store.runtime)

    def run(self, row: JobRow) -> JobRow:
        """Decide what is missing, and make the copy. Returns the job's row, done. Raises InvalidSql if the condition
        can't be evaluated for an event; StreamExists, ScopeNotFound, MissingExtra, CorruptBlob, LeaseExpired."""
        if self._context.carrier is not None:
            raise InvalidArgument("a carrier copies bytes and can't filter events: resume the job without it")
        with self._job_store.catalog.reading() as snapshot:
            view = need_view(snapshot, row.parts[0].stage)
            portions = snapshot.states(COPY_PORTION, prefix=rows_of(row.id))
        event_filter = EventFilter(row.options["where"], view.info.schema)
        missing = [(key, portion) for key, portion in portions if portion.kept is None]
        left = sum(portion.stop - key.start for key, portion in missing)
        counter = ProgressCounter(self._context, FILTERED, row.events, row.events - left)

        def work(key: PortionKey, portion: CopyPortion) -> None:
            self._decide(ScannedPart(view, key.segment, key.start, portion.stop), event_filter)
            counter.add(portion.stop - key.start)

        self._context.run([partial(work, *each) for each in missing])
        row = self._context.control.end(self._finish)
        self._context.changed()
        return row

    def _decide(self, part: ScannedPart, event_filter: EventFilter) -> None:
        """Find out what a portion keeps, rewrite what is scattered, and record both."""
        self._context.control.check_state()
        hold = self._context.hold
        runs = selected_runs(self._logs, part, event_filter, read=True, watch=hold.renew)
        files = {group[0]: (group, self._rewritten(part, group)) for group in scattered(runs)}

        def act(txn: Writing, _: JobRow) -> None:
            key = PortionKey(self._job, part.segment, part.start)
            portion = txn.state(COPY_PORTION, key)
            if portion is None:
                raise Conflict(f"the portions of job {self._job} were deleted by another process: cancel the job")
            if portion.kept is None:  # else it was recorded already, and the answer was lost
                txn.put_state(COPY_PORTION, key, replace(portion, kept=self._publish(txn, part.segment, runs, files)))

        self._context.control.act(act)

    def _rewritten(self, part: ScannedPart, runs: tuple[Run, ...]) -> RewrittenFile:
        job_store = self._job_store
        return RewrittenFile(
            job_store.catalog,
            self._logs,
            job_store.blobs,
            job_store.runtime,
            part.view,
            part.segment,
            runs,
            self._context.hold,
        )

    def _publish(
        self,
        txn: Writing,
        segment: SegmentId,
        runs: Sequence[Run],
        files: Mapping[Run, tuple[tuple[Run, ...], RewrittenFile]],
    ) -> tuple[KeptEvents, ...]:
        kept: list[KeptEvents] = []
        recorded = len(runs) <= limits.REPLACE_MOVES_MAX
        for run in runs:
            if run in files:
                group, file = files[run]
                rewritten = RewrittenRuns(segment, group, file.publish(txn))
                view_portion(txn, self._need_stage(txn), rewritten)
                kept.append(
                    KeptEvents(run[0], group[-1][1], rewritten.events, rewritten.log, group if recorded else None)
                )
            elif not kept or kept[-1].stop <= run[0]:  # else it belongs to the group before
                kept.append(in_place(*run))
        return tuple(kept)

    def _need_stage(self, txn: Writing) -> StreamView:
        """The internal stream that keeps rewritten events from being collected."""
        row = need_job(txn, self._job)
        info = txn.stream(stage_name(row.stream, row.id, 1))
        view = None if info is None else txn.view(info.id)
        if view is None:
            raise Conflict(f"the target of job {self._job} was deleted by another process: cancel the job")
        return view

    def _finish(self, txn: Writing, row: JobRow) -> JobRow:
        copied = _make_copy(txn, row, self._job_store.runtime.clock.now())
        drop_filtered_copy(txn, row)
        return replace(row, result=copied.to_json())


def _make_copy(txn: Writing, row: JobRow, now: Micros) -> CopyResult:
    """Turn the view of the source into the copy, under the same id."""
    need_scope(txn, row.stream.scope)
    need_free(txn, row.stream)
    part = row.parts[0]
    view = need_view(txn, part.stage)
    kept: dict[SegmentId, list[KeptEvents]] = {}
    for key, portion in txn.states(COPY_PORTION, prefix=rows_of(row.id)):
        assert portion.kept is not None
        kept.setdefault(key.segment, []).extend(portion.kept)
    pieces = tuple(
        SegmentSlice(segment, view.length(segment.id), view.spans.get(segment.id, ())) for segment in view.ordered
    )
    appended_at = max((log.appended_at for log in view.logs.values()), default=Micros(0))
    found, ranges = filtered_slice(StreamSlice(view, part.start, part.end, pieces, appended_at), kept)
    schemas = schemas_of(txn, part.stage, view.info.schema_version)
    remove_stage(txn, view)
    insert_schemas(txn, replace(view.info, name=row.stream, created_at=now, version=1), schemas)
    insert_slice(txn, part.stage, found)
    copied = CopyResult(part.stage, part.stream, part.start, part.end, summary(row.options["where"], kept, ranges))
    record_copy(txn, copied, row.stream, dict(part.asked), replace(part.origin, events=found.events), now)
    return copied
