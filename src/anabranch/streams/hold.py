"""Holding an ephemeral stream: begin, join, prolong, leave; and the end of what nobody holds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from anabranch.catalog.port import Writing
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.streams.create import create_stream, delete_stream
from anabranch.streams.ephemeral import Holder, drop_holders, holders_of, put_holders
from anabranch.streams.find import need_info


class Standing(Enum):
    """What a holder finds of its stream."""

    HELD = "held"
    LASTING = "lasting"  # somebody decided to keep it
    GONE = "gone"  # deleted, or taken away because nobody seemed to hold it


def create_held(
    txn: Writing,
    name: StreamName,
    stream: StreamId,
    schema: StreamSchema,
    scaling: Fixed,
    tags: Mapping[str, str],
    holder: Holder,
    now: Micros,
) -> StreamId:
    """A new ephemeral stream with its first holder. Raises StreamExists, ScopeNotFound."""
    create_stream(txn, name, stream, schema, scaling, tags, now)
    put_holders(txn, stream, (holder,))
    return stream


def join_holders(txn: Writing, stream: StreamName | StreamId, holder: Holder) -> StreamId:
    """One more holder. Raises InvalidArgument for a lasting stream, StreamNotFound."""
    info = need_info(txn, stream)
    holders = holders_of(txn, info.id)
    if holders is None:
        raise InvalidArgument(f"stream '{info.name}' is lasting: it stays without being held")
    put_holders(txn, info.id, (*holders, holder))
    return info.id


def prolong(txn: Writing, stream: StreamId, holder: Holder) -> Standing:
    """Let the holder hold until its new `until`, also where it was taken for dead while others held the stream."""
    holders = holders_of(txn, stream)
    if holders is None:
        return Standing.GONE if txn.stream(stream) is None else Standing.LASTING
    put_holders(txn, stream, (*_without(holders, holder.token), holder))
    return Standing.HELD


def leave_holders(txn: Writing, stream: StreamId, token: str, now: Micros) -> bool:
    """One holder less. True if it was the last that lives, so that the stream is gone. Holders that are gone, and
    streams that are, change nothing."""
    holders = holders_of(txn, stream)
    if holders is None:
        return False
    return _settle(txn, stream, _without(holders, token), now)


def sweep_stream(txn: Writing, stream: StreamId, now: Micros) -> bool:
    """Forget the holders that were not heard of for too long; True if none was left, so that the stream is gone."""
    holders = holders_of(txn, stream)
    return holders is not None and _settle(txn, stream, holders, now)


def keep_stream(txn: Writing, stream: StreamName | StreamId, now: Micros) -> StreamId:
    """Let an ephemeral stream last, whoever holds it. A lasting one stays as it is. Raises StreamNotFound."""
    info = need_info(txn, stream)
    if holders_of(txn, info.id) is not None:
        drop_holders(txn, info.id)
        txn.add_change(info.id, "kept", {"name": str(info.name)}, now=now)
    return info.id


def _settle(txn: Writing, stream: StreamId, holders: tuple[Holder, ...], now: Micros) -> bool:
    alive = tuple(each for each in holders if each.alive(now))
    if alive:
        put_holders(txn, stream, alive)
        return False
    delete_stream(txn, need_info(txn, stream).name, now)
    return True


def _without(holders: tuple[Holder, ...], token: str) -> tuple[Holder, ...]:
    return tuple(each for each in holders if each.token != token)
