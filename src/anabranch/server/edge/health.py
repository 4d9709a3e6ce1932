"""What a load balancer and a monitoring system ask: is the broker alive, is it ready, and its metrics."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import Scope

from anabranch.errors import AnabranchError, PermissionDenied, RateLimited, Unauthenticated
from anabranch.export.metrics import exposition
from anabranch.server.broker import Broker
from anabranch.server.counters import Counters
from anabranch.server.http.access import authenticate, header_token
from anabranch.wire.errors import status_of

PATHS: Final = frozenset(("/healthz", "/readyz", "/metrics"))
_PROBE_S: Final = 3.0


class Health:
    """Answers for one process. Its calls run on the event loop, what they ask of the store in threads."""

    def __init__(self, broker: Broker, counters: Counters) -> None:
        self._broker = broker
        self._counters = counters
        self._probe: asyncio.Future[str | None] | None = None
        self._scrape: asyncio.Future[str] | None = None

    async def answer(self, scope: Scope) -> tuple[int, str]:
        """The status and text of an answer. Anybody may ask for health and readiness; metrics name streams and groups,
        so only callers who may read the store get them."""
        if scope["path"] == "/healthz":
            return 200, "ok\n"
        if scope["path"] == "/readyz":
            problem = await self._problem()
            return (200, "ready\n") if problem is None else (503, f"{problem}\n")
        try:
            guard = self._broker.guard
            guard.authorize(authenticate(guard, scope, _token), "read", None)
            return 200, await self._metrics()
        except (Unauthenticated, PermissionDenied, RateLimited) as exc:
            return status_of(exc).http, f"{exc}\n"
        except AnabranchError as exc:
            return 503, f"{exc}\n"

    async def _problem(self) -> str | None:
        """Why the broker can't serve, if it can't. At most one look at the store at a time, however many ask."""
        if self._broker.drain.started:
            return "draining"
        if not self._counters.is_started:
            return "starting"
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().run_in_executor(None, self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._probe), _PROBE_S)
        except TimeoutError:
            return f"the catalog has not answered for {_PROBE_S:g} s"

    def _look(self) -> str | None:
        try:
            with self._broker.store.catalog.reading() as reading:
                reading.horizon()
        except AnabranchError as exc:
            return f"{type(exc).__name__}: the catalog can't be read"  # its text may name places of the server
        return None

    async def _metrics(self) -> str:
        if self._scrape is None or self._scrape.done():
            loop = asyncio.get_running_loop()
            self._scrape = loop.run_in_executor(None, lambda: exposition(self._broker.store))
        return self._counters.exposition() + await asyncio.shield(self._scrape)


def _token(scope: Scope) -> str | None:
    """A bearer token. Other credentials are ignored, as a monitoring system may send some to every place."""
    with suppress(Unauthenticated):
        return header_token(scope)
    return None
