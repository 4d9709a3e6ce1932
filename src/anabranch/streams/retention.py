"""Retention policies, kept with their streams.

A policy belongs to one stream for as long as that lives, whatever it is called. A copy does not take it along: who copies
a stream wants to have what it holds, and says how long if it is not for ever.
"""

from __future__ import annotations

from typing import Final

from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.model.ids import Micros, StreamId
from anabranch.model.retention import Retention

_RETENTION: Final = "retention"  # the kind of pieces that hold policies, by the stream's id


def policies(txn: Reading) -> list[tuple[StreamId, Retention]]:
    """All policies."""
    return [(StreamId(int(each.name, 16)), Retention.from_json(each.value)) for each in txn.pieces(_RETENTION)]


def policy_of(txn: Reading, stream: StreamId) -> Retention | None:
    """The stream's policy; None where its events are kept for ever."""
    piece = txn.piece(_RETENTION, f"{stream:016x}")
    return None if piece is None else Retention.from_json(piece.value)


def put_policy(txn: Writing, stream: StreamId, policy: Retention | None, now: Micros) -> None:
    """Give the stream another policy, or None."""
    if policy is None:
        forget_policy(txn, stream)
    else:
        txn.put_piece(Checkpointed(_RETENTION, f"{stream:016x}", policy.to_json()))
    txn.add_change(stream, "retention", {} if policy is None else policy.to_json(), now=now)


def forget_policy(txn: Writing, stream: StreamId) -> None:
    """The stream is gone, or keeps its events for ever."""
    txn.drop_piece(_RETENTION, f"{stream:016x}")
