"""Reads the progress of a query from its checkpoint. These files are Spark's own and never written here.

Spark plans a batch in `offsets/<batch>` and runs it, the sink publishes it, and then Spark writes `commits/<batch>`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

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

__all__ = ["batch_in_progress", "committed", "is_settled", "last_committed", "last_planned"]

T = TypeVar("T")


def committed(catalog: Catalog, root: CheckpointFolder) -> tuple[int, Mapping[StreamId, StreamCut]]:
    """The watermark (µs) of the last batch whose results are published, and the cut it reached in each source, by
    the stream's id. Zero and an empty mapping if there is none."""
    noted = set(_batches(root, "commits"))
    for batch in reversed(_batches(root, "offsets")):
        if batch in noted or _published(catalog, root, batch):
            watermark_us, offsets = _planned(root, batch)
            return watermark_us, {each.cut.stream: each.cut for each in offsets}
    return 0, {}


def batch_in_progress(root: CheckpointFolder) -> int | None:
    """The number of the batch that is planned but not finished, or None. Raises OSError."""
    planned, noted = _batches(root, "offsets"), _batches(root, "commits")
    return planned[-1] if planned and (not noted or planned[-1] > noted[-1]) else None


def last_planned(root: CheckpointFolder) -> int | None:
    """The number of the last batch that Spark has planned, None before the first. Raises OSError."""
    return max(_batches(root, "offsets"), default=None)


def last_committed(root: CheckpointFolder) -> int:
    """The number of the last batch that Spark is done with, -1 before the first. Raises OSError."""
    return max(_batches(root, "commits"), default=-1)


def is_settled(root: CheckpointFolder, query: StreamingQuery) -> bool:
    """True if no batch is in progress, and none is due that closes windows without reading events."""
    planned, noted = _batches(root, "offsets"), _batches(root, "commits")
    if not noted or planned[-1] != noted[-1]:
        return False
    report = query.lastProgress
    if report is None or not json.loads(report.json).get("stateOperators"):
        return report is not None
    return _next_watermark(root, noted[-1]) == _planned(root, planned[-1])[0]


def _batches(root: CheckpointFolder, folder: str) -> list[int]:
    return sorted(int(name) for name in root.names(folder) if name.isdigit())


def _published(catalog: Catalog, root: CheckpointFolder, batch: int) -> bool:
    """True for a batch that is published, even if it was interrupted before Spark wrote its commit file."""
    query = _read_parsed(root, "metadata", lambda text: str(parse_json(text)["id"]))
    last = last_published(catalog, series_of(query))
    return last is not None and batch <= last


def _planned(root: CheckpointFolder, batch: int) -> tuple[int, list[SourceOffset]]:
    return _read_parsed(root, f"offsets/{batch}", _offsets)


def _offsets(text: str) -> tuple[int, list[SourceOffset]]:
    _, metadata_line, *lines = text.splitlines()
    offsets = [SourceOffset.from_json(parse_json(line)) for line in lines if line.startswith("{")]
    return int(parse_json(metadata_line)["batchWatermarkMs"]) * 1000, offsets


def _next_watermark(root: CheckpointFolder, batch: int) -> int:
    def parse_commit(text: str) -> int:
        _, metadata_line, *_ = text.splitlines()
        return int(parse_json(metadata_line)["nextBatchWatermarkMs"]) * 1000

    return _read_parsed(root, f"commits/{batch}", parse_commit)


def _read_parsed(root: CheckpointFolder, name: str, parse: Callable[[str], T]) -> T:
    """A file of the checkpoint, parsed. Raises FileNotFoundError; InvalidArgument if it is damaged."""
    try:
        found = root.read(name)
        if found is None:
            raise FileNotFoundError(f"{root.for_spark}/{name}")
        return parse(found)
    except (ArithmeticError, LookupError, TypeError, ValueError) as exc:
        raise InvalidArgument(f"{root.for_spark}/{name} is not a file of a Spark checkpoint: {exc!r}") from exc
