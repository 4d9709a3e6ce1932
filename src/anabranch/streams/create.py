"""Creating and deleting streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import WHOLE
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment, Span, StreamInfo
from anabranch.streams.alias import forget_aliases
from anabranch.streams.companion import orphan_companions
from anabranch.streams.copy import COPIED
from anabranch.streams.ephemeral import drop_holders
from anabranch.streams.find import need_free, need_info
from anabranch.streams.former import forget
from anabranch.streams.origins import forget_origins
from anabranch.streams.retention import forget_policy
from anabranch.streams.scaling import forget_scaling
from anabranch.streams.scope import check_tags, need_scope


def create_stream(
    txn: Writing,
    name: StreamName,
    stream: StreamId,
    schema: StreamSchema,
    scaling: Fixed,
    tags: Mapping[str, str],
    now: Micros,
) -> StreamInfo:
    """A stream with its first epoch. Raises StreamExists, ScopeNotFound."""
    need_scope(txn, name.scope)
    need_free(txn, name)
    info = StreamInfo(stream, name, schema, 1, check_tags(tags), now, False, 1, 0, scaling.segments)
    txn.insert_stream(info)
    for number, part in enumerate(WHOLE.split(scaling.segments)):
        open_segment(txn, stream, Segment(SegmentId(0, number), part, None, 0), appended_at=Micros(0), fence=0)
    txn.add_change(stream, "created", {"name": str(name), "segments": scaling.segments}, now=now)
    return info


def open_segment(txn: Writing, stream: StreamId, segment: Segment, *, appended_at: Micros, fence: int) -> LogId:
    """Give a new segment an open log of its own, and return that. Its append times start at `appended_at`, so that
    they rise along a key's segments too."""
    log = txn.new_log(stream, appended_at=appended_at)
    if fence:
        txn.update_log(replace(txn.logs([log])[log], fence=fence))
    txn.put_segment(stream, segment)
    txn.put_span(stream, Span(segment.id, 0, log, 0, None))
    return log


def delete_stream(txn: Writing, stream: StreamName | StreamId, now: Micros) -> StreamId:
    """Remove the stream, its aliases and what it views; its companions are to follow. Bytes that nothing else views are
    collected later. Raises StreamNotFound."""
    info = need_info(txn, stream)
    view = txn.view(info.id)
    assert view is not None
    for segment in view.current:
        log = view.open_log(segment.id)
        if log is not None:  # so that a writer's append in flight is refused instead of landing nowhere
            txn.update_log(replace(view.logs[log], sealed=True))
    txn.drop_stream(info.id)
    txn.drop_piece(COPIED, f"{info.id:016x}")
    forget_policy(txn, info.id)
    forget_scaling(txn, info.id)
    forget_origins(txn, info.id)
    drop_holders(txn, info.id)
    orphan_companions(txn, info.id)
    forget_aliases(txn, info.id)
    forget(txn, info.id)
    txn.add_change(info.id, "deleted", {"name": str(info.name)}, now=now)
    return info.id
