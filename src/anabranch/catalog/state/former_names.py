"""Former names of streams and scopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import NAME_KEY, STREAM_KEY, TEXT_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName


@dataclass(frozen=True, slots=True)
class FormerName:
    """The last stream that had the name, and its current name."""

    stream: StreamId
    to: StreamName


FORMER_NAME: Final[StateKind[StreamName, FormerName]] = state_kind(
    "former_name",
    about="The current name of a stream, by a former name.",
    by="the former name",
    key=NAME_KEY,
    value=FormerName,
    example=(StreamName("iot", "means"), FormerName(StreamId(0x2BCD55E1E5C62EE7), StreamName("iot", "averages"))),
)


@dataclass(frozen=True, slots=True)
class FormerNames:
    """The names that the stream had, the oldest first."""

    names: tuple[StreamName, ...]


FORMER_NAMES: Final[StateKind[StreamId, FormerNames]] = state_kind(
    "former_names",
    about=(
        "The former names of a stream. A stream is deleted in a transaction that may read single rows only, "
        "so a row lists them."
    ),
    key=STREAM_KEY,
    value=FormerNames,
    example=(StreamId(0x2BCD55E1E5C62EE7), FormerNames((StreamName("iot", "mean"), StreamName("iot", "means")))),
)


@dataclass(frozen=True, slots=True)
class FormerScope:
    """The scope's current name."""

    to: str


FORMER_SCOPE: Final[StateKind[str, FormerScope]] = state_kind(
    "former_scope",
    about="The current name of a scope, by a former name.",
    by="the former name",
    found_by="the current name",
    key=TEXT_KEY,
    value=FormerScope,
    lookup=lambda _name, scope: scope.to,
    example=("sensors", FormerScope("iot")),
)
