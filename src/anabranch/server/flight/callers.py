"""Who makes a Flight call: the bearer token of its headers, and the name in its client certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyarrow import flight

from anabranch.security.guard import Guard, Principal

TOKEN: Final = "token"
_SCHEME: Final = "bearer "


class _Token(flight.ServerMiddleware):  # type: ignore[misc]
    """The token of one call; None if it has none."""

    def __init__(self, token: str | None) -> None:
        super().__init__()
        self.token = token


class TokenMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Takes the token out of `authorization: Bearer …`."""

    def start_call(self, info: object, headers: Mapping[str, Sequence[str | bytes]]) -> _Token:
        for name, values in headers.items():
            if name.lower() == "authorization" and values:
                value = values[0] if isinstance(values[0], str) else values[0].decode("latin-1")
                if value[: len(_SCHEME)].lower() == _SCHEME:
                    return _Token(value[len(_SCHEME) :].strip())
        return _Token(None)


def caller(guard: Guard, context: Any) -> Principal:
    """Who makes the call. Raises Unauthenticated, RateLimited."""
    found = context.get_middleware(TOKEN)
    certificate = context.peer_identity().decode("utf-8", "replace") or None
    return guard.authenticate(token=found and found.token, certificate=certificate, peer=context.peer())
