"""SQL queries over streams, run by DuckDB in this process. Needs the extra `query`. Reads only; nothing is written."""

from __future__ import annotations

from anabranch.query.engine import Query, QueryResult

__all__ = ["Query", "QueryResult"]
