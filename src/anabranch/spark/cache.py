"""Where this package keeps what can be made again: a folder of the user's."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """`anabranch` in XDG_CACHE_HOME or `~/.cache`; it need not exist yet. Raises RuntimeError where there is no home."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if Path(cache).is_absolute() else Path("~/.cache").expanduser()) / "anabranch"
