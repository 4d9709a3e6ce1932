"""The current name of a stream, by a former name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import NAME_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName


@dataclass(frozen=True, slots=True)
class FormerName:
    """The last stream that had the name, and its current name."""

    stream: StreamId
    to: StreamName


FORMER_NAME: Final[StateKind[StreamName, FormerName]] = state_kind(
    "former_name",
    by="the former name",
    key=NAME_KEY,
    value=FormerName,
    example=(StreamName("iot", "means"), FormerName(StreamId(0x2BCD55E1E5C62EE7), StreamName("iot", "averages"))),
)
