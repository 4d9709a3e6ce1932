"""What the queries of a broker's callers may use."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.query.sandbox import QueryLimits

BROKER_QUERY_LIMITS: Final = QueryLimits(
    memory_bytes=limits.QUERY_MEMORY_BYTES, spill_bytes=limits.QUERY_SPILL_BYTES, seconds=limits.QUERY_S_MAX
)
