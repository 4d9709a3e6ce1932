"""Replacing a time range as a job, where kept events lie scattered between removed ones.

The job first scans the times, then rewrites the scattered kept events, a portion at a time, into logs that an internal
stream views. One transaction then replaces; before it, nothing of the job is visible in the stream. A resumed run scans
again and uses the portions that are still needed: later appends, truncations and replacements change which portions are
needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.job_plan import REPLACING, REPLACING_PORTION, PortionKey, Replacing, StagedPortion, rows_of
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.checksum import checksum
from anabranch.core.replacement import RewrittenRuns, Run
from anabranch.core.stitch import merged_schema
from anabranch.core.stream_slice import StreamSlice, plan_slice
from anabranch.errors import Conflict, InvalidArgument, JobNotFound, Truncated
from anabranch.log.read import LogReader
from anabranch.log.rewrite import RewrittenFile
from anabranch.log.sizes import segment_bytes
from anabranch.log.time_scan import ReadNeeded, TimeScan
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.copy import insert_slice
from anabranch.streams.algebra.replace import reject_replacement, replace_events
from anabranch.streams.algebra.replacement import SCANNED, portions, scanned_events
from anabranch.streams.directory.find import need_info, need_view, range_cuts, range_stream
from anabranch.streams.lineage.origins import origin_part
from anabranch.transfer.jobs.context import JobContext, ProgressCounter
from anabranch.transfer.jobs.record import REPLACE, JobRow, JobSource, need_job, put_job
from anabranch.transfer.jobs.stage import open_portions, stage_name, view_portion

REWRITTEN: Final = "events rewritten"
NOTHING: Final = "nothing"  # marks a replacement that only removes events

Portion = tuple[SegmentId, tuple[Run, ...]]


class ReplacementEnded(Conflict):
    """The requested job has ended, and creating another one needs the data again."""

    def __init__(self) -> None:
        super().__init__("the job that makes this replacement has ended: call again with the data")


# creating and ending


def make_replacement(
    txn: Writing,
    job: str,
    stream: StreamName | StreamId,
    source: StreamRange | None,
    *,
    asked: str,
    options: Mapping[str, Any],
    stages: tuple[StreamId, StreamId],
    now: Micros,
) -> JobRow:
    """Create a job that replaces the events of a stream as its `options` say: `low` and `high` in µs, `by` append or
    event time. Or find an unfinished one with the same arguments; `asked` names the source.

    The source is copied, sharing its bytes, so that later changes of the source have no effect. Raises StreamNotFound,
    SchemaMismatch, InvalidArgument, InvalidCut, Truncated; ReplacementEnded if there is no such job and `source` is
    missing, though `asked` names one.
    """
    info = need_info(txn, stream)
    reject_replacement(info)
    if options["by"] == "event" and info.schema.time is None:
        raise InvalidArgument(f"'{info.name}' has no event time; use the append time: by='append'")
    if (same := open_replacement(txn, info.id, asked, options)) is not None:
        return same
    if source is None and asked != NOTHING:  # else the job would only remove events
        raise ReplacementEnded
    copied, stage = stages
    parts: tuple[JobSource, ...] = ()
    if source is not None:
        part_slice = plan_slice(need_view(txn, range_stream(source)), *range_cuts(source))
        reject_byte_stream(part_slice.view.info)
        merged_schema(info, part_slice.view.info)  # raises if the columns can't be joined
        parts = (_copy_source(txn, part_slice, stage_name(info.name, job, 0), copied, now),)
    open_portions(txn, stage_name(info.name, job, 1), stage, now)
    txn.put_state(REPLACING, job, Replacing(info.id, stage, 0, need_view(txn, info.id).events))
    row = JobRow(job, REPLACE, str(info.name), parts, {}, options, now, source=asked)
    put_job(txn, row)
    return row


def open_replacement(txn: Reading, stream: StreamId, asked: str, options: Mapping[str, Any]) -> JobRow | None:
    """The unfinished job with the same stream, source and options, if any."""
    for ident, doing in txn.states(REPLACING):
        if doing.of == stream:
            row = need_job(txn, ident)
            if (row.source, dict(row.options)) == (asked, dict(options)):
                return row
    return None


def replacement_options(low: Micros, high: Micros, by: str) -> dict[str, Any]:
    """The options of a job that replaces."""
    return {"within": True, "low": low, "high": high, "by": by}


def _copy_source(txn: Writing, part_slice: StreamSlice, name: StreamName, ident: StreamId, now: Micros) -> JobSource:
    info = part_slice.view.info
    origin = origin_part(txn, part_slice)
    txn.insert_stream(
        replace(info, id=ident, name=name, tags={}, created_at=now, sealed=False, version=1, schema_version=1)
    )
    insert_slice(txn, ident, part_slice)
    return JobSource(info.id, info.name, part_slice.start, part_slice.end, {}, ident, 0, 0, origin)


def drop_replacement(txn: Writing, job: str) -> None:
    """Delete what a job has rewritten: the stream views it now, or the job was cancelled."""
    doing = txn.state(REPLACING, job)
    if doing is None:
        return
    if txn.stream(doing.stage) is not None:
        txn.drop_stream(doing.stage)
    for key, _ in txn.states(REPLACING_PORTION, prefix=rows_of(job)):
        txn.drop_state(REPLACING_PORTION, key)
    txn.drop_state(REPLACING, job)


def rewritten_so_far(txn: Reading, job: str) -> tuple[int, int]:
    """The events and logical bytes that a job has rewritten."""
    found = [portion for _, portion in txn.states(REPLACING_PORTION, prefix=rows_of(job))]
    logs = txn.logs([each.log for each in found]) if found else {}
    return sum(each.events for each in found), sum(log.size for log in logs.values())


# running


class ReplaceRun:
    """One run of a job that replaces."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._job_store = context.target
        self._logs = LogReader(self._job_store.catalog, self._job_store.blobs, self._job_store.runtime)

    def run(self, row: JobRow) -> JobRow:
        """Scan the times, rewrite what is missing, and replace. Returns the job's row, done. Raises
        StreamNotFound if the stream was deleted, SchemaMismatch, CorruptBlob, LeaseExpired."""
        if self._context.carrier is not None:
            raise InvalidArgument("a carrier copies bytes and can't replace events: resume the job without it")
        scan = self._scan(row)
        tries = limits.REPLACE_TRIES_MAX
        while True:
            try:
                view = self._scan_times(scan)
                rewritten = self._rewrite(view, portions(scan, view))
                tries -= 1
                return self._replace(scan, rewritten, read=tries <= 0)
            except (ReadNeeded, Truncated):
                continue  # events were appended, or the stream was truncated or replaced meanwhile

    def _scan(self, row: JobRow) -> TimeScan:
        low, high, by = row.options["low"], row.options["high"], row.options["by"]
        return TimeScan(self._logs, low, high, by_event_time=by == "event")

    def _need(self, txn: Reading) -> Replacing:
        doing = txn.state(REPLACING, self._context.control.job)
        if doing is None:
            raise JobNotFound(self._context.control.job)
        return doing

    def _scan_times(self, scan: TimeScan) -> StreamView:
        with self._job_store.catalog.reading() as snapshot:
            view = need_view(snapshot, self._need(snapshot).of)
        total = view.events

        def watch() -> None:
            self._context.hold.renew()
            scanned_count = scanned_events(scan)
            self._record_scan(scanned_count, total)
            self._context.progress(SCANNED, scanned_count, total)

        scan.advance(view, watch)
        return view

    def _record_scan(self, scanned: int, total: int) -> None:
        job = self._context.control.job

        def act(txn: Writing, _: JobRow) -> None:
            txn.put_state(REPLACING, job, replace(self._need(txn), scanned=scanned, total=total))

        self._context.control.act(act, on=f"job {job}")

    def _rewrite(self, view: StreamView, wanted: Sequence[Portion]) -> list[RewrittenRuns]:
        """Rewrite what is missing of these portions."""
        job = self._context.control.job
        with self._job_store.catalog.reading() as snapshot:
            finished = dict(snapshot.states(REPLACING_PORTION, prefix=rows_of(job)))
            sizes = [segment_bytes(snapshot, view, segment, *_ends(runs)) for segment, runs in wanted]
        counts = [_events(runs) for _, runs in wanted]
        found: dict[Portion, RewrittenRuns] = {}
        missing: list[Portion] = []
        for segment, runs in wanted:
            portion = finished.get(PortionKey(job, segment, runs[0][0]))
            if portion is not None and (portion.events, portion.digest) == (_events(runs), _digest(runs)):
                found[segment, runs] = RewrittenRuns(segment, runs, portion.log)
            else:
                missing.append((segment, runs))
        total = sum(counts)
        left = sum(_events(runs) for _, runs in missing)
        counter = ProgressCounter(self._context, REWRITTEN, total, total - left)
        spread = zip(wanted, counts, sizes, strict=True)
        self._plan(total, sum(size * count // (_ends(runs)[1] - _ends(runs)[0]) for (_, runs), count, size in spread))

        def work(portion: Portion) -> None:
            found[portion] = self._portion(view, *portion)
            counter.add(found[portion].events)

        self._context.run([partial(work, each) for each in missing])
        return [found[each] for each in wanted]

    def _plan(self, events: int, size: int) -> None:
        def act(txn: Writing, row: JobRow) -> None:
            if row.amount != (events, size):
                put_job(txn, replace(row, amount=(events, size)))

        self._context.control.act(act, on=f"job {self._context.control.job}")

    def _portion(self, view: StreamView, segment: SegmentId, runs: tuple[Run, ...]) -> RewrittenRuns:
        self._context.control.check_state()
        job_store, hold = self._job_store, self._context.hold
        file = RewrittenFile(
            job_store.catalog, self._logs, job_store.blobs, job_store.runtime, view, segment, runs, hold
        )
        job = self._context.control.job
        key = PortionKey(job, segment, runs[0][0])

        def act(txn: Writing, _: JobRow) -> RewrittenRuns:
            stage = self._need_stage(txn)
            present = txn.state(REPLACING_PORTION, key)
            if present is not None and present.log == file.log:  # an answer was lost
                return RewrittenRuns(segment, runs, file.log)
            rewritten = RewrittenRuns(segment, runs, file.publish(txn))
            view_portion(txn, stage, rewritten)
            txn.put_state(REPLACING_PORTION, key, StagedPortion(rewritten.events, _digest(runs), rewritten.log))
            return rewritten

        return self._context.control.act(act)

    def _need_stage(self, txn: Writing) -> StreamView:
        """The internal stream that keeps the portions from being collected."""
        doing = self._need(txn)
        view = txn.view(doing.stage)
        if view is None:
            job = self._context.control.job
            raise Conflict(f"the target of job {job} was deleted by another process: cancel the job, and replace again")
        return view

    def _replace(self, scan: TimeScan, rewritten: Sequence[RewrittenRuns], *, read: bool) -> JobRow:
        def act(txn: Writing, row: JobRow) -> JobRow:
            self._need_stage(txn)
            stream, now = self._need(txn).of, self._job_store.runtime.clock.now()
            part = row.parts[0] if row.parts else None
            source, drop = (None, ()) if part is None else (StreamRange(part.stage), (part.stage,))
            origin = None if part is None else part.origin
            result = replace_events(
                txn, stream, scan, source, now, read=read, rewritten=rewritten, drop=drop, origin=origin
            )
            drop_replacement(txn, row.id)
            return replace(row, result=result.to_json())

        row = self._context.control.end(act)
        self._context.changed()
        return row


def _ends(runs: Sequence[Run]) -> Run:
    return runs[0][0], runs[-1][1]


def _events(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)


def _digest(runs: Sequence[Run]) -> int:
    return checksum(np.asarray(runs, dtype="<i8").tobytes())
