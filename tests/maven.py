"""Where tests have Maven keep what it fetches, outside the repository."""

from __future__ import annotations

import os
from pathlib import Path


def maven_repository() -> Path:
    """The local repository of the tests."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "anabranch-tests" / "maven"
