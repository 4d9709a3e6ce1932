"""The further processes of a broker."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that any of its threads started."""
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
