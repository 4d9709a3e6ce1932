"""Collects the warnings that sqlglot logs about a statement: a statement with one is refused, and the warning is not logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["collected_warnings"]

_ELSEWHERE: Final[list[str]] = []  # the default outside of collected_warnings()
_COLLECTED: Final[ContextVar[list[str]]] = ContextVar("anabranch_sqlglot_warnings")


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """The messages that sqlglot logs in this block, by this thread; they are not written to the log."""
    found: list[str] = []
    outer = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(outer)


def _collect(record: logging.LogRecord) -> bool:
    """A filter: False for a record that is collected."""
    found = _COLLECTED.get(_ELSEWHERE)
    if found is _ELSEWHERE:
        return True
    found.append(record.getMessage())
    return False


logging.getLogger("sqlglot").addFilter(_collect)
