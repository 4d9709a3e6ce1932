"""Segment ranges: the events of one segment, or of all segments of a stream, between two cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer


class Distance(NamedTuple):
    """How much is between two cuts. `bytes` are logical: the events' size when they were appended."""

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
        """The number of events."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class RangesBetween:
    """The part of a stream between the cuts `start` and `end`: its segment ranges in segment order, so every segment
    comes after those it took over from."""

    stream: StreamId
    start: StreamCut
    end: StreamCut
    ranges: tuple[SegmentRange, ...]

    @property
    def events(self) -> int:
        """The number of events between the cuts."""
        return sum(part.events for part in self.ranges)

    @property
    def bytes(self) -> int:
        """The logical bytes of those events."""
        return sum(part.bytes for part in self.ranges)

    @property
    def distance(self) -> Distance:
        """The events and the bytes together."""
        return Distance(self.events, self.bytes)

    def __contains__(self, pointer: EventPointer) -> bool:
        """True if the event is between the cuts."""
        return pointer.stream == self.stream and any(
            part.segment == pointer.segment and part.start <= pointer.offset < part.stop for part in self.ranges
        )
