"""Tokens that callers send as the password of any user."""

from __future__ import annotations

import binascii
from base64 import b64decode

from starlette.types import Scope

from anabranch.errors import Unauthenticated
from anabranch.server.bearer import bearer_token


def password_token(scope: Scope) -> str | None:
    """The token of the header `Authorization`: the password of `Basic`, `Token USER:TOKEN`, or `Bearer TOKEN`. None
    without the header. Raises Unauthenticated."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return _of_header(value.decode("latin-1"))
    return None


def _of_header(header: str) -> str:
    scheme, _, rest = header.strip().partition(" ")
    match scheme.lower():
        case "basic":
            try:
                user_and_password = b64decode(rest, validate=True).decode()
            except (binascii.Error, ValueError) as exc:
                raise Unauthenticated("the header Authorization: Basic holds no user and password") from exc
            return user_and_password.partition(":")[2]
        case "token":
            return rest.strip().rpartition(":")[2]
    return bearer_token(header)
