"""Stitching streams, or ranges of them, into a new stream."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.stitch import JoinResult, joined_schema, plan_stitch
from anabranch.core.stream_slice import StreamSlice, plan_slice
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.append import insert_slices
from anabranch.streams.directory.find import need_free, need_info, range_cuts, range_stream
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.lineage.origins import origin_part, prefetch_origins, record_origin
from anabranch.streams.segments import open_segment


def stitch_streams(
    txn: Writing,
    parts: Sequence[StreamRange],
    into: StreamName,
    stream: StreamId,
    now: Micros,
    *,
    drop: Collection[StreamId] = (),
    keep_sources: bool = True,
    origins: Sequence[OriginPart] | None = None,
) -> JoinResult:
    """Create `into`, with the id `stream`, from all events of the first part, then those of the second, and so on.

    It has the first part's tags and, in its open epoch, the key ranges of the first part's current segments. The
    sources in `drop`, or all of them without `keep_sources`, are deleted, and `into` may be one of their names.
    `origins` say where the events came from, if not from the sources themselves. Raises StreamExists, StreamNotFound,
    ScopeNotFound, SchemaMismatch, InvalidCut, Truncated.
    """
    names = list(dict.fromkeys(range_stream(part) for part in parts))
    txn.prefetch(scopes=[into.scope], streams=[*names, into])
    need_scope(txn, into.scope)
    ids = [need_info(txn, name).id for name in names]
    prefetch_origins(txn, [*ids, stream])
    txn.prefetch(logs_of=ids[:1])
    found = txn.views(ids)
    views = {name: found[each] for name, each in zip(names, ids, strict=True)}
    dropped = {view.info.id for view in views.values() if not keep_sources or view.info.id in drop}
    existing = txn.stream(into)
    if existing is None or existing.id not in dropped:
        need_free(txn, into)
    slices = [plan_slice(views[range_stream(part)], *range_cuts(part)) for part in parts]
    first = views[range_stream(parts[0])]
    info = replace(first.info, schema=joined_schema([view.info for view in views.values()]))
    plan = plan_stitch(slices, epoch=0, number=0, opened=[segment.range for segment in first.current])
    origins = origins or [origin_part(txn, part_slice) for part_slice in slices]
    for source in sorted(dropped):
        delete_stream(txn, source, now)
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
    insert_slices(txn, stream, plan)
    appended_at = max(part_slice.appended_at for part_slice in slices)
    for segment in plan.opened:
        open_segment(txn, stream, segment, appended_at=appended_at, fence=0)
    record_origin(txn, stream, "stitched", origins, now)
    txn.add_change(stream, "stitched", _detail(into, slices, keep_sources), now=now)
    return JoinResult(stream, tuple((s.view.info.id, moved) for s, moved in zip(slices, plan.moved, strict=True)))


def _detail(into: StreamName, slices: Sequence[StreamSlice], keep_sources: bool) -> dict[str, object]:
    parts = [
        {"source": f"{s.view.info.id:016x}", "from": str(s.start), "to": str(s.end), "events": s.events} for s in slices
    ]
    return {"name": str(into), "parts": parts, "kept": keep_sources}
