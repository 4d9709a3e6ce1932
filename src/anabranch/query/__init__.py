"""SQL queries over streams, run by DuckDB in this process. Needs the extra `query`. Reads only; nothing is written.

Names are loaded on first use: a broker, whose queries run in processes of their own, doesn't wait for the engine to load.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.query.engine import Query, QueryResult
    from anabranch.query.sandbox import QueryLimits

_MODULES = {"Query": "engine", "QueryLimits": "sandbox", "QueryResult": "engine"}

__all__ = ["Query", "QueryLimits", "QueryResult"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"anabranch.query.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'anabranch.query' has no attribute '{name}'")
