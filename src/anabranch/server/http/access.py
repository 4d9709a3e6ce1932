"""Who calls."""

from __future__ import annotations

from starlette.types import Scope

from anabranch.security.guard import Guard, Principal
from anabranch.server.bearer import bearer_token


def authenticate(guard: Guard, scope: Scope) -> Principal:
    """The caller of a request: by the token of its `Authorization: Bearer` header, by the name in its verified client
    certificate, or by neither. Raises Unauthenticated, RateLimited."""
    token = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            token = bearer_token(value.decode("latin-1"))
            break
    client = scope.get("client")
    principal = guard.authenticate(
        token=token, certificate=_certificate(scope), peer="" if client is None else str(client[0])
    )
    scope.setdefault("state", {})["principal"] = principal  # for the access log
    return principal


def _certificate(scope: Scope) -> str | None:
    """The name in the client's certificate, where the server passes it on (the ASGI extension `tls`)."""
    tls = scope.get("extensions", {}).get("tls") or {}
    name = tls.get("client_cert_name")
    return name if isinstance(name, str) and name else None
