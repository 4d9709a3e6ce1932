"""Companions: streams that the store keeps for another stream, such as its watermarks, and that are deleted with it.

They are in the scope `_store` and named by the id of their stream, so they are unaffected by its renames. A row under
that id lists them. Deleting a stream may happen in a transaction that accesses no other stream. It marks the companions
as orphans, and each is deleted in a transaction of its own, by the process that deleted the stream or else by upkeep. So
a crash in between leaves none behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.streams import COMPANIONS, ORPHAN, CompanionStreams, Orphan
from anabranch.model.ids import StreamId


def companions(txn: Reading) -> Mapping[StreamId, tuple[StreamId, ...]]:
    """The companions of all streams that have any."""
    return {stream: found.streams for stream, found in txn.states(COMPANIONS)}


def put_companion(txn: Writing, stream: StreamId, companion: StreamId) -> None:
    """Add a companion to a stream."""
    txn.put_state(COMPANIONS, stream, CompanionStreams((*_companions_of(txn, stream), companion)))


def orphan_companions(txn: Writing, stream: StreamId) -> int:
    """Mark the companions of a deleted stream for deletion; returns how many."""
    companions = _companions_of(txn, stream)
    for companion in companions:
        txn.put_state(ORPHAN, companion, Orphan(stream))
    if companions:
        txn.drop_state(COMPANIONS, stream)
    return len(companions)


def _companions_of(txn: Reading, stream: StreamId) -> tuple[StreamId, ...]:
    found = txn.state(COMPANIONS, stream)
    return () if found is None else found.streams
