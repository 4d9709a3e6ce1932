"""HTTP connections whose callers have to be quick enough: uvicorn's protocol with a time-out for the head of a request, and
with the names in clients' certificates, which uvicorn does not hand to applications. And WebSocket connections."""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle, Transport
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from anabranch import limits
from anabranch.security.tls import certificate_name
from anabranch.server.http.direct_append import DirectAppend

CONNECTION = "anabranch.connection"
"""The key, in the scope of a call, of the function that aborts its connection."""


def tls_extension(transport: BaseTransport) -> dict[str, Any]:
    """The ASGI extension `tls` of a connection: the name in the verified certificate of the caller as `client_cert_name`;
    None
    without a certificate."""
    connection = transport.get_extra_info("ssl_object")
    name = None if connection is None else certificate_name(connection.getpeercert())
    return {"tls": {"client_cert_name": name}}


def timed_protocol(
    header_timeout_s: float, take: Callable[[HttpToolsProtocol], DirectAppend | None] = lambda connection: None
) -> type[HttpToolsProtocol]:
    """The class of connections that are aborted if the head of a request takes longer than `header_timeout_s`. The time
    of the first head counts from the connection, so that a connection without a request ends, too. `take` may take a
    request whose head is complete. If the body of such a request is not complete within `limits.HTTP_DIRECT_BODY_S`,
    the application serves it, which limits the time for a body."""

    class TimedProtocol(HttpToolsProtocol):
        _extensions: dict[str, Any]  # shared by all requests; never changed
        _head_timer: TimerHandle | None = None
        _in_message = False
        _in_head = False
        _messages = 0
        _taken: DirectAppend | None = None
        _body_timer: TimerHandle | None = None

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._extensions = tls_extension(transport)
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_received()
            self._forget_taken()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            before = self._messages
            super().data_received(data)
            if self._taken is not None and self._taken.more_body and self._body_timer is None:
                self._body_timer = self.loop.call_later(limits.HTTP_DIRECT_BODY_S, self._hand_over)
            if self._head_timer is None and (self._in_head or (self._messages == before and not self._in_message)):
                self._await_head()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            scope: dict[str, Any] = self.scope  # type: ignore[assignment]
            scope[CONNECTION] = self.transport.abort
            scope["extensions"] = self._extensions
            self._in_head = True

        def on_headers_complete(self) -> None:
            self._in_message, self._in_head = True, False
            self._head_received()
            taken = self._taken = take(self)
            if taken is None:
                super().on_headers_complete()
            else:
                self.cycle = taken  # type: ignore[assignment]

        def on_message_complete(self) -> None:
            self._in_message = False
            self._messages += 1
            self._forget_taken()
            super().on_message_complete()

        def _hand_over(self) -> None:
            taken = self._taken
            self._forget_taken()
            if taken is not None:
                taken.hand_over()

        def _forget_taken(self) -> None:
            self._taken = None
            if self._body_timer is not None:
                self._body_timer.cancel()
                self._body_timer = None

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(header_timeout_s, self.transport.abort)

        def _head_received(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return TimedProtocol


class SocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket connection. Its scope has the function that aborts it, and the ASGI extension `tls`."""

    def handle_connect(self, event: Request) -> None:
        """See uvicorn: called once the handshake is received; the application runs after this method has returned."""
        super().handle_connect(event)
        scope = cast(dict[str, Any] | None, getattr(self, "scope", None))
        if scope is not None:  # None if the handshake was refused
            scope[CONNECTION] = self.transport.abort
            scope["extensions"] = {**scope["extensions"], **tls_extension(self.transport)}
