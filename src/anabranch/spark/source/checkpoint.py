"""Reads the progress of a query from its checkpoint. These files are Spark's own and never written here.

Spark plans a batch in `offsets/<batch>` and runs it, the sink publishes it, and then Spark writes `commits/<batch>`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from anabranch.catalog.port import Catalog
from anabranch.core.json_text import parse_json
from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.source.offsets import SourceOffset, series_of
from anabranch.store.engine_api import last_published

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "PlannedBatch",
    "batch_in_progress",
    "batches",
    "committed",
    "is_settled",
    "last_committed",
    "last_planned",
    "planned_batch",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch as it was planned: its watermark, and where it ends in each stream."""

    watermark_us: int
    ends: tuple[SourceOffset, ...]

    @classmethod
    def parse(cls, text: str) -> PlannedBatch:
        """The content of `offsets/<batch>`. Raises ArithmeticError, LookupError, TypeError, ValueError, InvalidArgument."""
        _, settings, *lines = text.splitlines()
        offsets = (parse_json(line) for line in lines if line.startswith("{"))
        ends = tuple(SourceOffset.from_json(each) for each in offsets if "cut" in each)
        return cls(1000 * int(parse_json(settings)["batchWatermarkMs"]), ends)


def planned_batch(root: CheckpointFolder, batch: int) -> PlannedBatch:
    """A batch that was planned. Raises InvalidArgument."""
    return _read_parsed(root, f"offsets/{batch}", PlannedBatch.parse)


def batches(root: CheckpointFolder, folder: Literal["offsets", "commits"]) -> list[int]:
    """The numbers of the batches that are planned, or that Spark is done with, as far as it keeps them. Raises OSError."""
    return sorted(int(name) for name in root.names(folder) if name.isdigit())


def last_planned(root: CheckpointFolder) -> int:
    """The number of the last batch that Spark has planned, -1 before the first. Raises OSError."""
    return max(batches(root, "offsets"), default=-1)


def last_committed(root: CheckpointFolder) -> int:
    """The number of the last batch that Spark is done with, -1 before the first. Raises OSError."""
    return max(batches(root, "commits"), default=-1)


def batch_in_progress(root: CheckpointFolder) -> int | None:
    """The number of the batch that is planned but not finished, or None. Raises OSError."""
    planned = last_planned(root)
    return planned if planned > last_committed(root) else None


def committed(catalog: Catalog, root: CheckpointFolder) -> tuple[int, Mapping[StreamId, StreamCut]]:
    """The watermark (µs) of the last batch whose results are published, and the cut it reached in each source, by
    the stream's id. Zero and an empty mapping if there is none."""
    noted = set(batches(root, "commits"))
    for batch in reversed(batches(root, "offsets")):
        if batch in noted or _published(catalog, root, batch):
            found = planned_batch(root, batch)
            return found.watermark_us, {each.cut.stream: each.cut for each in found.ends}
    return 0, {}


def is_settled(root: CheckpointFolder, query: StreamingQuery) -> bool:
    """True if no batch is in progress, and none is due that closes windows without reading events."""
    planned = last_planned(root)
    if planned < 0 or planned != last_committed(root):
        return False
    report = query.lastProgress
    if report is None or not json.loads(report.json).get("stateOperators"):
        return report is not None
    next_watermark_us = _read_parsed(root, f"commits/{planned}", _next_watermark_us)
    return next_watermark_us == planned_batch(root, planned).watermark_us


def _published(catalog: Catalog, root: CheckpointFolder, batch: int) -> bool:
    """True for a batch that is published, even if it was interrupted before Spark wrote its commit file."""
    query = _read_parsed(root, "metadata", lambda text: str(parse_json(text)["id"]))
    last = last_published(catalog, series_of(query))
    return last is not None and batch <= last


def _next_watermark_us(text: str) -> int:
    _, settings, *_ = text.splitlines()
    return int(parse_json(settings)["nextBatchWatermarkMs"]) * 1000


def _read_parsed(root: CheckpointFolder, name: str, parse: Callable[[str], T]) -> T:
    """A file of the checkpoint, parsed. Raises InvalidArgument if it is missing or damaged."""
    try:
        found = root.read(name)
        if found is None:
            raise InvalidArgument(f"the checkpoint has no file {root.for_spark}/{name}")
        return parse(found)
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as exc:
        if isinstance(exc, InvalidArgument):
            raise
        raise InvalidArgument(f"{root.for_spark}/{name} is not a file of a Spark checkpoint: {exc!r}") from exc
