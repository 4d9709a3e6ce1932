"""The samples of a stream's load, taken for its scaling policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import Micros, SegmentId, StreamId


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
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=Load,
    example=(
        StreamId(0x2BCD55E1E5C62EE7),
        Load({SegmentId(0, 1): (LoadSample(Micros(1_767_225_600_000_000), 4_000, 128_000),)}),
    ),
)
