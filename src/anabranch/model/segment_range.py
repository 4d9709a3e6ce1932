"""Segment ranges: the events of one segment between two cuts, and all of them that lie between two cuts of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer


class Distance(NamedTuple):
    """How much lies between two cuts. `bytes` are logical: what the events weighed when they were appended."""

    events: int
    bytes: int


class SegmentRange(NamedTuple):
    """The offsets `start <= offset < stop` of a segment, never empty, and their logical bytes."""

    segment: SegmentId
    start: int
    stop: int
    bytes: int

    @property
    def events(self) -> int:
        """How many there are."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Between:
    """What of a stream lies between the cuts `start` and `end`: its segment ranges, in segment order, which reads every
    segment after those it took over from."""

    stream: StreamId
    start: StreamCut
    end: StreamCut
    ranges: tuple[SegmentRange, ...]

    @property
    def events(self) -> int:
        """How many events lie between the cuts."""
        return sum(part.events for part in self.ranges)

    @property
    def bytes(self) -> int:
        """How many logical bytes they weigh."""
        return sum(part.bytes for part in self.ranges)

    @property
    def distance(self) -> Distance:
        """Both."""
        return Distance(self.events, self.bytes)

    def __contains__(self, pointer: EventPointer) -> bool:
        """True if the event lies between the cuts."""
        return pointer.stream == self.stream and any(
            part.segment == pointer.segment and part.start <= pointer.offset < part.stop for part in self.ranges
        )
