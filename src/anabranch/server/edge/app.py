"""The outermost ASGI application: counts, logs and bounds every call, and answers health and metrics itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.server.broker import Broker
from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.edge.health import PATHS, Health
from anabranch.server.edge.protocol import CONNECTION
from anabranch.server.http.access import peer_of

_SWEEP_S: Final = 0.25
_BODY_BYTES_PER_S_MIN: Final = 64
"""Slower senders of a body are disconnected once `body_timeout_s` has passed."""


@dataclass(slots=True, eq=False)
class _Call:
    """One call under way. `reading_since` and `writing_since` are the loop's time at which it began to wait for the
    caller, None while it does not wait. `closed_for` is the reason why its connection was closed."""

    began: float = field(default_factory=time.monotonic)
    received: int = 0
    sent: int = 0
    status: int = 0
    body_ended: bool = False
    streams: bool = False
    too_large: bool = False
    reading_since: float | None = None
    writing_since: float | None = None
    closed_for: str | None = None


class HttpEdge:
    """Wraps the application of a process. Bodies over `request_bytes_max` are refused with 413; callers who send or take
    nothing for too long are disconnected; while the broker drains, connections are closed after their answer."""

    def __init__(
        self,
        app: ASGIApp,
        broker: Broker,
        settings: ServerSettings,
        counters: Counters,
        log: AccessLog | None,
        *,
        is_upload: Callable[[str, str], bool],
    ) -> None:
        """`is_upload`: whether a request of this method and path may have a body of any size, which is never held in
        memory."""
        self._app = app
        self._broker = broker
        self._settings = settings
        self._counters = counters
        self._health = Health(broker, counters)
        self._log = log
        self._is_upload = is_upload
        self._calls: dict[_Call, Callable[[], None] | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an HTTP request or WebSocket; pass any other scope on to the application."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        call = _Call()
        self._calls[call] = scope.get(CONNECTION)
        self._counters.began("http")
        try:
            await (self._serve if scope["type"] == "http" else self._serve_socket)(call, scope, receive, send)
        finally:
            del self._calls[call]
            self._ended(call, scope)

    async def sweep(self) -> None:
        """Disconnect callers who are too slow, and write the access log, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(_SWEEP_S)
                now = loop.time()
                for call, abort in list(self._calls.items()):
                    if abort is not None and call.closed_for is None:
                        call.closed_for = self._too_slow(call, now)
                        if call.closed_for is not None:
                            abort()
                if self._log is not None:
                    await loop.run_in_executor(None, self._log.flush)
        finally:
            if self._log is not None:
                self._log.flush()

    def _too_slow(self, call: _Call, now: float) -> str | None:
        """Why the caller is too slow; None if it is not."""
        limits = self._settings
        if call.writing_since is not None and now - call.writing_since > limits.send_timeout_s:
            return f"the caller read nothing for {limits.send_timeout_s:g} s"
        if call.reading_since is None:
            return None
        if now - call.reading_since > limits.body_timeout_s:
            return f"the caller sent nothing for {limits.body_timeout_s:g} s"
        taken = time.monotonic() - call.began
        if taken > limits.body_timeout_s + call.received / _BODY_BYTES_PER_S_MIN:
            return f"the caller sent {call.received:,} bytes in {taken:.0f} s"
        return None

    async def _serve(self, call: _Call, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PATHS and scope["method"] in ("GET", "HEAD"):
            status, text = await self._health.answer(scope)
            call.status, call.sent = status, len(text)
            await _answer(send, status, b"text/plain; version=0.0.4; charset=utf-8", text.encode())
            return
        body_bytes_max = self._settings.request_bytes_max
        bounded = not self._is_upload(scope["method"], scope["path"])
        if bounded and _content_length(scope) > body_bytes_max:
            await self._refuse(call, send)
            return
        loop = asyncio.get_running_loop()

        async def bounded_receive() -> Message:
            if call.body_ended:
                return await receive()
            call.reading_since = loop.time()
            message = await receive()
            call.reading_since = None
            call.received += len(message.get("body", b""))
            call.body_ended = not message.get("more_body", False)
            if bounded and call.received > body_bytes_max:
                call.too_large = True
                return {"type": "http.disconnect"}
            return message

        async def counted_send(message: Message) -> None:
            if call.too_large and call.status == 0:
                return  # the application's error for an incomplete body: `_refuse` answers instead
            if message["type"] == "http.response.start":
                call.status = message["status"]
                if self._broker.drain.started:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            else:
                call.sent += len(message.get("body", b""))
                call.streams = call.streams or (message.get("more_body", False) and call.body_ended)
            call.writing_since = loop.time()
            await send(message)
            call.writing_since = None

        try:
            await self._app(scope, bounded_receive, counted_send)
        except Exception:
            if not call.too_large or call.status:
                raise
        if call.too_large and call.status == 0:
            await self._refuse(call, send)

    async def _serve_socket(self, call: _Call, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()

        async def counted_send(message: Message) -> None:
            if message["type"] == "websocket.accept":
                call.status, call.streams = 101, True
            elif message["type"] == "websocket.http.response.start":
                call.status = message["status"]
            else:
                call.sent += len(message.get("text", message.get("body", "")))
            call.writing_since = loop.time()
            await send(message)
            call.writing_since = None

        if len(self._calls) > self._settings.connections_max:  # uvicorn limits only requests, not WebSockets
            await counted_send({"type": "websocket.http.response.start", "status": 503, "headers": []})
            await counted_send({"type": "websocket.http.response.body", "body": b""})
            return
        await self._app(scope, receive, counted_send)

    async def _refuse(self, call: _Call, send: Send) -> None:
        """Answer that the body is too large."""
        detail = f"the body is over the limit of {self._settings.request_bytes_max:,} bytes"
        problem = {"type": "urn:anabranch:too_large", "status": 413, "code": "too_large", "detail": detail}
        body = msgspec.json.encode(problem)
        call.status, call.sent = 413, len(body)
        await _answer(send, 413, b"application/problem+json", body, close=True)

    def direct_began(self) -> None:
        """A call has begun that is served without this application; see `DirectAppend`."""
        self._counters.began("http")

    def direct_ended(self, scope: Scope, path: str, status: int, seconds: float, *, received: int, sent: int) -> None:
        """A call that is served without this application has ended with this status."""
        self._counters.ended("http", _outcome(status), seconds, received=received, sent=sent)
        self._note(scope, "POST", path, status, seconds, received, sent)

    def _ended(self, call: _Call, scope: Scope) -> None:
        seconds = time.monotonic() - call.began
        lasted = None if call.streams else seconds
        self._counters.ended("http", _outcome(call.status), lasted, received=call.received, sent=call.sent)
        closed = {} if call.closed_for is None else {"closed": call.closed_for}
        method = scope.get("method", "GET")
        self._note(scope, method, scope["path"], call.status, seconds, call.received, call.sent, **closed)

    def _note(
        self,
        scope: Scope,
        method: str,
        path: str,
        status: int,
        seconds: float,
        received: int,
        sent: int,
        **more: str,
    ) -> None:
        if self._log is None:
            return
        self._log.note(
            front_end="http",
            peer=peer_of(scope),
            principal=getattr(scope.get("state", {}).get("principal"), "name", None),
            method=method,
            path=path,
            status=status or None,
            received=received,
            sent=sent,
            ms=round(seconds * 1000, 2),
            **more,
        )


def _outcome(status: int) -> str:
    """The outcome of a call for the counters."""
    if status == 0 or status >= 500:
        return "failed"
    return "refused" if status >= 400 else "ok"


async def _answer(send: Send, status: int, kind: bytes, body: bytes, *, close: bool = False) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
