"""Finds the functions of sketches by their names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Final

from anabranch.sketches.sql.function import SketchFunction

__all__ = ["called_functions"]

# The first words of a function's name, and the module here that has it: loaded only when it is needed, because some need an
# optional package.
_MODULES: Final = {
    "hll_": "hll",
    "theta_": "theta",
    "kll_": "kll",
    "count_min_": "count_min",
    "bloom_": "bloom",
    "approx_top_k_": "top_k",
}


def called_functions(called: Collection[str]) -> Iterator[SketchFunction]:
    """The functions of sketches that have these names, in lower case. Raises MissingExtra."""
    for prefix, module in _MODULES.items():
        if any(name.startswith(prefix) for name in called):
            for function in import_module(f"anabranch.sketches.sql.{module}").FUNCTIONS:
                if function.name in called:
                    yield function
