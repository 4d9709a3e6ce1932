"""WebSocket connections: uvicorn's protocol, with the same additions to the scope as for other calls."""

from __future__ import annotations

from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from anabranch.server.edge.protocol import CONNECTION, tls_extension


class SocketProtocol(WebSocketsSansIOProtocol):
    """A connection whose scope has what aborts it, and the ASGI extension `tls`."""

    def handle_connect(self, event: Request) -> None:
        """See uvicorn: called once the handshake has come; the application runs after this has returned."""
        super().handle_connect(event)
        scope = cast(dict[str, Any] | None, getattr(self, "scope", None))
        if scope is not None:  # else the handshake was refused
            scope[CONNECTION] = self.transport.abort
            scope["extensions"] = {**scope["extensions"], **tls_extension(self.transport)}
