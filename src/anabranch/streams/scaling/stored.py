"""Scaling policies, stored with their streams, and the load samples taken for them.

A policy belongs to one stream as long as the stream exists, across renames; a copy has none. A stream without one has
`Fixed` segments, changed by calls of `scale`.
"""

from __future__ import annotations

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.load import LOAD, SCALING
from anabranch.model.ids import Micros, StreamId
from anabranch.model.policy import ByRate, rate_to_json


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
