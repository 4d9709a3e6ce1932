"""The former names of a stream. A stream is deleted in a transaction that may read single rows only, so a row lists
them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName


@dataclass(frozen=True, slots=True)
class FormerNames:
    """The names that the stream had, the oldest first."""

    names: tuple[StreamName, ...]


FORMER_NAMES: Final[StateKind[StreamId, FormerNames]] = state_kind(
    "former_names",
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=FormerNames,
    example=(StreamId(0x2BCD55E1E5C62EE7), FormerNames((StreamName("iot", "mean"), StreamName("iot", "means")))),
)
