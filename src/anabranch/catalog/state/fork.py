"""A fork of a Durable Stream, which keeps the name of its source in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.codec import stream_id_text
from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId


@dataclass(frozen=True, slots=True)
class Fork:
    """The fork begins as a copy of what `source` holds before `offset`, and then has the first `sub_offset` bytes of the
    message at `offset`."""

    source: StreamId
    offset: int
    sub_offset: int


FORK: Final[StateKind[StreamId, Fork]] = state_kind(
    "fork",
    by="the stream's id, 16 hex digits",
    found_by="the id of its source, 16 hex digits",
    key=STREAM_KEY,
    value=Fork,
    lookup=lambda _, fork: stream_id_text(fork.source),
    example=(StreamId(0x2BCD55E1E5C62EE7), Fork(StreamId(0x41A7C0DE12345678), 512, 0)),
)
