"""The exact head of a byte stream that was truncated within a chunk."""

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
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=ByteHead,
    example=(StreamId(0x2BCD55E1E5C62EE7), ByteHead(1_048_580)),
)
