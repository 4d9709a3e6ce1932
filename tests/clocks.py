"""Runtimes whose time passes as a test says, in the catalog too."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.clock import Clock
from anabranch.runtime.ports import Runtime


def runtime_by(clock: Clock, **more: Any) -> Runtime:
    """A runtime whose clock also stands in for the catalog's clock. `more` are other parts of the runtime."""
    return Runtime(clock=clock, catalog_clock=clock, **more)
