"""SQL queries over streams, run by DuckDB in this process. Needs the extra `query`. Reads only; nothing is written."""

from __future__ import annotations

from anabranch.query.engine import Query, QueryResult
from anabranch.query.sandbox import QueryLimits

__all__ = ["Query", "QueryLimits", "QueryResult"]
