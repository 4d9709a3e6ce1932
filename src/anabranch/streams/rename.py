"""Giving a stream another name, in its scope or in another."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.streams.find import need_free, need_info
from anabranch.streams.former import remember
from anabranch.streams.scope import need_scope


def rename_stream(txn: Writing, old: StreamName | StreamId, new: StreamName, now: Micros) -> StreamInfo:
    """Readers and writers that are open go on, since they know the stream by its id; its aliases stay. Raises
    StreamExists, also where `new` is an alias of it; StreamNotFound, ScopeNotFound."""
    info = need_info(txn, old)
    need_scope(txn, new.scope)
    if new == info.name:
        return info
    need_free(txn, new)
    return give_name(txn, info, new, now)


def give_name(txn: Writing, info: StreamInfo, new: StreamName, now: Micros) -> StreamInfo:
    """The stream is called `new`, which nothing else is."""
    renamed = replace(info, name=new, version=info.version + 1)
    txn.update_stream(renamed)
    remember(txn, info.id, info.name, new)
    txn.add_change(info.id, "renamed", {"from": str(info.name), "to": str(new)}, now=now)
    return renamed
