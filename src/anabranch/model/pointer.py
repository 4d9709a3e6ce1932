"""Event pointers: the permanent address of one event."""

from __future__ import annotations

import re
from typing import NamedTuple

from anabranch.errors import InvalidPointer
from anabranch.model.ids import SegmentId, StreamId

_TEXT = re.compile(r"[0-7][0-9a-f]{15}[0-7][0-9a-f]{15}[0-7][0-9a-f]{15}\Z")  # each number is below 2**63


class EventPointer(NamedTuple):
    """Stream, segment and offset of one event.

    Text form: 48 lower-case hex digits (stream 16, epoch 8, number 8, offset 16), so that the pointers of a stream sort
    as strings by segment, then offset.
    """

    stream: StreamId
    segment: SegmentId
    offset: int

    @classmethod
    def parse(cls, text: str) -> EventPointer:
        """Parse the text form. Raises InvalidPointer."""
        if not isinstance(text, str) or not _TEXT.match(text):
            raise InvalidPointer(f"'{text}' is not an event pointer: expected 48 lower-case hex digits")
        stream, segment, offset = int(text[:16], 16), int(text[16:32], 16), int(text[32:], 16)
        return cls(StreamId(stream), SegmentId.unpack(segment), offset)

    def __str__(self) -> str:
        return f"{self.stream:016x}{self.segment.packed:016x}{self.offset:016x}"
