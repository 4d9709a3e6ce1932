"""What else is kept of single streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId


@dataclass(frozen=True, slots=True)
class ByteHead:
    """The `position` of the first byte that may be read. The head is later where truncation by events went further."""

    position: int


BYTE_HEAD: Final[StateKind[StreamId, ByteHead]] = state_kind(
    "byte_head",
    about="The exact head of a byte stream that was truncated within a chunk.",
    key=STREAM_KEY,
    value=ByteHead,
    example=(StreamId(0x2BCD55E1E5C62EE7), ByteHead(1_048_580)),
)


@dataclass(frozen=True, slots=True)
class CompanionStreams:
    """The streams that are deleted with this one."""

    streams: tuple[StreamId, ...]


COMPANIONS: Final[StateKind[StreamId, CompanionStreams]] = state_kind(
    "companions",
    about="The companions of a stream: streams that the store keeps for it, such as its watermarks.",
    by="the id of the stream that they belong to, 16 hex digits",
    key=STREAM_KEY,
    value=CompanionStreams,
    example=(StreamId(0x2BCD55E1E5C62EE7), CompanionStreams((StreamId(0x1122334455667788),))),
)


@dataclass(frozen=True, slots=True)
class Orphan:
    """The id of the deleted stream."""

    of: StreamId


ORPHAN: Final[StateKind[StreamId, Orphan]] = state_kind(
    "orphan",
    about="Companions whose stream is deleted, and that are still to be deleted.",
    by="the companion's id, 16 hex digits",
    key=STREAM_KEY,
    value=Orphan,
    example=(StreamId(0x1122334455667788), Orphan(StreamId(0x2BCD55E1E5C62EE7))),
)
