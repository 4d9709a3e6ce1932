"""Ctrl-C at a convenient moment."""

from __future__ import annotations

import threading

# What `signal` wraps, at a tenth of its cost.
from _signal import SIGINT, SIGTERM, getsignal, signal  # type: ignore[import-not-found]
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (SIGINT, SIGTERM)


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
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        for number, frame in self._pending:
            self._handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append((number, frame))

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            # A handler that was changed meanwhile is somebody's wish.
            if getsignal(number) == self._note:
                signal(number, handler)
