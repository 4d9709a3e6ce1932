"""The ASGI application of a broker. The time that a caller may take to send and to receive is the server's business."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.http.access import authenticate
from anabranch.server.http.cors import check_host, check_origin, with_cors
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.front import HttpCall, HttpFront, stream_of
from anabranch.server.http.openapi import openapi
from anabranch.server.http.problem import HttpRefusal, draining, problem_response
from anabranch.server.http.table import ENDPOINTS

_NOBODY: Final = Principal("anonymous")
_READING: Final = ("GET", "HEAD", "OPTIONS")  # a page of another origin is not shown the answers


class HttpApp:
    """The ASGI application that serves a broker's store over HTTP, also to browsers' pages of these origins, to requests
    for these hosts (`check_host`). It needs the lifespan protocol, and one event loop a process. It closes neither the
    store nor the guard. Once the broker drains, followers end, each with the cut where it can continue."""

    def __init__(self, broker: Broker, *, origins: Sequence[str] = (), hosts: Sequence[str] = ("*",)) -> None:
        self._broker = broker
        self._origins = origins
        self._hosts = hosts
        self.front: HttpFront | None = None
        self._description = msgspec.json.encode(openapi(ENDPOINTS))
        app = Starlette(
            routes=[*_socket_routes(self), *_routes(self)],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _refused},
        )
        self._app = with_cors(app, origins) if origins else app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def admitted(self, endpoint: Endpoint, request: Request, *, reads: bool) -> HttpCall:
        """The call of an endpoint, once its caller is known and allowed. Pages of other origins may only make calls that
        read. Raises HttpRefusal, Unauthenticated, PermissionDenied, RateLimited, StreamNotFound."""
        if not reads:
            check_origin(request.headers, self._origins)
        front = self.front
        if front is None or front.draining:
            raise draining()
        if endpoint.public:
            return HttpCall(front, request, _NOBODY)
        check_host(request.headers, self._hosts)
        principal = authenticate(front.guard, request.scope, endpoint.token_of)
        front.guard.admit(principal)
        endpoint.check_query(request.query_params)
        if endpoint.operation is None:
            return HttpCall(front, request, principal)
        stream = await front.names.get(stream_of(request), principal, endpoint.operation, verb=endpoint.name)
        return HttpCall(front, request, principal, stream)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.front = HttpFront(self._broker, self._description)
        try:
            yield
        finally:
            await self.front.close()


class _Served:
    """The endpoints of a path as an ASGI application: authenticates, checks, counts, and answers errors."""

    def __init__(self, app: HttpApp, endpoints: Mapping[str, Endpoint]) -> None:
        """`endpoints` are those of one path, by method."""
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints[scope["method"]]
        try:
            call = await self._app.admitted(endpoint, Request(scope, receive), reads=endpoint.method in _READING)
            response = await endpoint.handler(call)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            response = endpoint.refusal(exc)
        for name, value in endpoint.headers.items():
            response.headers.setdefault(name, value)
        with suppress(ClientDisconnect, TimeoutError):  # it goes no further: the connection is closed
            await response(scope, receive, partial(_send_on, send))


class _ServedSocket:
    """The WebSockets of a path as an ASGI application. What is refused is answered as HTTP would be."""

    def __init__(self, app: HttpApp, endpoint: Endpoint) -> None:
        self._app = app
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoint
        assert endpoint.socket is not None, "the route is only there if it has one"
        served: ASGIApp
        try:
            request = Request({**scope, "type": "http", "method": "GET"})
            served = await endpoint.socket(await self._app.admitted(endpoint, request, reads=False))
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            served = endpoint.refusal(exc)
        await served(scope, receive, send)


async def _send_on(send: Send, message: Message) -> None:
    """Send a message. Raises ClientDisconnect where the caller has gone: uvloop says so by a RuntimeError, which is no
    failure of this server."""
    try:
        await send(message)
    except RuntimeError as exc:
        if "closed" not in str(exc):
            raise
        raise ClientDisconnect from exc


def _routes(app: HttpApp) -> list[Route]:
    """One route per path, with all its methods, so that the answer to a wrong method lists the right ones."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [Route(path, _Served(app, methods), methods=list(methods)) for path, methods in paths.items()]
    for route, methods in zip(routes, paths.values(), strict=True):
        route.methods = set(methods)  # Starlette adds HEAD to GET
    return routes


def _socket_routes(app: HttpApp) -> list[BaseRoute]:
    return [WebSocketRoute(each.path, _ServedSocket(app, each)) for each in ENDPOINTS if each.socket is not None]


async def _refused(_: Request, exc: Exception) -> Response:
    """What Starlette refuses itself: unknown paths and methods."""
    assert isinstance(exc, HTTPException), "the only kind that it is registered for"
    code = {404: "no_such_path", 405: "method_not_allowed"}.get(exc.status_code, "refused")
    return problem_response(HttpRefusal(exc.status_code, code, str(exc.detail), **dict(exc.headers or {})))
