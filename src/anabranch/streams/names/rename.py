"""Renaming a stream, in its scope or into another."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.streams.directory.find import need_free, need_info
from anabranch.streams.directory.former_names import record_rename
from anabranch.streams.directory.scopes import need_scope


def rename_stream(txn: Writing, old: StreamName | StreamId, new: StreamName, now: Micros) -> StreamInfo:
    """Rename a stream. Open readers and writers continue, since they identify the stream by its id; its aliases stay.
    Raises StreamExists, also where `new` is an alias of it; StreamNotFound, ScopeNotFound."""
    info = need_info(txn, old)
    need_scope(txn, new.scope)
    if new == info.name:
        return info
    need_free(txn, new)
    return set_name(txn, info, new, now)


def set_name(txn: Writing, info: StreamInfo, new: StreamName, now: Micros) -> StreamInfo:
    """Give the stream the name `new`, which must be free."""
    renamed = replace(info, name=new, version=info.version + 1)
    txn.update_stream(renamed)
    record_rename(txn, info.id, info.name, new)
    txn.add_change(info.id, "renamed", {"from": str(info.name), "to": str(new)}, now=now)
    return renamed
