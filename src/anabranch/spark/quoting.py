"""Names in Spark's SQL, of any characters."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(name: str) -> str:
    """The name as one identifier, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
