"""Converts the ranges of a task to batches for Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.shed_rule import draws
from anabranch.model.columns import ADDED as ADDED_COLUMNS
from anabranch.model.ids import StreamId
from anabranch.spark.source.reads import RangeReads
from anabranch.spark.source.scan import ScanRange, columns_to_read
from anabranch.spark.types import ADDED, SHED_DRAW, SHED_RATE, conformed, spark_columns

__all__ = ["read_ranges", "with_shed_columns"]


def read_ranges(
    reads: RangeReads,
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


def with_shed_columns(batches: Iterator[pa.RecordBatch], keep_rate: float, *, draw: bool) -> Iterator[pa.RecordBatch]:
    """The batches with `SHED_RATE`. With `draw` all of their rows with `SHED_DRAW` too, from which the query chooses; else
    only the rows that are kept."""
    for batch in batches:
        numbers = _draws(batch) if draw or keep_rate < 1 else None
        if numbers is not None and not draw:
            batch = batch.filter(pa.array(numbers < keep_rate))
        rates = pa.array(np.full(batch.num_rows, keep_rate))
        columns = [*batch.columns, rates, *([pa.array(numbers)] if draw else [])]
        schema = pa.schema([*batch.schema, SHED_RATE, *([SHED_DRAW] if draw else [])])
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _draws(batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
    """The numbers of rows that lie in runs of one segment."""
    segments = batch.column(ADDED[0].name).to_numpy()
    offsets = batch.column(ADDED[1].name).to_numpy()
    starts = np.flatnonzero(np.r_[True, segments[1:] != segments[:-1]])
    parts = zip(starts, [*starts[1:], len(segments)], strict=True)
    return np.concatenate([draws(int(segments[first]), offsets[first:stop]) for first, stop in parts])
