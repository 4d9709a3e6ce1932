"""What the checkpoint of a query tells: Spark's own files, read and never written.

A batch is planned in `offsets/<batch>`, run, published by the sink, and then noted in `commits/<batch>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.catalog.port import Catalog
from anabranch.model.cut import StreamCut
from anabranch.spark.checkpoint_place import CheckpointPlace
from anabranch.spark.offsets import SourceOffset, series_of
from anabranch.streams.publish import last_published

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["committed", "is_settled"]


def committed(catalog: Catalog, root: CheckpointPlace) -> tuple[int, Mapping[str, StreamCut]]:
    """The watermark (µs) and the place in each source of the last batch whose results are published; zero and nothing
    where there is none."""
    noted = set(_batches(root, "commits"))
    for batch in reversed(_batches(root, "offsets")):
        if batch in noted or _published(catalog, root, batch):
            watermark_us, offsets = _planned(root, batch)
            return watermark_us, {str(each.stream): each.cut for each in offsets}
    return 0, {}


def is_settled(root: CheckpointPlace, query: StreamingQuery) -> bool:
    """True if no batch is under way, nor one due that closes windows without reading anything."""
    planned, noted = _batches(root, "offsets"), _batches(root, "commits")
    if not noted or planned[-1] != noted[-1]:
        return False
    report = query.lastProgress
    if report is None or not json.loads(report.json).get("stateOperators"):
        return report is not None
    return _next_watermark(root, noted[-1]) == _planned(root, planned[-1])[0]


def _batches(root: CheckpointPlace, folder: str) -> list[int]:
    return sorted(int(name) for name in root.names(folder) if name.isdigit())


def _published(catalog: Catalog, root: CheckpointPlace, batch: int) -> bool:
    """True for a batch that was interrupted between its publication and Spark's note of it."""
    last = last_published(catalog, series_of(json.loads(_text(root, "metadata"))["id"]))
    return last is not None and batch <= last


def _planned(root: CheckpointPlace, batch: int) -> tuple[int, list[SourceOffset]]:
    _, told, *lines = _text(root, f"offsets/{batch}").splitlines()
    settings: Mapping[str, Any] = json.loads(told)
    offsets = [SourceOffset.from_json(json.loads(line)) for line in lines if line.startswith("{")]
    return int(settings["batchWatermarkMs"]) * 1000, offsets


def _next_watermark(root: CheckpointPlace, batch: int) -> int:
    _, told, *_ = _text(root, f"commits/{batch}").splitlines()
    return int(json.loads(told)["nextBatchWatermarkMs"]) * 1000


def _text(root: CheckpointPlace, name: str) -> str:
    found = root.read(name)
    if found is None:
        raise FileNotFoundError(f"{root.for_spark}/{name}")
    return found
