"""The load of streams, and the policies that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import own_json
from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.load_policy import LoadPolicy, SampleAbove, load_policy_from_json, load_policy_to_json
from anabranch.model.policy import ByEventRate, ByRate, rate_from_json, rate_to_json
from anabranch.model.rate import Rate


class LoadSample(NamedTuple):
    """The events and logical bytes that a segment's open log held at a time. They never decrease."""

    at: Micros
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """The samples of each current segment, oldest first."""

    samples: Mapping[SegmentId, tuple[LoadSample, ...]]


LOAD: Final[StateKind[StreamId, Load]] = state_kind(
    "load",
    about="The samples of a stream's load, taken for its scaling policy.",
    key=STREAM_KEY,
    value=Load,
    example=(
        StreamId(0x2BCD55E1E5C62EE7),
        Load({SegmentId(0, 1): (LoadSample(Micros(1_767_225_600_000_000), 4_000, 128_000),)}),
    ),
)


LOAD_POLICY: Final[StateKind[StreamId, LoadPolicy]] = state_kind(
    "load_policy",
    about=(
        "Policies that say what a broker does with appends above a rate. Appends to a stream without a row "
        "are not limited."
    ),
    key=STREAM_KEY,
    value=own_json(load_policy_to_json, load_policy_from_json),
    example=(StreamId(0x2BCD55E1E5C62EE7), SampleAbove(Rate(events_per_s=1_000), weight="weight")),
)


SCALING: Final[StateKind[StreamId, ByRate]] = state_kind(
    "scaling",
    about="Policies that scale streams by their load. A stream without a row is scaled by hand.",
    key=STREAM_KEY,
    value=own_json(rate_to_json, rate_from_json),
    example=(StreamId(0x2BCD55E1E5C62EE7), ByEventRate(1_000, factor=2, minimum=1)),
)
