"""Ctrl-C for verbs that end what they run before they exit. Only the command line handles signals: a library leaves
the handlers of its host alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts"]


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C (or SIGTERM) sets. A second one raises KeyboardInterrupt as usual.

    Spark's own handler would cancel the running jobs, which looks like a failure of the query.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
