"""Stitching streams, or ranges of them, into a new stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.stitch import Joined, merged_schema, plan_stitch
from anabranch.core.stretch import Stretch, plan_stretch
from anabranch.errors import StreamExists
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.append_stream import cuts_of, parsed, put_pieces
from anabranch.streams.create import delete_stream, open_segment
from anabranch.streams.find import need_view
from anabranch.streams.scope import need_scope


def stitch_streams(
    txn: Writing,
    parts: Sequence[StreamRange],
    into: StreamName,
    stream: StreamId,
    now: Micros,
    *,
    keep_sources: bool,
) -> Joined:
    """Make `into`, with the id `stream`, of all of the first part, then all of the second, and so on.

    It has the first part's tags and, in its open epoch, the key ranges of the first part's current segments. Without
    `keep_sources` the sources are deleted, and `into` may be one of their names. Raises StreamExists, StreamNotFound,
    ScopeNotFound, SchemaMismatch, InvalidCut, Truncated.
    """
    need_scope(txn, into.scope)
    names = [parsed(part) for part in parts]
    views = {name: need_view(txn, name) for name in dict.fromkeys(names)}
    if txn.stream(into) is not None and (keep_sources or into not in views):
        raise StreamExists(str(into))
    stretches = [plan_stretch(views[name], *cuts_of(part)) for name, part in zip(names, parts, strict=True)]
    first = views[names[0]]
    info = _merged(first, list(views.values()))
    plan = plan_stitch(stretches, epoch=0, number=0, opened=[segment.range for segment in first.current])
    if not keep_sources:
        for name in views:
            delete_stream(txn, name, now)
    txn.insert_stream(
        replace(
            info,
            id=stream,
            name=into,
            created_at=now,
            sealed=False,
            version=1,
            schema_version=1,
            epoch=plan.epoch,
            next_number=plan.number,
        )
    )
    put_pieces(txn, stream, plan)
    appended_at = max(stretch.appended_at for stretch in stretches)
    for segment in plan.opened:
        open_segment(txn, stream, segment, appended_at=appended_at, fence=0)
    txn.add_change(stream, "stitched", _detail(into, stretches, keep_sources), now=now)
    return Joined(stream, tuple((s.view.info.id, moved) for s, moved in zip(stretches, plan.moved, strict=True)))


def _merged(first: StreamView, views: Sequence[StreamView]) -> StreamInfo:
    """The first stream's description with the columns of all."""
    info = first.info
    for view in views:
        info = replace(info, schema=merged_schema(info, view.info))
    return info


def _detail(into: StreamName, stretches: Sequence[Stretch], keep_sources: bool) -> dict[str, object]:
    parts = [
        {"source": f"{s.view.info.id:016x}", "from": str(s.start), "to": str(s.end), "events": s.events}
        for s in stretches
    ]
    return {"name": str(into), "parts": parts, "kept": keep_sources}
