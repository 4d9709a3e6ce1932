"""Who calls."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Scope

from anabranch.security.guard import Guard, Principal
from anabranch.server.bearer import bearer_token


def header_token(scope: Scope) -> str | None:
    """The token of the header `Authorization: Bearer`. Raises Unauthenticated for another scheme."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bearer_token(value.decode("latin-1"))
    return None


def authenticate(guard: Guard, scope: Scope, token_of: Callable[[Scope], str | None] = header_token) -> Principal:
    """The caller of a request: by its token, by the name in its verified client certificate, or by neither. Raises
    Unauthenticated, RateLimited."""
    client = scope.get("client")
    principal = guard.authenticate(
        token=token_of(scope), certificate=_certificate(scope), peer="" if client is None else str(client[0])
    )
    scope.setdefault("state", {})["principal"] = principal  # for the access log
    return principal


def _certificate(scope: Scope) -> str | None:
    """The name in the client's certificate, where the server passes it on (the ASGI extension `tls`)."""
    tls = scope.get("extensions", {}).get("tls") or {}
    name = tls.get("client_cert_name")
    return name if isinstance(name, str) and name else None
