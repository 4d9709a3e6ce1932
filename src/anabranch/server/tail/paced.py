"""Keeps one consumer of a front end to the rate that it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.core.pace import Pace
from anabranch.errors import Closed
from anabranch.model.cut import StreamCut
from anabranch.model.rate import Rate
from anabranch.reading.bounds import cut_behind


class PacedPart(NamedTuple):
    """Rows that a consumer may have now, and the cut behind them."""

    batch: pa.RecordBatch
    after: StreamCut


class PacedParts:
    """Divides the batches of one consumer, for one event loop. `closing` is done once the broker drains."""

    def __init__(self, rate: Rate | None, closing: asyncio.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pace = None if rate is None else Pace(rate, self._loop.time())
        self._closing = closing

    async def of(self, batch: pa.RecordBatch, after: StreamCut) -> AsyncIterator[PacedPart | None]:
        """The batch in parts, each when the consumer may have it; None after `limits.FOLLOW_IDLE_S` without one. Without
        a rate: the whole batch. Raises Closed once the broker drains."""
        if self._pace is None:
            yield PacedPart(batch, after)
            return
        while batch.num_rows:
            while pause := self._pace.wait_s(self._loop.time()):
                await self._sleep(min(pause, limits.FOLLOW_IDLE_S))
                if pause > limits.FOLLOW_IDLE_S:
                    yield None
            count = self._pace.take(batch.num_rows, batch.nbytes)
            part, batch = batch.slice(0, count), batch.slice(count)
            yield PacedPart(part, cut_behind(part, after) if batch.num_rows else after)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.wait((self._closing,), timeout=seconds)
        if self._closing.done():
            raise Closed("broker")
