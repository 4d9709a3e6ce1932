"""Ctrl-C for verbs that end what they run before they exit. Only the command line handles signals: a library leaves
the handlers of its host alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

__all__ = ["deferred", "interrupts"]


_SETTER_S: Final = 10.0
_SHOW_CURSOR: Final = "\x1b[?25h"  # a live table hides it


@contextmanager
def interrupts(note: str | None = None) -> Iterator[threading.Event]:
    """An event that Ctrl-C (or SIGTERM) sets. A second one raises KeyboardInterrupt as usual. With `note`, the first one
    writes this line to stderr, and a second one ends the process at once, as a kill would: with exit code 130 or 143.

    Spark's own handler would cancel the running jobs, which looks like a failure of the query.
    """
    interrupted = threading.Event()
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        del frame
        if not seen:
            seen.append(signum)
            os.write(sending, b"!")
            if note is not None:
                _write(f"anabranch: {note}\n")
        elif note is None:
            raise KeyboardInterrupt
        else:
            if sys.stderr.isatty():
                _write(_SHOW_CURSOR)
            os._exit(128 + signum)

    # Not the handler itself sets the event: it may have come while this thread holds the event's lock, in `wait`.
    receiving, sending = os.pipe()
    setter = threading.Thread(target=_set_on_byte, args=(receiving, interrupted), name="interrupts", daemon=True)
    setter.start()
    try:
        with _handled_by(handle):
            yield interrupted
    finally:
        os.close(sending)
        setter.join(_SETTER_S)
        os.close(receiving)


@contextmanager
def deferred() -> Iterator[None]:
    """Ctrl-C and SIGTERM within are acted on at its end, also if that is an error. For imports of extension modules, some of
    which end the process with a stack of C++ if a signal's handler raises within them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    try:
        with _handled_by(lambda signum, frame: arrived.append(signum)):
            yield
    finally:
        if arrived:
            signal.raise_signal(arrived[0])


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _set_on_byte(receiving: int, interrupted: threading.Event) -> None:
    if os.read(receiving, 1):
        interrupted.set()


def _write(text: str) -> None:
    # Not by print: the signal may have come while that was writing.
    with suppress(OSError):  # its reader is gone
        os.write(sys.stderr.fileno(), text.encode())
