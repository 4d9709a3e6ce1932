"""Answers load balancers and monitoring systems: whether the broker is alive and ready, and its metrics."""

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
    """Answers for one process. Its methods run on the event loop, their calls of the store in threads."""

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
        """Why the broker can't serve; None if it can. Callers at the same time share one check of the catalog."""
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
            return f"{type(exc).__name__}: the catalog can't be read"  # the error's text may name paths of the server
        return None

    async def _metrics(self) -> str:
        if self._scrape is None or self._scrape.done():
            loop = asyncio.get_running_loop()
            self._scrape = loop.run_in_executor(None, lambda: exposition(self._broker.store))
        return self._counters.exposition() + await asyncio.shield(self._scrape)


def _token(scope: Scope) -> str | None:
    """The bearer token. Other credentials are ignored, because a monitoring system may send the same ones to all its
    targets."""
    with suppress(Unauthenticated):
        return header_token(scope)
    return None
