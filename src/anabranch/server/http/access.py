"""Who calls: the token of a request, and the name in its client certificate."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable

from starlette.types import Scope

from anabranch.errors import Unauthenticated
from anabranch.security.guard import Guard, Principal, bearer_token


def header_token(scope: Scope) -> str | None:
    """The token of the header `Authorization: Bearer`. Raises Unauthenticated for another scheme."""
    header = _authorization(scope)
    return None if header is None else bearer_token(header)


def password_token(scope: Scope) -> str | None:
    """The token that a caller sends as the password of any user, in the header `Authorization`: of `Basic`, or
    `Token USER:TOKEN`; also `Bearer TOKEN`. None without the header. Raises Unauthenticated."""
    header = _authorization(scope)
    if header is None:
        return None
    scheme, _, rest = header.strip().partition(" ")
    match scheme.lower():
        case "basic":
            try:
                user_and_password = b64decode(rest, validate=True).decode()
            except ValueError as exc:
                raise Unauthenticated("the header Authorization: Basic holds no user and password") from exc
            return user_and_password.partition(":")[2]
        case "token":
            return rest.strip().rpartition(":")[2]
    return bearer_token(header)


def authenticate(guard: Guard, scope: Scope, token_of: Callable[[Scope], str | None] = header_token) -> Principal:
    """The caller of a request: by its token, by the name in its verified client certificate, or by neither. Raises
    Unauthenticated, RateLimited."""
    principal = guard.authenticate(token=token_of(scope), certificate=_certificate(scope), peer=peer_of(scope))
    scope.setdefault("state", {})["principal"] = principal  # for the access log
    return principal


def peer_of(scope: Scope) -> str:
    """The address that the request comes from; nothing where it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _certificate(scope: Scope) -> str | None:
    """The name in the client's certificate, where the server passes it on (the ASGI extension `tls`)."""
    tls = scope.get("extensions", {}).get("tls") or {}
    name = tls.get("client_cert_name")
    return name if isinstance(name, str) and name else None


def _authorization(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), None)
