"""The progress of a job that replaces a time range. Deleted when the job has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind
from anabranch.model.ids import StreamId


@dataclass(frozen=True, slots=True)
class Replacing:
    """The job replaces events of the stream `of`. The internal stream `stage` holds the rewritten portions. The times
    of `scanned` of the stream's `total` events have been scanned."""

    of: StreamId
    stage: StreamId
    scanned: int
    total: int


REPLACING: Final[StateKind[str, Replacing]] = state_kind(
    "replacing",
    by="the job's id",
    key=TEXT_KEY,
    value=Replacing,
    example=("0a1b2c3d4e5f", Replacing(StreamId(0x2BCD55E1E5C62EE7), StreamId(0x1122334455667788), 500, 512)),
)
