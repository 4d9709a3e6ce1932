"""The names in clients' certificates, for HTTP: uvicorn does not hand them to applications."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anabranch.security.tls import certificate_name


def tls_extension(transport: asyncio.BaseTransport) -> dict[str, Any]:
    """The ASGI extension `tls` of a connection: the name in the verified certificate of the caller as `client_cert_name`;
    None without one."""
    connection = transport.get_extra_info("ssl_object")
    name = None if connection is None else certificate_name(connection.getpeercert())
    return {"tls": {"client_cert_name": name}}


class CertificateProtocol(HttpToolsProtocol):
    """Connections whose requests have the ASGI extension `tls`."""

    _extensions: dict[str, Any]  # shared by all requests; never changed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._extensions = tls_extension(transport)

    def on_message_begin(self) -> None:
        """Called by the parser at the start of each request."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)["extensions"] = self._extensions
