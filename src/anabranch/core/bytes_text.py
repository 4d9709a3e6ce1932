"""Bytes as text, wherever a text format has no other place for them: in CSV, and inside of arrays and objects of JSON."""

from __future__ import annotations

import base64
from typing import Final

CODED: Final = "base64:"


def bytes_to_text(data: bytes) -> str:
    """UTF-8 as it is. Base64 after `base64:` for bytes that are not UTF-8, and for those that begin with `base64:`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = CODED
    return CODED + base64.b64encode(data).decode() if text.startswith(CODED) else text


def bytes_from_text(text: str) -> bytes:
    """The inverse of `bytes_to_text`. Raises ValueError for what follows `base64:` and is no base64."""
    if not text.startswith(CODED):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(CODED), validate=True)
    except ValueError as exc:
        raise ValueError(f"{text!r:.100} is not base64 after '{CODED}': {exc}") from None
