"""Policies that say what a broker does with appends above a rate. Appends to a stream without a row are not limited."""

from __future__ import annotations

from typing import Final

from anabranch.catalog.state.codec import Codec, own_json
from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId
from anabranch.model.load_policy import LoadPolicy, SampleAbove, load_policy_from_json, load_policy_to_json
from anabranch.model.rate import Rate

_POLICY: Final[Codec[LoadPolicy]] = own_json(load_policy_to_json, load_policy_from_json)

LOAD_POLICY: Final[StateKind[StreamId, LoadPolicy]] = state_kind(
    "load_policy",
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=_POLICY,
    example=(StreamId(0x2BCD55E1E5C62EE7), SampleAbove(Rate(events_per_s=1_000), weight="weight")),
)
