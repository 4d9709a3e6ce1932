"""Reads Spark's reports on the micro-batches of a query, and counts the events that it has shed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.model.cut import StreamCut
from anabranch.spark.pipelines.shed_frame import KEPT_ROWS
from anabranch.spark.source.offsets import SourceOffset
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ShedRows", "reports_after"]


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


class ShedRows:
    """Of one run of a query. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted_to = -1  # the last batch that is counted
        self.total = 0

    def measure(self, query: StreamingQuery, last: Mapping[str, Any]) -> int:
        """The events shed up to the batch of Spark's `last` report. Raises Truncated, StreamNotFound."""
        if last.get("batchId", -1) > self._counted_to:
            for batch, report in {each["batchId"]: each for each in reports_after(query, self._counted_to)}.items():
                self.total += self._shed(report)
                self._counted_to = batch
        return self.total

    def _shed(self, report: Mapping[str, Any]) -> int:
        kept = report.get("observedMetrics", {}).get(KEPT_ROWS)
        if kept is None:  # a report that is repeated while the query is idle
            return 0
        read = 0
        for source in report["sources"]:
            end, start = _offset(source["endOffset"]), _offset(source["startOffset"])
            if end is None or end.keep_rate == 1:
                return 0
            begin: StreamCut = end.origin if start is None else end.start_of_batch(start)
            read += self._store.cuts.distance(end.cut.stream, begin, end.cut).events
        return max(0, read - int(kept["rows"]))


def _offset(value: Any) -> SourceOffset | None:
    found = json.loads(value) if isinstance(value, str) else value
    return SourceOffset.from_json(found) if isinstance(found, dict) and "cut" in found else None
