"""Issuing warnings on behalf of the caller."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

__all__ = ["Warned", "are_passed_on", "issue_here", "warn_caller", "warnings_to"]

Warned: TypeAlias = Callable[[Warning], object]

_warned: ContextVar[Warned] = ContextVar("anabranch_warned")


def warn_caller(warning: Warning) -> None:
    """Issue a warning, attributed to the nearest caller outside this package; within `warnings_to` pass it on instead."""
    _warned.get(issue_here)(warning)


def are_passed_on() -> bool:
    """True within `warnings_to`."""
    return _warned.get(issue_here) is not issue_here


def issue_here(warning: Warning) -> None:
    """Issue a warning in this process; for `warnings_to` where nobody else gets it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("anabranch."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


@contextmanager
def warnings_to(warned: Warned) -> Iterator[None]:
    """Pass the warnings of this thread on: the caller of a broker's verb is in another process."""
    before = _warned.set(warned)
    try:
        yield
    finally:
        _warned.reset(before)
