"""How far a job has come, for those who ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.streams.jobs.row import JobRow


class Reached(NamedTuple):
    """How far a range has come: of a source's segment, the range's first offset, the one behind it, and the one reached."""

    stream: str
    segment: str
    start: int
    stop: int
    reached: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come: events, logical bytes, bytes a second of the present run, and the seconds left at that
    rate, None where it can't be told. `silent`: see `JobRow.silent`. `ranges` are those that are known yet and not part
    of a stream that is whole, in the order of the sources."""

    row: JobRow
    events: int
    bytes: int
    rate: float | None
    seconds_left: float | None
    ranges: tuple[Reached, ...] = ()
    silent: bool = False
