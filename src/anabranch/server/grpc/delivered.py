"""The batches that a group reader's caller was sent and has not committed."""

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
    """How far a reader was when a batch was sent: the offsets behind what is not committed before, and the number of
    events handed out."""

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
        """Wait until one more may be sent: until enough is committed."""
        await self._room.wait()

    def end(self) -> None:
        """No more is sent: end the waiting for room."""
        self._room.set()

    def add(self, delivery: GroupDelivery, handed_out: int) -> int:
        """A batch is sent, with which so many events are handed out. Returns its number."""
        self._number += 1
        self._sent.append(_Sent(self._number, delivery.segment, delivery.rows.stop, handed_out))
        if len(self._sent) >= limits.GROUP_BATCHES_AHEAD_MAX:
            self._room.clear()
        return self._number

    def through(self, number: int) -> Delivered:
        """All up to the batch of this number. Raises InvalidArgument if it was not sent, or is committed."""
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
        """All up to this number are committed; None: all, of the last one maybe only a part (`keep_last`)."""
        until = (self._number - keep_last) if number is None else number
        while self._sent and self._sent[0].number <= until:
            self._sent.popleft()
        self._room.set()
