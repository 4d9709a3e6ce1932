"""Reads Spark's reports on the micro-batches of a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["reports_after"]


def reports_after(query: StreamingQuery, batch: int) -> list[Mapping[str, Any]]:
    """The reports on the micro-batches with higher numbers than `batch`, oldest first, as far as Spark keeps them (100 by
    default). An idle query repeats its last report."""
    # PySpark's `recentProgress` has Java write all of them as JSON, which took as much time as some micro-batches.
    kept: Any = query._jsq.recentProgress()
    found: list[Mapping[str, Any]] = []
    for number in reversed(range(len(kept))):
        report = json.loads(kept[number].json())
        if report["batchId"] <= batch:
            break
        found.append(report)
    return found[::-1]
