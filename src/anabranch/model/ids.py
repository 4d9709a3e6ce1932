"""Distinct types for ids and times, so that one kind of number can't be passed as another, such as an offset as a log
id."""

from __future__ import annotations

from typing import NamedTuple, NewType

StreamId = NewType("StreamId", int)  # random, 63 bits, so that ids of two stores do not collide
LogId = NewType("LogId", int)  # assigned by the catalog in ascending order
BlobId = NewType("BlobId", int)  # assigned by the catalog in ascending order
Micros = NewType("Micros", int)  # µs since the Unix epoch, UTC
WriterId = NewType("WriterId", str)


class SegmentId(NamedTuple):
    """A segment's id: the epoch that created it and its number, which is unique within the stream.

    Ordered by epoch, then number. `packed` is its 64-bit form, which sorts the same way.
    """

    epoch: int
    number: int

    @property
    def packed(self) -> int:
        """The id as one integer below 2**63: epoch in the high 32 bits, number in the low 32."""
        return self.epoch << 32 | self.number

    @classmethod
    def unpack(cls, packed: int) -> SegmentId:
        """The inverse of `packed`."""
        return cls(packed >> 32, packed & 0xFFFFFFFF)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"
