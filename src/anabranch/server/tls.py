"""The names in clients' certificates, for HTTP: uvicorn does not hand them to applications."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anabranch.security.tls import certificate_name

_EXTENSION: Final = "anabranch.tls"


class CertificateProtocol(HttpToolsProtocol):
    """Give it to `uvicorn.Config(http=…)`: requests then have the name that `certificate_in` returns."""

    _certificate: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        connection = transport.get_extra_info("ssl_object")
        self._certificate = None if connection is None else certificate_name(connection.getpeercert())

    def on_message_begin(self) -> None:
        """Called by the parser at the start of each request."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)["extensions"] = {_EXTENSION: {"name": self._certificate}}


def certificate_in(scope: Mapping[str, Any]) -> str | None:
    """The name in the verified certificate of whoever made the request of this ASGI scope."""
    found: str | None = scope.get("extensions", {}).get(_EXTENSION, {}).get("name")
    return found
