"""Which processes the kernel kills first where the machine's memory runs out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["be_killed_first"]

_SCORE: Final = 500  # of 1,000: as if this process took half of the memory more than it does


def be_killed_first() -> None:
    """Have this process and what it starts be killed rather than Java, the driver or the host of queries. Only for
    processes that can be replaced, such as Spark's Python workers. Does nothing but on Linux."""
    score = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):
        score.write_text(str(max(int(score.read_text()), _SCORE)))
