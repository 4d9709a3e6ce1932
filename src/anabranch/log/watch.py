"""How long work tells what it is doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# Called as `progress(what, done, total)`: what is under way in one word, how much of it is done and of how much, in
# the unit the work states; total 0 means unknown. An exception from it ends the work at a point where nothing is half
# done, and reaches the caller.
Watch: TypeAlias = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""
