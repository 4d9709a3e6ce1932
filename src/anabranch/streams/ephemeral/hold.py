"""Holding an ephemeral stream: create, join, renew, leave; and removal once it has no holders."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from anabranch.catalog.port import Writing
from anabranch.catalog.state.ephemeral import Holder
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.streams.directory.find import need_info
from anabranch.streams.lifecycle.create import create_stream, delete_stream
from anabranch.streams.lifecycle.holders import drop_holders, holders_of, put_holders


class HolderState(Enum):
    """The state of a holder's stream."""

    HELD = "held"
    PERMANENT = "permanent"
    GONE = "gone"  # deleted, or removed because it seemed to have no holder


def create_ephemeral(
    txn: Writing,
    name: StreamName,
    stream: StreamId,
    schema: StreamSchema,
    scaling: Fixed,
    tags: Mapping[str, str],
    holder: Holder,
    now: Micros,
) -> StreamId:
    """Create an ephemeral stream with its first holder. Raises StreamExists, ScopeNotFound."""
    create_stream(txn, name, stream, schema, scaling, tags, now)
    put_holders(txn, stream, (holder,))
    return stream


def join_holders(txn: Writing, stream: StreamName | StreamId, holder: Holder) -> StreamId:
    """Add a holder. Raises InvalidArgument for a permanent stream, StreamNotFound."""
    info = need_info(txn, stream)
    holders = holders_of(txn, info.id)
    if holders is None:
        raise InvalidArgument(f"expected an ephemeral stream, but '{info.name}' is permanent and needs no holder")
    put_holders(txn, info.id, (*holders, holder))
    return info.id


def renew_hold(txn: Writing, stream: StreamId, holder: Holder) -> HolderState:
    """Renew the hold up to the holder's new `until`, even if the holder was presumed dead while others held the
    stream."""
    holders = holders_of(txn, stream)
    if holders is None:
        return HolderState.GONE if txn.stream(stream) is None else HolderState.PERMANENT
    put_holders(txn, stream, (*_without(holders, holder.token), holder))
    return HolderState.HELD


def leave_holders(txn: Writing, stream: StreamId, token: str, now: Micros) -> bool:
    """Remove a holder. Returns True if no live holder is left, so that the stream is deleted. Does nothing for a holder
    or stream that no longer exists."""
    holders = holders_of(txn, stream)
    if holders is None:
        return False
    return _delete_if_unheld(txn, stream, _without(holders, token), now)


def sweep_stream(txn: Writing, stream: StreamId, now: Micros) -> bool:
    """Remove the holders whose lease expired too long ago; returns True if none is left, so that the stream is
    deleted."""
    holders = holders_of(txn, stream)
    return holders is not None and _delete_if_unheld(txn, stream, holders, now)


def make_permanent(txn: Writing, stream: StreamName | StreamId, now: Micros) -> StreamId:
    """Make an ephemeral stream permanent, whatever its holders. A permanent one stays as it is. Raises
    StreamNotFound."""
    info = need_info(txn, stream)
    if holders_of(txn, info.id) is not None:
        drop_holders(txn, info.id)
        txn.add_change(info.id, "kept", {"name": str(info.name)}, now=now)
    return info.id


def _delete_if_unheld(txn: Writing, stream: StreamId, holders: tuple[Holder, ...], now: Micros) -> bool:
    alive = tuple(each for each in holders if each.alive(now))
    if alive:
        put_holders(txn, stream, alive)
        return False
    delete_stream(txn, need_info(txn, stream).name, now)
    return True


def _without(holders: tuple[Holder, ...], token: str) -> tuple[Holder, ...]:
    return tuple(each for each in holders if each.token != token)
