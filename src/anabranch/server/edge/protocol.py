"""HTTP connections whose callers have to be quick enough: uvicorn's protocol with a time-out for the head of a request."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anabranch.server.tls import CertificateProtocol

__all__ = ["CONNECTION", "timed_protocol"]

CONNECTION = "anabranch.connection"
"""In the scope of a call: what aborts its connection."""


def timed_protocol(header_timeout_s: float) -> type[HttpToolsProtocol]:
    """The class of connections that are aborted where the head of a request takes longer than this: also the first
    head, so that connections that send nothing end too."""

    class TimedProtocol(CertificateProtocol):
        _head_timer: TimerHandle | None = None
        _in_message = False

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self._in_message and self._head_timer is None:
                self._await_head()
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            scope: dict[str, Any] = self.scope  # type: ignore[assignment]
            scope[CONNECTION] = self.transport.abort
            if self._head_timer is None:  # it came with the end of the message before
                self._await_head()

        def on_headers_complete(self) -> None:
            self._in_message = True
            self._head_came()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_message = False
            super().on_message_complete()

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(header_timeout_s, self.transport.abort)

        def _head_came(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return TimedProtocol
