"""Stitching streams, or ranges of them, into a new stream."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.stitch import Joined, joined_schema, plan_stitch
from anabranch.core.stretch import Stretch, plan_stretch
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream_range import StreamRange
from anabranch.streams.append_stream import put_pieces
from anabranch.streams.create import delete_stream, open_segment
from anabranch.streams.find import cuts_of, named, need_free, need_info
from anabranch.streams.origins import ahead_of_origins, part_of, record_origin
from anabranch.streams.scope import need_scope


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
) -> Joined:
    """Make `into`, with the id `stream`, of all of the first part, then all of the second, and so on.

    It has the first part's tags and, in its open epoch, the key ranges of the first part's current segments. Those of
    the sources in `drop`, without `keep_sources` all of them, are deleted, and `into` may be one of their names. `origins` say
    where the events came from, if that are not the sources themselves. Raises StreamExists, StreamNotFound,
    ScopeNotFound, SchemaMismatch, InvalidCut, Truncated.
    """
    names = list(dict.fromkeys(named(part) for part in parts))
    txn.ahead(scopes=[into.scope], streams=[*names, into])
    need_scope(txn, into.scope)
    ids = [need_info(txn, name).id for name in names]
    ahead_of_origins(txn, [*ids, stream])
    txn.ahead(logs_of=ids[:1])
    found = txn.views(ids)
    views = {name: found[each] for name, each in zip(names, ids, strict=True)}
    gone = {view.info.id for view in views.values() if not keep_sources or view.info.id in drop}
    present = txn.stream(into)
    if present is None or present.id not in gone:
        need_free(txn, into)
    stretches = [plan_stretch(views[named(part)], *cuts_of(part)) for part in parts]
    first = views[named(parts[0])]
    info = replace(first.info, schema=joined_schema([view.info for view in views.values()]))
    plan = plan_stitch(stretches, epoch=0, number=0, opened=[segment.range for segment in first.current])
    origins = origins or [part_of(txn, stretch) for stretch in stretches]
    for source in sorted(gone):
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
    put_pieces(txn, stream, plan)
    appended_at = max(stretch.appended_at for stretch in stretches)
    for segment in plan.opened:
        open_segment(txn, stream, segment, appended_at=appended_at, fence=0)
    record_origin(txn, stream, "stitched", origins, now)
    txn.add_change(stream, "stitched", _detail(into, stretches, keep_sources), now=now)
    return Joined(stream, tuple((s.view.info.id, moved) for s, moved in zip(stretches, plan.moved, strict=True)))


def _detail(into: StreamName, stretches: Sequence[Stretch], keep_sources: bool) -> dict[str, object]:
    parts = [
        {"source": f"{s.view.info.id:016x}", "from": str(s.start), "to": str(s.end), "events": s.events}
        for s in stretches
    ]
    return {"name": str(into), "parts": parts, "kept": keep_sources}
