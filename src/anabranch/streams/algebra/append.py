"""Appending a stream to another: its segments become the other's next epochs."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.stitch import JoinResult, StitchPlan, merged_schema, plan_stitch
from anabranch.core.stream_slice import plan_slice
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.directory.find import need_info, range_cuts, range_stream
from anabranch.streams.lineage.origins import origin_part, prefetch_origins, record_origin
from anabranch.streams.segments import close_segment, open_successor


def append_stream(
    txn: Writing, source: StreamRange, onto: StreamName | StreamId, now: Micros, *, origin: OriginPart | None = None
) -> JoinResult:
    """Append the events of `source` after the last event of `onto`; both may be the same stream.

    The open segments of `onto` are sealed; the source's segments follow under new ids, with their offsets; then new
    segments of the old key ranges open, under the old fences, or none if `onto` was sealed. `origin` says where the
    events came from, if that is not the source itself. Raises StreamNotFound, SchemaMismatch, InvalidCut, Truncated.
    """
    txn.prefetch(streams=[onto, range_stream(source)])
    streams = [need_info(txn, each).id for each in (onto, range_stream(source))]
    prefetch_origins(txn, streams)
    txn.prefetch(logs_of=streams[:1])
    views = txn.views(streams)
    view, found = (views[stream] for stream in streams)
    part_slice = plan_slice(found, *range_cuts(source))
    schema = merged_schema(view.info, found.info)
    opened = () if view.info.sealed else tuple(segment.range for segment in view.current)
    plan = plan_stitch([part_slice], epoch=view.info.epoch + 1, number=view.info.next_number, opened=opened)
    info = view.info
    for segment in view.current:
        if not info.sealed:
            close_segment(txn, view, segment)
        txn.put_segment(info.id, replace(segment, retired=info.epoch + 1))
    insert_slices(txn, info.id, plan)
    open_new_segments(txn, view, plan, part_slice.appended_at)
    txn.update_stream(joined_info(info, schema, plan.epoch, plan.number))
    detail = {
        "source": f"{found.info.id:016x}",
        "from": str(part_slice.start),
        "to": str(part_slice.end),
        "events": part_slice.events,
        "epoch": plan.epoch,
        "segments": len(plan.opened) + sum(segment_slice.segment.retired is None for segment_slice in plan.slices),
    }
    record_origin(txn, info.id, "appended", [origin or origin_part(txn, part_slice)], now)
    txn.add_change(info.id, "appended", detail, now=now)
    return JoinResult(info.id, ((found.info.id, plan.moved[0]),))


def insert_slices(txn: Writing, stream: StreamId, plan: StitchPlan) -> None:
    """Insert the segments and spans of a plan into a stream, except the segments to open."""
    for segment_slice in plan.slices:
        txn.put_segment(stream, segment_slice.segment)
        for span in segment_slice.spans:
            txn.put_span(stream, span)


def open_new_segments(txn: Writing, view: StreamView, plan: StitchPlan, appended_at: Micros) -> None:
    """Open the segments of a plan after those of the view, which are sealed, under the same fences."""
    for segment in plan.opened:
        before = [view.logs[view.spans[old.id][-1].log] for old in view.current if old.range.overlaps(segment.range)]
        open_successor(txn, view.info.id, segment, before, appended_at)


def joined_info(info: StreamInfo, schema: StreamSchema, epoch: int, next_number: int) -> StreamInfo:
    """The stream's description once it has new segments, and the columns of `schema`."""
    version = info.schema_version + (schema != info.schema)
    return replace(
        info,
        version=info.version + 1,
        epoch=epoch,
        next_number=next_number,
        schema=schema,
        schema_version=version,
    )
