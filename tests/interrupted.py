"""Ctrl-C at every place in the store's own code, one after the other."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import anabranch

_FIRST = 8  # the last instruction that a generator has behind it when it begins
_OURS = str(Path(anabranch.__file__).parent)


class CtrlC:
    """Does work in the main thread, with Ctrl-C at the `at`-th of the places in the store's code where the interpreter looks
    for signals: where a function begins, and behind a call of one that is not written in Python."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._places = 0

    @property
    def struck(self) -> bool:
        """False if the work was done before."""
        return self._places > self._at

    def __call__(self, work: Callable[[], object]) -> None:
        """Raises what the work does."""
        sys.setprofile(self._look)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(_OURS) and not resumes(frame, event):
            self._places += 1
            if self._places == self._at + 1:
                signal.raise_signal(signal.SIGINT)


def resumes(frame: FrameType, event: str) -> bool:
    """True where a generator goes on. What a profiler raises there leaves it without its `finally` and `with`, which no
    signal does: that strikes behind the `yield`."""
    return event == "call" and bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and frame.f_lasti > _FIRST


def ctrl_c_everywhere(stride: int = 1) -> Iterator[CtrlC]:
    """At the first place, `stride` places later, and so on, until the work is over before."""
    at = 0
    while True:
        press = CtrlC(at)
        yield press
        if not press.struck:
            return
        at += stride
