"""Scaling policies, stored with their streams, and the load samples taken for them.

A policy belongs to one stream as long as the stream exists, across renames; a copy has none. A stream without one has
`Fixed` segments, changed by calls of `scale`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.load import LOAD, SCALING, Load, LoadSample
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.policy import ByRate, rate_to_json

Samples = Mapping[SegmentId, Sequence[LoadSample]]


def rate_policies(txn: Reading) -> list[tuple[StreamId, ByRate]]:
    """All policies by load."""
    return [*txn.states(SCALING)]


def rate_policy_of(txn: Reading, stream: StreamId) -> ByRate | None:
    """The stream's policy; None where it is scaled by hand."""
    return txn.state(SCALING, stream)


def put_rate_policy(txn: Writing, stream: StreamId, policy: ByRate | None, now: Micros) -> None:
    """Set the stream's policy; None: scaled by hand from now on. Its load is measured from scratch."""
    forget_scaling(txn, stream)
    if policy is not None:
        txn.put_state(SCALING, stream, policy)
    txn.add_change(stream, "scaling", {} if policy is None else rate_to_json(policy), now=now)


def forget_scaling(txn: Writing, stream: StreamId) -> None:
    """Remove policy and samples: the stream is gone, or scaled by hand."""
    txn.drop_state(SCALING, stream)
    txn.drop_state(LOAD, stream)


def samples_of(txn: Reading, stream: StreamId) -> dict[SegmentId, tuple[LoadSample, ...]]:
    """The samples of the stream's current segments, oldest first."""
    found = txn.state(LOAD, stream)
    return {} if found is None else dict(found.samples)


def put_samples(txn: Writing, stream: StreamId, samples: Samples) -> None:
    """Replace the samples."""
    txn.put_state(LOAD, stream, Load({segment: tuple(found) for segment, found in samples.items()}))
