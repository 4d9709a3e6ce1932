"""Creating and deleting streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.catalog.state.lineage import COPIED, FORK
from anabranch.catalog.state.load import LOAD_POLICY
from anabranch.catalog.state.streams import BYTE_HEAD
from anabranch.log.view import drop_relocations
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment, StreamInfo
from anabranch.streams.directory.find import need_free, need_info
from anabranch.streams.directory.former_names import drop_former_names
from anabranch.streams.directory.scopes import check_tags, need_scope
from anabranch.streams.lifecycle.companions import orphan_companions
from anabranch.streams.lifecycle.holders import drop_holders
from anabranch.streams.lineage.origins import forget_origins
from anabranch.streams.names.alias import forget_aliases
from anabranch.streams.retention.stored import forget_policy
from anabranch.streams.scaling.stored import forget_scaling
from anabranch.streams.segments import open_segment


def create_stream(
    txn: Writing,
    name: StreamName,
    stream: StreamId,
    schema: StreamSchema,
    scaling: Fixed,
    tags: Mapping[str, str],
    now: Micros,
) -> StreamInfo:
    """Create a stream with its first epoch. Raises StreamExists, ScopeNotFound."""
    need_scope(txn, name.scope)
    need_free(txn, name)
    info = StreamInfo(stream, name, schema, 1, check_tags(tags), now, False, 1, 0, scaling.segments)
    txn.insert_stream(info)
    for number, part in enumerate(FULL_KEY_RANGE.split(scaling.segments)):
        open_segment(txn, stream, Segment(SegmentId(0, number), part, None, 0), appended_at=Micros(0), fence=0)
    txn.add_change(stream, "created", {"name": str(name), "segments": scaling.segments}, now=now)
    return info


def delete_stream(txn: Writing, stream: StreamName | StreamId, now: Micros) -> StreamId:
    """Delete the stream, its aliases and its spans, and mark its companions for deletion. Logs that no other stream views
    are collected later. Raises StreamNotFound."""
    info = need_info(txn, stream)
    view = txn.view(info.id)
    assert view is not None
    for segment in view.current:
        log = view.open_log(segment.id)
        if log is not None:  # so that a writer's append in flight is refused instead of lost
            txn.update_log(replace(view.logs[log], sealed=True))
    txn.drop_stream(info.id)
    txn.drop_state(COPIED, info.id)
    txn.drop_state(BYTE_HEAD, info.id)
    txn.drop_state(FORK, info.id)
    forget_policy(txn, info.id)
    forget_scaling(txn, info.id)
    txn.drop_state(LOAD_POLICY, info.id)
    forget_origins(txn, info.id)
    drop_holders(txn, info.id)
    orphan_companions(txn, info.id)
    forget_aliases(txn, info.id)
    drop_relocations(txn, info.id)
    drop_former_names(txn, info.id)
    txn.add_change(info.id, "deleted", {"name": str(info.name)}, now=now)
    return info.id
