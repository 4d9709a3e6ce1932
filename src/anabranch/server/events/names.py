"""Looks up streams by name, and remembers them for a moment, so that not every request asks the catalog."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import NotFound, ScopeRenamed, StreamRenamed
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.security.guard import Guard, Operation, Principal
from anabranch.server.load.stream_loads import StreamLoads
from anabranch.store.facade import Store


class _Known(NamedTuple):
    info: StreamInfo
    until: float


class StreamNames:
    """Streams by name, as of at most `limits.HTTP_NAME_S` ago: a stream that was renamed or deleted by another process
    is found under its old name for that long. For one event loop."""

    def __init__(self, store: Store, guard: Guard, loads: StreamLoads, threads: Executor) -> None:
        self._store = store
        self._loads = loads
        self._guard = guard
        self._threads = threads
        self._known: dict[str, _Known] = {}
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, asyncio.Task[StreamInfo]] = {}

    def known(self, name: str) -> StreamInfo | None:
        """The stream, if it was looked up a moment ago. A name in constant use is looked up again in the background
        before it expires, so that no request waits for the look-up."""
        found = self._known.get(name)
        now = self._loop.time()
        if found is None or found.until < now:
            return None
        if found.until - now < limits.HTTP_NAME_S / 2 and name not in self._asked:
            self._ask(name)
        return found.info

    def forget(self, name: str) -> None:
        """Look the name up again next time. The result of a look-up that is under way is not remembered."""
        self._known.pop(name, None)
        self._asked.pop(name, None)

    async def get(self, name: str, principal: Principal, operation: Operation, *, verb: str) -> StreamInfo:
        """The stream with this name or alias, after checking that the caller may do the operation on it.
        Raises InvalidName, StreamNotFound and its subclasses, PermissionDenied: only callers who may use a
        stream learn whether it exists."""
        info = self.known(name)
        if info is None:
            try:
                info = await self._look_up(name)
            except NotFound as exc:
                self._guard.authorize(principal, operation, name, verb=verb)
                if isinstance(exc, StreamRenamed):
                    self._guard.authorize(principal, operation, exc.name, verb=verb)
                elif isinstance(exc, ScopeRenamed):
                    self._guard.authorize(principal, operation, f"{exc.name}/", verb=verb)
                raise
        self._guard.authorize(principal, operation, str(info.name), verb=verb)
        return info

    async def _look_up(self, name: str) -> StreamInfo:
        asked = self._asked.get(name)
        if asked is None:
            StreamName.parse(name)
            asked = self._ask(name)
        return await asyncio.shield(asked)

    def _ask(self, name: str) -> asyncio.Task[StreamInfo]:
        asked = self._asked[name] = self._loop.create_task(self._fetch(name))
        asked.add_done_callback(partial(self._fetched, name))
        return asked

    async def _fetch(self, name: str) -> StreamInfo:
        info = await self._loop.run_in_executor(self._threads, self._get, name)
        if self._asked.get(name) is asyncio.current_task():
            if len(self._known) >= limits.HTTP_NAMES_MAX:
                self._known.clear()
            self._known[name] = _Known(info, self._loop.time() + limits.HTTP_NAME_S)
        return info

    def _get(self, name: str) -> StreamInfo:
        info = self._store.streams.get(name)
        self._loads.refresh(info.id)
        return info

    def _fetched(self, name: str, task: asyncio.Task[StreamInfo]) -> None:
        # Reading the exception marks it as retrieved, also if no caller waits for it any more.
        failed = task.cancelled() or task.exception() is not None
        if self._asked.get(name) is task:
            del self._asked[name]
            if failed:
                self._known.pop(name, None)
