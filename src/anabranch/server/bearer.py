"""The token in the header `Authorization`."""

from __future__ import annotations

from typing import Final

from anabranch.errors import Unauthenticated

_BEARER: Final = "bearer "


def bearer_token(header: str) -> str:
    """The token of `Bearer TOKEN`. Raises Unauthenticated for any other scheme."""
    if header[: len(_BEARER)].lower() != _BEARER:
        raise Unauthenticated("expected Authorization: Bearer TOKEN")
    return header[len(_BEARER) :].strip()
