"""The callback through which long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# Called as `progress(what, done, total)`: the current step in one word, how much of it is done and how much there is
# in total, in the unit that the work documents; total 0 means unknown. An exception from it ends the work at a point
# where nothing is half done, and reaches the caller.
ProgressCallback: TypeAlias = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """Ignores the report."""
