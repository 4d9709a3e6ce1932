"""What the source asks of a store: views of streams, cuts, append times, and the events of ranges. A store that this
process has open answers from its catalog and blobs, and one that a broker serves by calls to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core import cuts
from anabranch.core.constant_columns import constant
from anabranch.core.shed_rule import draws
from anabranch.errors import InvalidArgument
from anabranch.model.columns import ADDED as ADDED_COLUMNS
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.spark.source.broker_reads import BrokerReads
from anabranch.spark.source.scan import ScanRange, columns_to_read, read_rows
from anabranch.spark.stores import is_remote_store
from anabranch.spark.types import ADDED, SHED_DRAW, SHED_RATE, conformed, spark_columns
from anabranch.store import Store
from anabranch.store.engine_api import (
    Selection,
    Tail,
    TimeKind,
    append_time,
    appended_of,
    cut_at,
    offsets_of,
    to_cut,
)

__all__ = ["OwnReads", "RangeReads", "StreamReads", "read_ranges", "reads_of", "with_shed_columns"]


WATERMARK: Final = "watermark"


class RangeReads(Protocol):
    """Reads the events of ranges."""

    def view(self, stream: StreamName | StreamId) -> StreamView:
        """The stream as it is now. Raises StreamNotFound."""
        ...

    def rows(
        self, view: StreamView, ranges: Iterable[ScanRange], columns: pa.Schema, *, lossy: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The events of the ranges, in their order: these stored columns, of which there is at least one, then
        `model.columns.ADDED`. Raises StreamNotFound, CorruptStore, and Truncated; with `lossy` it skips events that are
        truncated, instead of raising Truncated."""
        ...


class OwnReads:
    """Reads of a store that this process has open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._logs = store.internals.logs

    def freshen(self, stream: StreamName) -> None:
        """If it is the stream of notifications, write the notifications that are due to it."""
        self._store.notifications.freshen(stream)

    def view(self, stream: StreamName | StreamId) -> StreamView:
        """See `RangeReads.view`."""
        return self._store.streams.view(stream)

    def place(self, view: StreamView, place: str, by: TimeKind) -> StreamCut:
        """The cut at a place in text form. Raises as `reading.bounds.to_cut`."""
        return to_cut(self._logs, view, place, by=by)

    def append_time(self, view: StreamView, segment: SegmentId, offset: int) -> Micros:
        """The append time of one event."""
        return append_time(self._logs, view, segment, offset)

    def cut_at(self, view: StreamView, time: Micros) -> StreamCut:
        """The cut before the first event appended at or after `time`."""
        return cut_at(self._logs, view, time)

    def rows(
        self, view: StreamView, ranges: Iterable[ScanRange], columns: pa.Schema, *, lossy: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """See `RangeReads.rows`."""
        whole = pa.schema([*columns, *ADDED_COLUMNS])
        for segment, rows in read_rows(self._store, view, ranges, Selection(columns), lossy=lossy):
            added = [constant(segment.packed, rows.batch.num_rows), offsets_of(rows), appended_of(rows)]
            yield pa.RecordBatch.from_arrays([*rows.batch.columns[: len(columns)], *added], schema=whole)

    def tail(self) -> Tail:
        """Waits for new events in any stream."""
        return Tail(self._store.catalog, self._store.runtime)


StreamReads: TypeAlias = OwnReads | BrokerReads
"""Reads the streams of one store."""


def reads_of(store: Store) -> StreamReads:
    """How streams of this store are read."""
    return BrokerReads(store) if is_remote_store(store) else OwnReads(store)


def complete_cut(opened: Store, stream: StreamName) -> StreamCut:
    """The cut of the stream's watermark, after which no event older than the watermark follows.

    Call it before loading the view that the cut is used with, so that the view contains the cut's segments. Raises
    InvalidArgument for a stream without a watermark, StreamNotFound.
    """
    mark = opened.watermarks.get(stream)
    if mark is None:
        raise InvalidArgument(
            f"'{stream}' has no watermark to end at: none of its writers has noted a time (writer.note_time, or note_time_s= "
            "of store.writer)"
        )
    return mark.cut


def raised_to_head(view: StreamView, cut: StreamCut) -> StreamCut:
    """The cut, raised to the head where events were truncated."""
    return cuts.clamp_to_head(view, cut) if cuts.below_head(view, cut.as_dict()) else cut


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
    """The batches with `SHED_RATE`. With `draw` all rows stay, and get `SHED_DRAW` too, by which the query chooses
    among them; without it only the rows that are kept stay."""
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
