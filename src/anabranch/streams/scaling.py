"""Scaling policies, kept with their streams, and the loads that were sampled for them.

A policy belongs to one stream for as long as that lives, whatever it is called; a copy has none. A stream without one has
`Fixed` segments, changed by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.core.scaling import Sample
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.policy import ByRate, rate_from_json, rate_to_json

_SCALING: Final = "scaling"  # the kind of pieces that hold policies, by the stream's id
_LOAD: Final = "load"  # and of those that hold samples

Samples = Mapping[SegmentId, Sequence[Sample]]


def rate_policies(txn: Reading) -> list[tuple[StreamId, ByRate]]:
    """All policies by load."""
    return [(StreamId(int(each.name, 16)), rate_from_json(each.value)) for each in txn.pieces(_SCALING)]


def rate_policy_of(txn: Reading, stream: StreamId) -> ByRate | None:
    """The stream's policy; None where it is scaled by hand."""
    piece = txn.piece(_SCALING, f"{stream:016x}")
    return None if piece is None else rate_from_json(piece.value)


def put_rate_policy(txn: Writing, stream: StreamId, policy: ByRate | None, now: Micros) -> None:
    """Give the stream another policy, or None: by hand from now on. Its load is measured anew."""
    forget_scaling(txn, stream)
    if policy is not None:
        txn.put_piece(Checkpointed(_SCALING, f"{stream:016x}", rate_to_json(policy)))
    txn.add_change(stream, "scaling", {} if policy is None else rate_to_json(policy), now=now)


def forget_scaling(txn: Writing, stream: StreamId) -> None:
    """The stream is gone, or scaled by hand."""
    txn.drop_piece(_SCALING, f"{stream:016x}")
    txn.drop_piece(_LOAD, f"{stream:016x}")


def samples_of(txn: Reading, stream: StreamId) -> dict[SegmentId, tuple[Sample, ...]]:
    """What was sampled of the stream's current segments, oldest first."""
    piece = txn.piece(_LOAD, f"{stream:016x}")
    value: Mapping[str, Any] = {} if piece is None else piece.value
    return {
        SegmentId.unpack(int(segment, 16)): tuple(Sample(*each) for each in samples)
        for segment, samples in value.items()
    }


def put_samples(txn: Writing, stream: StreamId, samples: Samples) -> None:
    """Replace what was sampled."""
    value = {f"{segment.packed:x}": [list(each) for each in found] for segment, found in samples.items()}
    txn.put_piece(Checkpointed(_LOAD, f"{stream:016x}", value))
