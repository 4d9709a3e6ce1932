"""Giving a stream another name, in its scope or in another."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.errors import StreamExists
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.streams.find import need_info
from anabranch.streams.former import remember
from anabranch.streams.scope import need_scope


def rename_stream(txn: Writing, old: StreamName, new: StreamName, now: Micros) -> StreamId:
    """Readers and writers that are open go on, since they know the stream by its id. Raises StreamExists,
    StreamNotFound, ScopeNotFound."""
    info = need_info(txn, old)
    need_scope(txn, new.scope)
    if new == old:
        return info.id
    if txn.stream(new) is not None:
        raise StreamExists(str(new))
    txn.update_stream(replace(info, name=new, version=info.version + 1))
    remember(txn, info.id, old, new)
    txn.add_change(info.id, "renamed", {"from": str(old), "to": str(new)}, now=now)
    return info.id
