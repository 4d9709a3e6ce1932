"""The threads, writers and followers that the calls of a front end share, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from anabranch import limits
from anabranch.errors import Closed, StreamNotFound
from anabranch.model.stream import StreamInfo
from anabranch.security.guard import Principal
from anabranch.server.abandoned import Closable, open_in_thread
from anabranch.server.broker import Broker
from anabranch.server.events.names import StreamNames
from anabranch.server.events.producers import OpenProducers
from anabranch.server.events.writers import SharedWriter, SharedWriters
from anabranch.server.queries import CallersQueries
from anabranch.server.rights import StreamRight
from anabranch.server.tail.follower import SharedTails

T = TypeVar("T")
C = TypeVar("C", bound=Closable)


class EventFront:
    """The resources that the calls of one front end share, for one event loop. Close it before the store."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.store = broker.store
        self.guard = broker.guard
        self.threads = ThreadPoolExecutor(limits.HTTP_THREADS_MAX, "anabranch-calls")
        self._long_threads = ThreadPoolExecutor(limits.HTTP_VERBS_MAX, "anabranch-verb")
        self._query_threads = ThreadPoolExecutor(limits.HTTP_QUERIES_MAX, "anabranch-query")
        self._session_threads = ThreadPoolExecutor(limits.GRPC_SESSIONS_MAX, "anabranch-session")
        self.names = StreamNames(self.store, self.guard, broker.loads, self.threads)
        self.writers = SharedWriters(self.store, broker.loads, self.threads)
        self.producers = OpenProducers(self.store, broker.loads)
        self.tails = SharedTails(self.store, self.threads)
        self.queries = CallersQueries(broker)
        self.draining = False
        self._shut_down = False
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None
        self._forget_drain = broker.drain.on_start(self._drain_soon)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work that waits for the catalog, the blobs or a commit in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def run_long(self, work: Callable[[], T]) -> T:
        """Run work that may take long, such as a verb that moves bytes, in a separate pool of threads, so that requests
        for events don't wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._long_threads, work)

    async def run_query(self, work: Callable[[], T]) -> T:
        """Run a query, or read more of its result, in a separate pool of threads, so that verbs don't wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._query_threads, work)

    async def open_query(self, opening: Callable[[], C]) -> C:
        """As `run_query`. If this task is cancelled meanwhile, the result of `opening` is closed."""
        return await open_in_thread(self._query_threads, opening)

    def run_session(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run a request of a group reader or a transaction, which may wait for events, in a separate pool of
        threads."""
        return asyncio.get_running_loop().run_in_executor(self._session_threads, work)

    async def recheck(self, right: StreamRight) -> None:
        """Check a right again in a thread, if a check is due. Raises PermissionDenied, Unauthenticated,
        StreamNotFound."""
        if right.is_due():
            await self.run(right.check)

    async def append(
        self, info: StreamInfo, principal: Principal, work: Callable[[StreamInfo, SharedWriter], Awaitable[T]]
    ) -> T:
        """Call `work` with the stream's writer, and once more if the writer was closed. Raises what `work` raises."""
        try:
            return await self._append(info, work)
        except (Closed, StreamNotFound):
            # Nothing was appended: another request closed the writer, or the name belongs to another stream now.
            self.names.forget(str(info.name))
            info = await self.names.get(str(info.name), principal, "write", verb="append")
            return await self._append(info, work)

    async def _append(self, info: StreamInfo, work: Callable[[StreamInfo, SharedWriter], Awaitable[T]]) -> T:
        try:
            return await work(info, await self.writers.get(info))
        except Exception as exc:
            self.writers.forget(info, exc)
            raise

    async def close(self) -> None:
        """End the followers, and wait until all accepted events are durable; running queries end with an error. May be
        called again."""
        self._forget_drain()
        self._begin_drain()
        assert self._ending is not None, "it has begun"
        await self._ending
        await self.writers.close()
        if self._shut_down:
            return
        await self.run(self.producers.close)
        self._shut_down = True
        self.queries.close()
        self.threads.shutdown(wait=False)
        self._long_threads.shutdown(wait=False, cancel_futures=True)
        self._query_threads.shutdown(wait=False, cancel_futures=True)
        self._session_threads.shutdown(wait=False)

    def _drain_soon(self) -> None:
        """Called in any thread."""
        with suppress(RuntimeError):  # the loop has ended, and with it all followers
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        """End the followers, each with the cut where it can continue; refuse new calls."""
        self.draining = True
        if self._ending is None:
            self._ending = self._loop.create_task(self.tails.close())
