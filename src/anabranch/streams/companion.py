"""Companions: streams that the store keeps for another one, such as what is noted of its times, and that go with it.

They lie in the scope `_store` and bear the id of the stream that they serve, so renaming and moving that is nothing to them.
A named piece, by that id, says which there are. Deleting a stream may happen in a transaction that sees no other stream:
it makes orphans of its companions, and each is deleted in a transaction of its own, by whoever deleted the stream or else
by upkeep. So a crash in between leaves none behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.model.ids import StreamId

COMPANIONS: Final = "companions"  # pieces by the id of a stream: the ids of the streams that serve it
ORPHAN: Final = "orphan"  # pieces by the id of a companion whose stream is gone


def companions(txn: Reading) -> Mapping[StreamId, tuple[StreamId, ...]]:
    """The companions of all streams that have some."""
    return {StreamId(int(piece.name, 16)): _ids(piece) for piece in txn.pieces(COMPANIONS)}


def put_companion(txn: Writing, stream: StreamId, companion: StreamId) -> None:
    """Let a stream have one companion more."""
    present = txn.piece(COMPANIONS, f"{stream:016x}")
    ids = (*(() if present is None else _ids(present)), companion)
    txn.put_piece(Checkpointed(COMPANIONS, f"{stream:016x}", {"streams": [f"{each:016x}" for each in ids]}))


def orphan_companions(txn: Writing, stream: StreamId) -> int:
    """A stream is deleted: its companions are to be too; returns how many they are."""
    present = txn.piece(COMPANIONS, f"{stream:016x}")
    if present is None:
        return 0
    ids = _ids(present)
    for companion in ids:
        txn.put_piece(Checkpointed(ORPHAN, f"{companion:016x}", {"of": f"{stream:016x}"}))
    txn.drop_piece(COMPANIONS, f"{stream:016x}")
    return len(ids)


def orphans(txn: Reading) -> Iterator[StreamId]:
    """The companions that are still to be deleted."""
    return (StreamId(int(piece.name, 16)) for piece in txn.pieces(ORPHAN))


def forget_orphan(txn: Writing, companion: StreamId) -> None:
    """It is deleted."""
    txn.drop_piece(ORPHAN, f"{companion:016x}")


def _ids(piece: Checkpointed) -> tuple[StreamId, ...]:
    told: Any = piece.value["streams"]
    return tuple(StreamId(int(each, 16)) for each in told)
