"""The shared tail of one stream: one reader, one waiting thread, any number of followers on one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Closed, Truncated
from anabranch.model.cut import StreamCut
from anabranch.reading.reader import Reader

_ENCODINGS_MAX: Final = 8  # the number that is kept of one batch


class TailBatch:
    """Rows that the shared tail has read: `number` counts the batches, `after` is the cut after them."""

    __slots__ = ("_encoded", "_grown", "after", "batch", "nbytes", "number")

    def __init__(self, number: int, batch: pa.RecordBatch, after: StreamCut, grown: Callable[[int, int], None]) -> None:
        self.number = number
        self.batch = batch
        self.after = after
        self.nbytes = batch.nbytes
        self._grown = grown
        self._encoded: dict[Hashable, list[bytes]] = {}

    def encoded(self, form: Hashable, encode: Callable[[pa.RecordBatch, StreamCut], list[bytes]]) -> list[bytes]:
        """The rows in a form, made by `encode` once for all followers that ask for it."""
        parts = self._encoded.get(form)
        if parts is None:
            parts = encode(self.batch, self.after)
            if len(self._encoded) < _ENCODINGS_MAX:
                self._encoded[form] = parts
                size = sum(map(len, parts))
                self.nbytes += size
                self._grown(self.number, size)
        return parts


class TailEnded(Exception):
    """The shared tail reads no more. `error` says why; None: the stream is sealed and everything is read."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__("the tail has ended")
        self.error = error


class TailPassed(Exception):
    """The tail no longer keeps the batch: its rows have to be read from history."""


class SharedTail:
    """Reads the tail of a stream and keeps its recent batches for all followers. For one event loop.

    A follower asks for batches by number. One that asks for a batch that is no longer kept has to read history. A new batch
    wakes all followers that wait, `limits.TAIL_WOKEN_MAX` at a time. The next batch is read `limits.TAIL_SPACING_US` ×
    the number of followers later, so that many followers of a fast stream cost a bounded share of the processor.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.position: StreamCut = reader.position
        self.next_number = 0
        self.followers = 0
        self._kept: deque[TailBatch] = deque()
        self._kept_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended: TailEnded | None = None
        self._idle = asyncio.get_running_loop().call_later(limits.FOLLOW_IDLE_S, self._wake)
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def ended(self) -> bool:
        """True if the tail reads no more."""
        return self._ended is not None

    def kept_from(self) -> int:
        """The number of the oldest batch that is kept; if none is kept, the number of the next one."""
        return self._kept[0].number if self._kept else self.next_number

    async def get(self, number: int) -> TailBatch | None:
        """The batch of this number; None after `limits.FOLLOW_IDLE_S` without one. Raises TailEnded, and TailPassed if
        the batch is no longer kept."""
        if number >= self.next_number:
            await self.changed()
            if number >= self.next_number:
                if self._ended is not None:
                    raise self._ended
                return None
        first = self.kept_from()
        if number < first:
            raise TailPassed
        return self._kept[number - first]

    async def changed(self) -> None:
        """Return once there is another batch, or the tail has ended, or after `limits.FOLLOW_IDLE_S` without either."""
        if self._ended is None:
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            await woken

    async def close(self) -> None:
        """Stop reading. Followers get TailEnded."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        error: Exception | None = None
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    async for batch in self._reader.batches():
                        self._keep(batch)
                        delivered_at = loop.time()
                        await self._deliver()
                        # Events that are appended during the pause are read and delivered together.
                        pause = delivered_at + self.followers * limits.TAIL_SPACING_US / 1e6 - loop.time()
                        if pause > 0:
                            await asyncio.sleep(pause)
                    break
                except Truncated:
                    await asyncio.to_thread(self._reader.skip_truncated)
                    self.position = self._reader.position
        except asyncio.CancelledError:
            error = Closed("broker")
            raise
        except Exception as exc:
            error = exc
        finally:
            self._ended = TailEnded(error)
            self._wake()
            self._reader.close()

    def _keep(self, batch: pa.RecordBatch) -> None:
        self.position = self._reader.position
        self._kept.append(TailBatch(self.next_number, batch, self.position, self._grow))
        self._kept_bytes += self._kept[-1].nbytes
        self.next_number += 1
        self._evict()

    def _grow(self, number: int, size: int) -> None:
        if number >= self.kept_from():
            self._kept_bytes += size
            self._evict()

    def _evict(self) -> None:
        while self._kept_bytes > limits.TAIL_KEPT_BYTES_MAX and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popleft().nbytes

    async def _deliver(self) -> None:
        """Wake all followers that wait now, a few at a time, so that appends and other requests are served in
        between."""
        left = len(self._waiting)
        while left > 0:
            self._wake_first(min(left, limits.TAIL_WOKEN_MAX))
            left -= limits.TAIL_WOKEN_MAX
            await asyncio.sleep(0)
        self._restart_idle()

    def _wake(self) -> None:
        self._wake_first(len(self._waiting))
        self._restart_idle()

    def _wake_first(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            each = self._waiting.popleft()
            if not each.done():
                each.set_result(None)

    def _restart_idle(self) -> None:
        self._idle.cancel()
        if self._ended is None:
            self._idle = asyncio.get_running_loop().call_later(limits.FOLLOW_IDLE_S, self._wake)
