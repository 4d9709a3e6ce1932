"""Who calls, as the clients of InfluxDB say it: a token is the password of any user."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.types import Scope

from anabranch.server.http.passwords import password_token


def influx_token(scope: Scope) -> str | None:
    """The token of the header `Authorization`, or of the parameter `p`. Raises Unauthenticated."""
    token = password_token(scope)
    if token is not None:
        return token or None
    password = parse_qs(scope["query_string"].decode("latin-1")).get("p")
    return password[0] if password else None
