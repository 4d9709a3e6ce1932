"""Numbers with types, so that an offset is never taken for a log."""

from __future__ import annotations

from typing import NamedTuple, NewType

StreamId = NewType("StreamId", int)  # random, 63 bits, so that ids of two stores do not collide
LogId = NewType("LogId", int)  # counted up by the catalog
BlobId = NewType("BlobId", int)  # counted up by the catalog
Micros = NewType("Micros", int)  # µs since the Unix epoch, UTC
WriterId = NewType("WriterId", str)


class SegmentId(NamedTuple):
    """A segment's id: the epoch that created it and its number, unique within the stream.

    Order: by epoch, then number. `packed` is its 64-bit form, which sorts the same.
    """

    epoch: int
    number: int

    @property
    def packed(self) -> int:
        """The id as one integer below 2**63: epoch in the high 32 bits, number in the low."""
        return self.epoch << 32 | self.number

    @classmethod
    def unpack(cls, packed: int) -> SegmentId:
        """The inverse of `packed`."""
        return cls(packed >> 32, packed & 0xFFFFFFFF)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"
