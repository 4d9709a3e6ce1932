"""Replacing the events of a time range of a stream, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.cuts import walk_cut
from anabranch.core.replacement import ReplacePlan, RewrittenRuns, plan_replace
from anabranch.core.stitch import StitchPlan, merged_schema
from anabranch.core.stream_slice import StreamSlice, plan_slice
from anabranch.errors import InvalidArgument
from anabranch.log.time_scan import TimeScan
from anabranch.log.view import add_relocation
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.replaced import Relocated, Replaced
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.append import insert_slices, joined_info, open_new_segments
from anabranch.streams.directory.find import need_info, range_cuts, range_stream
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.lineage.origins import origin_part, prefetch_origins, record_origin


def reject_replacement(info: StreamInfo) -> None:
    """Raise InvalidArgument for a stream whose events must keep their offsets: a byte stream, or an internal one."""
    reject_byte_stream(info)
    if info.name.internal:
        raise InvalidArgument(f"'{info.name}' is an internal stream: its events can't be replaced")


def replace_events(
    txn: Writing,
    stream: StreamName | StreamId,
    scan: TimeScan,
    source: StreamRange | None,
    now: Micros,
    *,
    read: bool,
    rewritten: Sequence[RewrittenRuns] = (),
    drop: Collection[StreamId] = (),
    origin: OriginPart | None = None,
) -> Replaced:
    """Replace the events that `scan` has found, and those that it finds among later appends, with those of `source`.
    If `source` is a copy of another stream, `origin` is that stream, and the lineage and the result name `origin`.

    The open segments are sealed, and new ones of the same key ranges follow under the old fences, or none if the stream
    was sealed: writers continue without any action. A source in `drop` is deleted. Without `read`, raises
    ReadNeeded where the times of events appended since the scan would have to be read. Raises StreamNotFound,
    SchemaMismatch, InvalidArgument, InvalidCut, Truncated.
    """
    names = [stream, *([] if source is None else [range_stream(source)])]
    txn.prefetch(streams=names)
    ids = [need_info(txn, each).id for each in names]
    prefetch_origins(txn, ids)
    txn.prefetch(logs_of=ids[:1])
    views = txn.views(ids)
    view = views[ids[0]]
    reject_replacement(view.info)
    scan.complete(txn, view, read=read)
    place = walk_cut(view, lambda segment: scan.first(view, segment))
    removed = {segment.id: scan.runs(view, segment.id) for segment in view.ordered}
    part_slice = None if source is None else plan_slice(views[ids[1]], *range_cuts(source))
    schema = view.info.schema if part_slice is None else merged_schema(view.info, part_slice.view.info)
    opened = () if view.info.sealed else tuple(segment.range for segment in view.current)
    found = None if part_slice is None else (part_slice.view, part_slice.start, part_slice.end)
    plan = plan_replace(view, place, removed, found, rewritten=rewritten, opened=opened)
    origins = [] if part_slice is None else [origin or origin_part(txn, part_slice)]
    _apply(txn, view, plan, part_slice)
    info = joined_info(view.info, schema, plan.epoch, plan.number)
    txn.update_stream(info)
    add_relocation(txn, info.id, plan.relocation)
    result = _result(view, plan, None if not origins else origins[0].source)
    if origins:
        record_origin(txn, info.id, "replaced", origins, now)
    for each in drop:
        delete_stream(txn, each, now)
    detail: dict[str, object] = {
        "removed": result.removed,
        "added": result.added,
        "rewritten": result.rewritten,
        "at": str(place),
        "segments": len(view.current),
    }
    txn.add_change(info.id, "replaced", detail, now=now)
    return result


def _apply(txn: Writing, view: StreamView, plan: ReplacePlan, part_slice: StreamSlice | None) -> None:
    for segment in view.current:
        log = view.open_log(segment.id)
        if log is not None:  # so that a writer's append in flight is refused, and goes to the new segments
            txn.update_log(replace(view.logs[log], sealed=True))
    txn.drop_segments(view.info.id)
    stitched = StitchPlan(plan.slices, (), plan.opened, plan.epoch, plan.number)
    insert_slices(txn, view.info.id, stitched)
    open_new_segments(txn, view, stitched, Micros(0) if part_slice is None else part_slice.appended_at)


def _result(view: StreamView, plan: ReplacePlan, source: StreamId | None) -> Replaced:
    reported: tuple[Relocated, ...] | None = None
    if len(plan.kept) + len(plan.added) <= limits.REPLACE_MOVES_MAX:
        moves = [Relocated(view.info.id, *each) for each in plan.kept]
        if source is not None:
            moves += [Relocated(source, m.old, m.start, m.stop, m.new, m.start) for m in plan.added]
        reported = tuple(moves)
    added = sum(each.stop - each.start for each in plan.added)
    return Replaced(view.info.id, plan.removed, added, plan.rewritten, reported)
