"""Offsets of a Durable Stream as text."""

from __future__ import annotations

import re
from typing import Final

from anabranch.errors import InvalidArgument

_OFFSET: Final = re.compile(r"0{16}_([0-9]{16})")


def offset_text(offset: int) -> str:
    """The offset as clients see it: it sorts as text."""
    return f"{0:016d}_{offset:016d}"


def offset_of(text: str) -> int:
    """The offset of its text. Raises InvalidArgument."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"'{text:.50}' is not an offset of a stream: expected -1, now, or a Stream-Next-Offset")
    return int(match[1])
