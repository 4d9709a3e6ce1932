"""Policies that scale streams by their load. A stream without a row is scaled by hand."""

from __future__ import annotations

from typing import Final

from anabranch.catalog.state.codec import Codec, own_json
from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId
from anabranch.model.policy import ByEventRate, ByRate, rate_from_json, rate_to_json

_POLICY: Final[Codec[ByRate]] = own_json(rate_to_json, rate_from_json)

SCALING: Final[StateKind[StreamId, ByRate]] = state_kind(
    "scaling",
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=_POLICY,
    example=(StreamId(0x2BCD55E1E5C62EE7), ByEventRate(1_000, factor=2, minimum=1)),
)
