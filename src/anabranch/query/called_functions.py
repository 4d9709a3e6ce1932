"""Which functions a text of SQL may call."""

from __future__ import annotations

import re

__all__ = ["called_names"]

_CALLED = re.compile(r'\b(\w+)"?\s*\(')


def called_names(sql: str) -> frozenset[str]:
    """The names before an opening parenthesis, in lower case; also where it is not a call, such as in comments."""
    return frozenset(name.lower() for name in _CALLED.findall(sql))
