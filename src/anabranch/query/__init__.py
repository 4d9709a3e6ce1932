"""SQL over streams as they are now, by DuckDB in this process. An optional extra; nothing is written from here."""

from __future__ import annotations

from anabranch.query.engine import Query, Result

__all__ = ["Query", "Result"]
