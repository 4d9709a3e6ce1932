"""The position of a reader in a group: an offset in each segment that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.errors import InvalidCut
from anabranch.model.ids import SegmentId, StreamId

_ID = r"[0-7][0-9a-f]{15}"
_PART = re.compile(rf"({_ID}):({_ID})@([0-9a-f]{{1,16}})\Z")


class StreamSegment(NamedTuple):
    """A segment, with the stream it belongs to. Text form: `<stream, 16 hex>:<segment, 16 hex>`."""

    stream: StreamId
    segment: SegmentId

    @classmethod
    def parse(cls, text: str) -> StreamSegment:
        """The inverse of `str`. Raises InvalidCut."""
        stream, _, segment = text.partition(":")
        try:
            return cls(StreamId(int(stream, 16)), SegmentId.unpack(int(segment, 16)))
        except ValueError:
            raise InvalidCut(f"'{text}' is not a segment of a stream") from None

    def __str__(self) -> str:
        return f"{self.stream:016x}:{self.segment.packed:016x}"


@dataclass(frozen=True, slots=True)
class Position:
    """For each segment that a reader has, the offset after the last event read, in segment order.

    It covers what the reader reads, not a whole stream as a cut does. Text form: `<stream>:<segment>@<offset, hex>`,
    joined by commas; empty for a reader without segments.
    """

    offsets: tuple[tuple[StreamSegment, int], ...]

    @classmethod
    def of(cls, offsets: Mapping[StreamSegment, int]) -> Position:
        """A position from a mapping; order does not matter."""
        return cls(tuple(sorted(offsets.items())))

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text form. Raises InvalidCut."""
        found: dict[StreamSegment, int] = {}
        for part in text.split(",") if text else ():
            match = _PART.match(part)
            if match is None:
                raise InvalidCut(f"'{text}' is not a position of a reader")
            found[StreamSegment(StreamId(int(match[1], 16)), SegmentId.unpack(int(match[2], 16)))] = int(match[3], 16)
        return cls.of(found)

    def as_dict(self) -> dict[StreamSegment, int]:
        """The offsets by segment."""
        return dict(self.offsets)

    def __iter__(self) -> Iterator[tuple[StreamSegment, int]]:
        return iter(self.offsets)

    def __str__(self) -> str:
        return ",".join(f"{segment}@{offset:x}" for segment, offset in self.offsets)
