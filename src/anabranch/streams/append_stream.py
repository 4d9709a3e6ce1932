"""Appending a stream to another: its spans become the other's next epochs."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.stitch import Joined, StitchPlan, merged_schema, plan_stitch
from anabranch.core.stretch import plan_stretch
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.create import open_segment
from anabranch.streams.find import cuts_of, named, need_info
from anabranch.streams.origins import ahead_of_origins, part_of, record_origin
from anabranch.streams.scale import close_segment


def append_stream(
    txn: Writing, source: StreamRange, onto: StreamName | StreamId, now: Micros, *, origin: OriginPart | None = None
) -> Joined:
    """Let the events of `source` follow the last one of `onto`, which may be the same stream.

    The open segments of `onto` are sealed; the source's segments follow under new ids, with their offsets; then new
    segments of the old key ranges open, under the old fences, or none if `onto` was sealed. `origin` says
    where the events came from, if that is not the source itself. Raises StreamNotFound,
    SchemaMismatch, InvalidCut, Truncated.
    """
    txn.ahead(streams=[onto, named(source)])
    streams = [need_info(txn, each).id for each in (onto, named(source))]
    ahead_of_origins(txn, streams)
    txn.ahead(logs_of=streams[:1])
    views = txn.views(streams)
    view, found = (views[stream] for stream in streams)
    stretch = plan_stretch(found, *cuts_of(source))
    schema = merged_schema(view.info, found.info)
    opened = () if view.info.sealed else tuple(segment.range for segment in view.current)
    plan = plan_stitch([stretch], epoch=view.info.epoch + 1, number=view.info.next_number, opened=opened)
    info = view.info
    for segment in view.current:
        if not info.sealed:
            close_segment(txn, view, segment)
        txn.put_segment(info.id, replace(segment, retired=info.epoch + 1))
    put_pieces(txn, info.id, plan)
    _open(txn, view, plan, stretch.appended_at)
    txn.update_stream(
        replace(
            info,
            version=info.version + 1,
            epoch=plan.epoch,
            next_number=plan.number,
            schema=schema,
            schema_version=info.schema_version + (schema != info.schema),
        )
    )
    detail = {
        "source": f"{found.info.id:016x}",
        "from": str(stretch.start),
        "to": str(stretch.end),
        "events": stretch.events,
        "epoch": plan.epoch,
        "segments": len(plan.opened) + sum(piece.segment.retired is None for piece in plan.pieces),
    }
    record_origin(txn, info.id, "appended", [origin or part_of(txn, stretch)], now)
    txn.add_change(info.id, "appended", detail, now=now)
    return Joined(info.id, ((found.info.id, plan.moved[0]),))


def put_pieces(txn: Writing, stream: StreamId, plan: StitchPlan) -> None:
    """Give a stream the segments and spans of a plan, but for those that open."""
    for piece in plan.pieces:
        txn.put_segment(stream, piece.segment)
        for span in piece.spans:
            txn.put_span(stream, span)


def _open(txn: Writing, view: StreamView, plan: StitchPlan, appended_at: Micros) -> None:
    for segment in plan.opened:
        # Who was fenced off before is fenced off behind what was appended too.
        before = [view.logs[view.spans[old.id][-1].log] for old in view.current if old.range.overlaps(segment.range)]
        times = [appended_at, *(log.appended_at for log in before)]
        heir = open_segment(txn, view.info.id, segment, appended_at=max(times), fence=max(log.fence for log in before))
        for log in before:
            txn.inherit_fences(log.id, heir)
