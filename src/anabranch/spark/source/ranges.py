"""Converts the ranges of a task to batches for Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.columns import ADDED as ADDED_COLUMNS
from anabranch.model.ids import StreamId
from anabranch.spark.source.reads import StreamReads
from anabranch.spark.source.scan import ScanRange, columns_to_read
from anabranch.spark.types import ADDED, conformed, spark_columns

__all__ = ["read_ranges"]


def read_ranges(
    reads: StreamReads,
    stream: StreamId,
    ranges: Iterable[ScanRange],
    names: Sequence[str],
    keys: Sequence[str] | None,
    *,
    lossy: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The events of the ranges, in their order, as batches of the named columns and those the store adds, in exactly
    the types that Spark expects. Raises StreamNotFound, CorruptStore, and Truncated. With `lossy` it skips events that
    were truncated since the ranges were planned, instead of raising Truncated."""
    view = reads.view(stream)
    schema = view.info.schema
    stored = columns_to_read(schema, names)
    columns = pa.schema([*spark_columns(stored), *ADDED])
    key = schema.key if keys is not None else None
    wanted = stored if key is None or key in names else stored.append(schema.columns.field(key))
    if not wanted.names:  # a batch without columns has no rows to count
        wanted = pa.schema([schema.columns.field(0)])
    for found in reads.rows(view, ranges, wanted, lossy=lossy):
        added = found.columns[-len(ADDED_COLUMNS) :]
        batch = conformed([*found.columns[: len(stored)], *added], columns)
        if key is not None:
            texts = found.column(key).cast(pa.string())
            batch = batch.filter(pc.is_in(texts, pa.array(keys, pa.string())))
        if batch.num_rows:
            yield batch
