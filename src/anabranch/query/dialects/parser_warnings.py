"""What sqlglot logs about a statement that it is not sure of. It is a reason to refuse the statement, not for the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["collected_warnings"]

_ELSEWHERE: Final[list[str]] = []  # of code that collects nothing
_COLLECTED: Final[ContextVar[list[str]]] = ContextVar("anabranch_sqlglot_warnings")


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What sqlglot logs in this block, by this thread. It is not logged elsewhere."""
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
