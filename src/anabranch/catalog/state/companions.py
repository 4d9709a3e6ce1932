"""The companions of a stream: streams that the store keeps for it, such as its watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId


@dataclass(frozen=True, slots=True)
class CompanionStreams:
    """The streams that are deleted with this one."""

    streams: tuple[StreamId, ...]


COMPANIONS: Final[StateKind[StreamId, CompanionStreams]] = state_kind(
    "companions",
    by="the id of the stream that they belong to, 16 hex digits",
    key=STREAM_KEY,
    value=CompanionStreams,
    example=(StreamId(0x2BCD55E1E5C62EE7), CompanionStreams((StreamId(0x1122334455667788),))),
)
