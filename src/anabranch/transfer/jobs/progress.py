"""The progress of a job, as reported to callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.transfer.jobs.record import JobRow


class RangeProgress(NamedTuple):
    """The progress of a range of a source's segment: the first offset, the offset after its last event, and the offset
    reached."""

    stream: str
    segment: str
    start: int
    stop: int
    reached: int


class MeasuredProgress(NamedTuple):
    """Events and logical bytes moved, and the progress of each range that is known so far and not yet part of a
    complete stream. For `scanned` see `JobProgress`."""

    events: int
    bytes: int
    ranges: tuple[RangeProgress, ...]
    scanned: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job: events, logical bytes, bytes per second of the current run, and the seconds left at that
    rate, None if unknown. For `silent` see `JobRow.silent`. `ranges` are those that are known so far and not yet part
    of a complete stream, in the order of the sources. A job that replaces counts the events and bytes that it
    rewrites. These are known after it has scanned the times; `scanned` is the number of events scanned, and of how
    many."""

    row: JobRow
    events: int
    bytes: int
    rate: float | None
    seconds_left: float | None
    ranges: tuple[RangeProgress, ...] = ()
    silent: bool = False
    scanned: tuple[int, int] | None = None
