"""Failures of upkeep that no success has followed since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import stream_id
from anabranch.catalog.state.kind import KeyText, StateKind, state_kind, stream_key
from anabranch.model.ids import Micros, StreamId


class FailureKey(NamedTuple):
    """A task of upkeep (compact, flatten, retain, scale, collect …) for one stream."""

    stream: StreamId
    task: str


@dataclass(frozen=True, slots=True)
class FailureRow:
    """The task has failed `times` times in a row, first at `since` and last at `failed_at`; background upkeep does not
    try it before `next_at`."""

    error: str
    times: int
    since: Micros
    failed_at: Micros
    next_at: Micros


def failures_of(stream: StreamId) -> str:
    """How the keys of a stream's failures begin."""
    return f"{stream_key(stream)} "


def _decode(text: str) -> FailureKey:
    ident, _, task = text.partition(" ")
    return FailureKey(stream_id(ident), task)


UPKEEP_FAILURE: Final[StateKind[FailureKey, FailureRow]] = state_kind(
    "upkeep_failure",
    by="the stream's id, 16 hex digits, a space and the task",
    found_by="the task",
    key=KeyText(lambda key: f"{failures_of(key.stream)}{key.task}", _decode),
    value=FailureRow,
    lookup=lambda key, _failure: key.task,
    example=(
        FailureKey(StreamId(0x2BCD55E1E5C62EE7), "compact"),
        FailureRow(
            "CorruptBlob: blob commits/… is corrupt: its checksum does not match its bytes",
            2,
            Micros(1_767_225_600_000_000),
            Micros(1_767_225_660_000_000),
            Micros(1_767_225_780_000_000),
        ),
    ),
)
