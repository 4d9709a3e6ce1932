"""What the handlers of the HTTP front end share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.stream import StreamInfo
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.http.names import StreamNames
from anabranch.server.http.producers import OpenProducers
from anabranch.server.http.writers import SharedWriters
from anabranch.server.tail.follower import SharedTails

T = TypeVar("T")


class HttpFront:
    """One broker's HTTP front end, for one event loop. Close it before the store."""

    def __init__(self, broker: Broker, description: bytes) -> None:
        """`description` is that of the API, as OpenAPI."""
        self.description = description
        self.broker = broker
        self.store = broker.store
        self.guard = broker.guard
        self.threads = ThreadPoolExecutor(limits.HTTP_THREADS_MAX, "anabranch-http")
        self._long_threads = ThreadPoolExecutor(limits.HTTP_VERBS_MAX, "anabranch-verb")
        self.names = StreamNames(self.store, self.guard, self.threads)
        self.writers = SharedWriters(self.store, self.threads)
        self.producers = OpenProducers(self.store)
        self.tails = SharedTails(self.store, self.threads)
        self.draining = False
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None
        self._forget_drain = broker.drain.on_start(self._drain_soon)

    async def run(self, work: Callable[[], T]) -> T:
        """Run what waits for the catalog, the blobs or a commit, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def run_long(self, work: Callable[[], T]) -> T:
        """Run what may take long, such as a verb that moves bytes, in one of other threads: requests for events don't
        wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._long_threads, work)

    async def close(self) -> None:
        """End the followers, and wait until what was accepted is durable. May be called again."""
        self._forget_drain()
        self._begin_drain()
        assert self._ending is not None, "it has begun"
        await self._ending
        await self.writers.close()
        await self.run(self.producers.close)
        self.threads.shutdown(wait=False)
        self._long_threads.shutdown(wait=False, cancel_futures=True)

    def _drain_soon(self) -> None:
        """Called in any thread."""
        with suppress(RuntimeError):  # the loop has ended, and with it all followers
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        """End the followers, each with the cut where it can go on; refuse what comes now."""
        self.draining = True
        if self._ending is None:
            self._ending = self._loop.create_task(self.tails.close())


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request that may be served: its caller is known and allowed. `stream` is that of the path, if the path names
    one."""

    front: HttpFront
    request: Request
    principal: Principal
    stream: StreamInfo | None = None

    @property
    def info(self) -> StreamInfo:
        """The stream of the path."""
        assert self.stream is not None, "the path of this endpoint names a stream"
        return self.stream

    def flag(self, name: str) -> bool:
        """A parameter of the query that is on if it is there: `?follow`, `?follow=true`. Raises InvalidArgument."""
        value = self.request.query_params.get(name)
        if value is None:
            return False
        if value.lower() in ("", "1", "true", "yes"):
            return True
        if value.lower() in ("0", "false", "no"):
            return False
        raise InvalidArgument(f"{name} is true or false, not '{value}'")

    def text(self, name: str, default: str | None = None) -> str | None:
        """A parameter of the query."""
        return self.request.query_params.get(name, default)

    def count(self, name: str, default: int | None, *, most: int) -> int | None:
        """A parameter of the query that is a number from 1 to `most`. Raises InvalidArgument."""
        value = self.request.query_params.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and len(value) < 19 and 1 <= int(value) <= most):
            raise InvalidArgument(f"{name} is a number from 1 to {most:,}, not '{value}'")
        return int(value)
