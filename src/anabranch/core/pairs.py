"""Reads `name=value` texts."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import InvalidArgument

__all__ = ["parse_pairs"]


def parse_pairs(texts: Sequence[str] | None, what: str) -> dict[str, str]:
    """Parses `name=value` texts, each of which is called `what`. Raises InvalidArgument."""
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"'{text}' is not {what}: expected name=value")
        pairs[name] = value
    return pairs
