"""Followers of streams: each reads the history first, then gets the batches of the shared tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from typing import Any

from anabranch import limits
from anabranch.errors import Closed, InvalidCut
from anabranch.model.cut import TAIL, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.rate import Rate
from anabranch.model.stream import StreamInfo
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place
from anabranch.reading.reader import Reader
from anabranch.server.abandoned import open_in_thread
from anabranch.server.tail.paced import PacedParts
from anabranch.server.tail.shared import SharedTail, TailBatch, TailEnded, TailPassed
from anabranch.store.facade import Store


class SharedTails:
    """The shared tails of a broker, one for each stream that is followed at the moment. Used from one event loop; calls
    that wait for the catalog or the blobs run in `threads`."""

    def __init__(self, store: Store, threads: Executor) -> None:
        self._store = store
        self._threads = threads
        self._tails: dict[StreamId, SharedTail] = {}
        self._opening: dict[StreamId, asyncio.Lock] = {}
        self._lingering: dict[StreamId, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done once the broker drains

    async def follow(
        self, info: StreamInfo, start: Place, *, by: TimeKind = "append", rate: Rate | None = None
    ) -> Follower:
        """A follower of the stream from `start` on, as fast as `rate` allows. Raises what `Store.reader` raises
        for this start, and Closed once the broker drains."""
        if self.closing.done():
            raise Closed("broker")
        position = await self.run(lambda: self._place(info, start, by))
        tail = await self._tail(info)
        tail.followers += 1
        return Follower(self, tail, info, position, rate)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run something in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def read(self, info: StreamInfo, start: StreamCut, end: StreamCut) -> Reader:
        """A reader of the history between two cuts."""
        return await open_in_thread(
            self._threads,
            lambda: self._store.reader(info.name, start=start, end=end, batch_rows=limits.TAIL_ROWS_MAX),
        )

    def leave(self, info: StreamInfo, tail: SharedTail) -> None:
        """Note that a follower has ended. A tail without followers is closed after `limits.TAIL_LINGER_S`."""
        tail.followers -= 1
        if tail.followers or self.closing.done():
            return
        if self._tails.get(info.id) is tail:
            loop = asyncio.get_running_loop()
            self._lingering[info.id] = loop.call_later(limits.TAIL_LINGER_S, self._close_idle, info.id)
        else:
            self._close_later(tail)

    async def close(self) -> None:
        """Close all tails; their followers end with TailEnded. May be called again."""
        if not self.closing.done():
            self.closing.set_result(None)
        for handle in self._lingering.values():
            handle.cancel()
        tails = list(self._tails.values())
        self._tails.clear()
        for tail in tails:
            await tail.close()

    def _place(self, info: StreamInfo, start: Place, by: TimeKind) -> StreamCut:
        with self._store.reader(info.name, start=start, end=TAIL, by=by) as reader:
            return reader.position

    async def _tail(self, info: StreamInfo) -> SharedTail:
        handle = self._lingering.pop(info.id, None)
        if handle is not None:
            handle.cancel()
        async with self._opening.setdefault(info.id, asyncio.Lock()):
            tail = self._tails.get(info.id)
            if tail is None or tail.ended:
                reader = await open_in_thread(
                    self._threads,
                    lambda: self._store.reader(info.name, start=TAIL, follow=True, batch_rows=limits.TAIL_ROWS_MAX),
                )
                tail = self._tails[info.id] = SharedTail(reader)
        return tail

    def _close_idle(self, stream: StreamId) -> None:
        self._lingering.pop(stream, None)
        tail = self._tails.get(stream)
        if tail is not None and tail.followers == 0:
            del self._tails[stream]
            if (lock := self._opening.get(stream)) is not None and not lock.locked():
                del self._opening[stream]
            self._close_later(tail)

    def _close_later(self, tail: SharedTail) -> None:
        task = asyncio.get_running_loop().create_task(tail.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class Follower:
    """One follower. `position` is the cut after the last batch that `batches` returned: a follower that starts there
    continues without gap or repetition. Close it."""

    def __init__(
        self, tails: SharedTails, tail: SharedTail, info: StreamInfo, position: StreamCut, rate: Rate | None
    ) -> None:
        self._tails = tails
        self._tail = tail
        self._info = info
        self._read_to = self._given_to = position  # they differ while the rate delays batches that were read
        self._parts = None if rate is None else PacedParts(rate, tails.closing)
        self._number: int | None = (
            None  # of the next batch to get from the shared tail; None while the follower reads history
        )
        self._closed = False

    @property
    def position(self) -> StreamCut:
        """See the class."""
        return self._read_to if self._parts is None else self._given_to

    def batches(self) -> AsyncIterator[TailBatch | None]:
        """The batches from the position on; None after `limits.FOLLOW_IDLE_S` without a batch. Ends once the stream is
        sealed and everything is read. Raises Truncated, StreamNotFound, CorruptBlob, BlobMissing, Closed."""
        return self._batches() if self._parts is None else self._paced(self._parts)

    async def _paced(self, parts: PacedParts) -> AsyncIterator[TailBatch | None]:
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                if batch is None:
                    yield None
                    continue
                async for part in parts.of(batch.batch, batch.after):
                    if part is None:
                        yield None
                        continue
                    self._given_to = part.after
                    yield TailBatch(-1, part.batch, part.after, _not_kept)

    async def _batches(self) -> AsyncGenerator[TailBatch | None, None]:
        while True:
            if self._number is None:
                async for batch in self._history():
                    yield batch
                continue
            try:
                following = await self._tail.get(self._number)
            except TailEnded as ended:
                if ended.error is not None:
                    raise ended.error from None
                return
            except TailPassed:  # the follower was too slow
                self._number = None
                continue
            if following is None:
                yield None
                continue
            self._number += 1
            self._read_to = following.after
            yield following

    def close(self) -> None:
        """Leave the tail. May be called again."""
        if not self._closed:
            self._closed = True
            self._tails.leave(self._info, self._tail)

    async def _history(self) -> AsyncIterator[TailBatch]:
        """The batches between the follower's position and the shared tail's. After the last one, the follower gets its
        batches from the tail."""
        tail_position, number = self._tail.position, self._tail.next_number
        if self._read_to == tail_position:
            self._number = number
            return
        start = self._read_to
        try:
            reader = await self._tails.read(self._info, start, tail_position)
        except InvalidCut:
            # The shared tail is still before this follower's position: wait until it has read more.
            if self._tail.ended:
                self._number = self._tail.next_number
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._tail.changed()
            return
        try:
            while (batch := await self._tails.run(reader.read)) is not None:
                self._read_to = reader.position
                yield TailBatch(-1, batch, self._read_to, _not_kept)
        finally:
            reader.close()
        self._read_to, self._number = tail_position, number


def _not_kept(_number: int, _size: int) -> None:
    """Does nothing: the encoded bytes of a batch of history are not kept for other followers."""
