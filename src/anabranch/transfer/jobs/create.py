"""Creating a job: its sources are read once, and everything needed to run or resume it is stored in the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.core.cuts import head_cut, tail_cut
from anabranch.core.stitch import joined_schema
from anabranch.core.stream_slice import StreamSlice, plan_slice
from anabranch.errors import InvalidArgument, StreamExists
from anabranch.log.slices import split_slice
from anabranch.model.cut import Edge
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.schema import StreamSchema
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.copy import copy_arguments, copy_stream, existing_copy, schemas_of
from anabranch.streams.directory.find import need_free, need_view, range_cuts, range_stream
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lineage.origins import origin_part
from anabranch.transfer.jobs.follow import open_positions
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.record import (
    JobRange,
    JobRow,
    JobSource,
    JobState,
    SourcePlan,
    open_jobs,
    put_job,
    put_plan,
)
from anabranch.transfer.jobs.stage import open_stage, stage_name


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """A source as of one snapshot: what lies between its cuts, in slices, all its schemas, and its lineage. `store` is
    the number of its store."""

    asked: StreamRange
    stream_slice: StreamSlice
    schemas: tuple[StreamSchema, ...]
    origin: OriginPart
    slices: tuple[SegmentRange, ...]
    store: int = 0

    @property
    def stream(self) -> StreamId:
        """The id of the stream."""
        return self.stream_slice.view.info.id

    def copy_arguments(self, options: Mapping[str, Any]) -> dict[str, object]:
        """The arguments of a copy with these options, by which the same call is recognized."""
        return copy_arguments(self.asked, **({"independent": True} if options.get("independent") else {}))


def take_snapshot(source: JobStore, part: StreamRange, store: int = 0) -> SourceSnapshot:
    """Take a snapshot of a source. Raises StreamNotFound, InvalidCut, Truncated."""
    with source.catalog.reading() as reading:
        view = need_view(reading, range_stream(part))
        stream_slice = plan_slice(view, *range_cuts(part))
        schemas = schemas_of(reading, view.info.id, view.info.schema_version)
        found = split_slice(reading, stream_slice, bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_RANGES_MAX)
        return SourceSnapshot(
            part, stream_slice, tuple(schemas), origin_part(reading, stream_slice), tuple(found), store
        )


def make_job(
    txn: Writing,
    job: str,
    verb: str,
    target: StreamName,
    sources: Sequence[SourceSnapshot],
    stages: Sequence[StreamId],
    *,
    places: Sequence[Mapping[str, str]],
    options: Mapping[str, Any],
    now: Micros,
) -> JobRow:
    """Create a job that has not begun yet, with a stage for each of its sources, whose stores are at `places`. Or find
    an unfinished copy with the same arguments. Raises ScopeNotFound; StreamExists if a copy's target is something else;
    SchemaMismatch. If the target is already that copy, the job is created as done."""
    need_scope(txn, target.scope)
    copy = (sources[0].stream, target, sources[0].copy_arguments(options))
    if verb == "copy" and (same := unfinished_copy(txn, verb, *copy, options)) is not None:
        return same
    row = JobRow(job, verb, str(target), (), places[0], options, now, more_places=tuple(places[1:]))
    if options.get("shared"):
        return _viewing(txn, row, sources[0], stages[0])
    if verb == "copy" and (made := existing_copy(txn, *copy)) is not None:
        if "follow" in options:
            raise StreamExists(str(target))
        row = replace(row, state=JobState.DONE, result=made.to_json())
    else:
        infos = [snapshot.stream_slice.view.info for snapshot in sources]
        if verb == "append":
            onto = need_view(txn, target)
            infos.insert(0, onto.info)
            if "deduplicate" in options:
                row = replace(row, options={**options, "against": _against(onto)})
        elif not _replaces_source(txn, target, sources, options):
            need_free(txn, target)
        joined_schema(infos)  # raises if the schemas can't be joined, before anything is moved
        row = replace(
            row, parts=tuple(stage_part(txn, row, n, *each) for n, each in enumerate(zip(sources, stages, strict=True)))
        )
    put_job(txn, row)
    return row


def unfinished_copy(
    txn: Reading,
    verb: str,
    source: StreamId,
    target: StreamName,
    asked: Mapping[str, object],
    options: Mapping[str, Any] | None = None,
) -> JobRow | None:
    """The job that makes the same copy, if one has not ended; with `options`, only one that has them."""
    for row in open_jobs(txn, str(target)):
        same = row.verb == verb and (options is None or dict(row.options) == dict(options))
        if same and (row.parts[0].stream, dict(row.parts[0].asked)) == (source, dict(asked)):
            return row
    return None


def _viewing(txn: Writing, row: JobRow, snapshot: SourceSnapshot, stream: StreamId) -> JobRow:
    """A job that follows a stream of its own store begins with a copy that shares the existing bytes."""
    need_free(txn, row.stream)  # an existing copy can't be reused: it may no longer match the source
    copied = copy_stream(txn, snapshot.asked, row.stream, stream, row.created_at)
    part = JobSource(
        copied.source,
        snapshot.stream_slice.view.info.name,
        copied.start,
        copied.end,
        snapshot.copy_arguments({}),
        copied.copy,
        0,
        0,
        snapshot.origin,
    )
    positions = open_positions(need_view(txn, copied.copy))
    row = replace(row, parts=(part,), result=copied.to_json(), positions=positions)
    put_job(txn, row)
    return row


def stage_part(txn: Writing, row: JobRow, number: int, snapshot: SourceSnapshot, stage: StreamId) -> JobSource:
    """Store the plan of a job's `number`th source, and open its stage."""
    stream_slice = snapshot.stream_slice
    info = stream_slice.view.info
    name = stage_name(row.stream, row.id, number)
    logs = open_stage(txn, name, stage, snapshot.schemas, len(snapshot.slices), row.created_at)
    plan = SourcePlan(
        info.schema_version,
        info.epoch,
        info.next_number,
        info.tags,
        tuple((piece.segment, piece.stop) for piece in stream_slice.segments),
        tuple(JobRange(*each, log) for each, log in zip(snapshot.slices, logs, strict=False)),
        stream_slice.appended_at,
    )
    put_plan(txn, row.id, number, plan)
    return JobSource(
        info.id,
        info.name,
        stream_slice.start,
        stream_slice.end,
        snapshot.copy_arguments(row.options),
        stage,
        stream_slice.events,
        sum(each.bytes for each in snapshot.slices),
        replace(snapshot.origin, place=row.places[snapshot.store].get("url")),
        snapshot.store,
    )


def _replaces_source(
    txn: Writing, target: StreamName, sources: Sequence[SourceSnapshot], options: Mapping[str, Any]
) -> bool:
    """True if the target has the name of a source in this store that is deleted when the target is created."""
    present = txn.stream(target) if options.get("within") and options.get("drop") else None
    return present is not None and present.id in {snapshot.stream for snapshot in sources}


def _against(onto: StreamView) -> dict[str, str]:
    """The range that the stream `onto` holds now; the sources' events are compared with it."""
    return {"stream": f"{onto.info.id:016x}", "from": str(head_cut(onto)), "to": str(tail_cut(onto))}


def require_open_end(part: StreamRange) -> StreamRange:
    """The range, if it is open-ended. Raises InvalidArgument otherwise: a copy that follows has no end."""
    if not isinstance(part.end, Edge) or part.end is not Edge.TAIL:
        raise InvalidArgument("a copy that follows its source has no end: omit the end, or don't follow")
    return part
