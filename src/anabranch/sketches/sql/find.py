"""Finds the functions that a text of SQL may call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from anabranch.sketches.sql.function import SketchFunction

__all__ = ["called_functions"]

_CALLED = re.compile(r'\b(\w+)"?\s*\(')
# The first words of a function's name, and the module here that has it: loaded only when it is needed, because some need an
# optional package.
_MODULES: Final = {"hll_": "hll", "theta_": "theta", "kll_": "kll"}


def called_functions(sql: str) -> Iterator[SketchFunction]:
    """The functions of sketches whose names occur in the text as those of calls. Raises MissingExtra."""
    called = {name.lower() for name in _CALLED.findall(sql)}
    for prefix, module in _MODULES.items():
        if any(name.startswith(prefix) for name in called):
            for function in import_module(f"anabranch.sketches.sql.{module}").FUNCTIONS:
                if function.name in called:
                    yield function
