"""The batches that were sent to the caller of a group reader and are not committed yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.groups.cursor import GroupDelivery
from anabranch.model.position import StreamSegment


class Delivered(NamedTuple):
    """How far a reader was when a batch was sent: for each segment, the offset after its last uncommitted batch up to
    then; and the number of events handed out."""

    positions: Mapping[StreamSegment, int]
    handed_out: int


class _Sent(NamedTuple):
    number: int
    segment: StreamSegment
    stop: int
    handed_out: int


class DeliveredBatches:
    """At most `limits.GROUP_BATCHES_AHEAD_MAX` batches, without their events. For one event loop."""

    def __init__(self) -> None:
        self._sent: deque[_Sent] = deque()
        self._number = 0
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Wait until enough batches are committed that another may be sent."""
        await self._room.wait()

    def end(self) -> None:
        """End the wait for room, because no more batches are sent."""
        self._room.set()

    def add(self, delivery: GroupDelivery, handed_out: int) -> int:
        """Add a batch that is sent. `handed_out` is the number of events handed out up to its end. Returns its
        number."""
        self._number += 1
        self._sent.append(_Sent(self._number, delivery.segment, delivery.rows.stop, handed_out))
        if len(self._sent) >= limits.GROUP_BATCHES_AHEAD_MAX:
            self._room.clear()
        return self._number

    def through(self, number: int) -> Delivered:
        """How far the reader was at the batch of this number. Raises InvalidArgument if it was not sent, or is
        committed."""
        if not self._sent or not self._sent[0].number <= number <= self._number:
            raise InvalidArgument(f"batch {number} was not sent, or is committed already")
        positions: dict[StreamSegment, int] = {}
        handed_out = 0
        for sent in self._sent:
            if sent.number > number:
                break
            positions[sent.segment], handed_out = sent.stop, sent.handed_out
        return Delivered(positions, handed_out)

    def forget(self, number: int | None, *, keep_last: bool = False) -> None:
        """Forget the committed batches: up to this number, or all if it is None. With `keep_last`, the last batch
        stays, because maybe only a part of it is committed."""
        until = (self._number - keep_last) if number is None else number
        while self._sent and self._sent[0].number <= until:
            self._sent.popleft()
        self._room.set()
