"""Ctrl-C at a convenient moment."""

from __future__ import annotations

import threading

# What `signal` wraps, at a tenth of its cost.
from _signal import SIGALRM, SIGHUP, SIGINT, SIGTERM, getsignal, signal  # type: ignore[import-not-found]
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (SIGINT, SIGTERM, SIGALRM, SIGHUP)  # alarms are how some give a call a time limit


class Undisturbed:
    """A context manager: signals whose handlers may raise anywhere, as Ctrl-C does, wait until its end.

    For short stretches of the main thread that must be done whole or not at all; others are never interrupted, and
    for them it does nothing. May be nested.
    """

    __slots__ = ("_handlers", "_pending")

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._pending: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in _SIGNALS:
                handler = getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal(number, self._note)
        except BaseException:
            self._restore(list(self._handlers))
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._restore(list(self._handlers))
        finally:
            for number, frame in self._pending:
                self._handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append((number, frame))

    def _restore(self, numbers: list[int]) -> None:
        if not numbers:
            return
        number = numbers.pop(0)
        try:
            # A handler that was changed meanwhile is somebody's wish.
            if getsignal(number) == self._note:
                signal(number, self._handlers[number])
        finally:  # Ctrl-C may strike as soon as it can
            self._restore(numbers)
