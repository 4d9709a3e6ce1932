"""Waiting for what another thread, process or server is about to do."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Far more than anything takes on a slow and busy machine: it is only there to fail a test rather than hang it.
PATIENCE_S = 120.0


def until(true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait for something that will be true soon. If it does not, the report of the test shows what all threads do."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > deadline:
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            raise AssertionError(f"still {found!r} after {seconds:g} s")
        time.sleep(0.003)


def sleeps(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Grows with each sleep of a store's threads."""
    found: list[float] = []
    own = type(tasks).sleep

    def sleep(self: Any, seconds: float) -> None:
        found.append(seconds)
        own(self, seconds)

    monkeypatch.setattr(type(tasks), "sleep", sleep)
    return found


def until_ended(*threads: threading.Thread) -> None:
    """Wait for threads that are about to end."""
    for thread in threads:
        thread.join(PATIENCE_S)
        if thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            raise AssertionError(f"{thread.name} does not end")


def until_gone(pid: int) -> None:
    """Wait until a process has ended, whether or not anybody has asked how: not every first process of a container
    does."""
    until(lambda: state_of(pid) in (None, "Z", "X"))


def state_of(pid: int) -> str | None:
    """The state of a process, as one letter: R, S, D, T, Z …; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
