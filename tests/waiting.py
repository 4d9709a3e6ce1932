"""Waiting for what another thread, process or server is about to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Far more than anything takes on a slow and busy machine: it is only there to fail a test rather than hang it.
PATIENCE_S = 120.0


def until(true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait for something that will be true soon."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.003)


def until_ended(*threads: threading.Thread) -> None:
    """Wait for threads that are about to end."""
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} does not end"
