"""Who makes a gRPC call: the bearer token of its metadata, and the name in its client certificate."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from anabranch.security.guard import Guard, Principal
from anabranch.security.tls import name_in_certificate
from anabranch.server.bearer import bearer_token


def caller(guard: Guard, context: Any) -> Principal:
    """Who makes the call. Raises Unauthenticated, RateLimited."""
    token = None
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            token = bearer_token(value if isinstance(value, str) else value.decode("latin-1"))
            break
    found = context.auth_context().get("x509_pem_cert")
    return guard.authenticate(token=token, certificate=_name(found[0]) if found else None, peer=peer_of(context))


def peer_of(context: Any) -> str:
    """The address of the machine that calls, without the port."""
    kind, _, place = unquote(context.peer()).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else place


@lru_cache(1024)
def _name(certificate: bytes) -> str | None:
    return name_in_certificate(certificate)
