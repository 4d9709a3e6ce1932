"""What a reader group has to read, and which reader reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.model.position import StreamSegment


@dataclass(frozen=True, slots=True)
class Unread:
    """What a group has not read yet, up to the tail or to its end: events, their logical bytes, and (events, bytes) for
    each segment that has any."""

    events: int
    bytes: int
    segments: Mapping[StreamSegment, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Which reader has which segments. `unassigned` segments have no reader: until the next rebalance, or because no
    reader is open."""

    readers: Mapping[str, tuple[StreamSegment, ...]]
    unassigned: tuple[StreamSegment, ...]
