"""The user's cache folder, for files that can be created again."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """`anabranch` in XDG_CACHE_HOME or `~/.cache`; it may not exist yet. Raises RuntimeError without a home folder."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if Path(cache).is_absolute() else Path("~/.cache").expanduser()) / "anabranch"
