"""Waiting for what another thread, process or server is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something that will be true soon. The bound is only there to fail a test rather than hang it."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.003)
