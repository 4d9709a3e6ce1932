"""Issuing warnings on behalf of the caller."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

__all__ = ["Warned", "are_passed_on", "warn_caller", "warnings_to"]

Warned: TypeAlias = Callable[[Warning], object]

_warned: ContextVar[Warned | None] = ContextVar("anabranch_warned", default=None)


def warn_caller(warning: Warning) -> None:
    """Issue a warning, attributed to the nearest caller outside this package; within `warnings_to` pass it on instead."""
    if (warned := _warned.get()) is not None:
        warned(warning)
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("anabranch."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def are_passed_on() -> bool:
    """True within `warnings_to`."""
    return _warned.get() is not None


@contextmanager
def warnings_to(warned: Warned) -> Iterator[None]:
    """Pass the warnings of this thread on: the caller of a broker's verb is in another process."""
    before = _warned.set(warned)
    try:
        yield
    finally:
        _warned.reset(before)
