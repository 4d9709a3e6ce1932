"""The rewritten portions of a job that replaces a time range. Deleted when the job has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import KeyText, StateKind, state_kind
from anabranch.model.ids import LogId, SegmentId


@dataclass(frozen=True, slots=True)
class PortionKey:
    """A portion of a job: events of a segment, from the offset `start` on."""

    job: str
    segment: SegmentId
    start: int


@dataclass(frozen=True, slots=True)
class StagedPortion:
    """A rewritten portion: its number of events, the xxh3-64 of its runs (pairs of int64, little-endian), and
    the log that holds its events."""

    events: int
    digest: int
    log: LogId


def portions_of(job: str) -> str:
    """The prefix of the keys of a job's portions."""
    return f"{job}/"


def _decode(text: str) -> PortionKey:
    job, segment, start = text.split("/")
    return PortionKey(job, SegmentId.unpack(int(segment, 16)), int(start, 16))


PORTION_KEY: Final[KeyText[PortionKey]] = KeyText(
    lambda key: f"{portions_of(key.job)}{key.segment.packed:016x}/{key.start:016x}", _decode
)

REPLACING_PORTION: Final[StateKind[PortionKey, StagedPortion]] = state_kind(
    "replacing_portion",
    by="the job's id, the segment and the first offset, 16 hex digits each, with `/` between",
    key=PORTION_KEY,
    value=StagedPortion,
    example=(PortionKey("0a1b2c3d4e5f", SegmentId(0, 0), 40), StagedPortion(14, -1234567890123456789, LogId(9))),
)
