"""Issuing warnings on behalf of the caller."""

from __future__ import annotations

import sys
import warnings


def warn_caller(warning: Warning) -> None:
    """Issue a warning, attributed to the nearest caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("anabranch."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)
