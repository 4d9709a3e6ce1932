"""Segment ranges: small values, each of which can be read independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.catalog.port import Reading
from anabranch.core.constant_columns import constant
from anabranch.core.stream_slice import plan_slice
from anabranch.log.read import LogReader, Selection, appended_of, offsets_of
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.slices import split_slice
from anabranch.log.view import load
from anabranch.model.columns import ADDED, select_columns
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView


@dataclass(frozen=True, slots=True)
class SegmentPartRange:
    """The events `start <= offset < stop` of a segment; `size` is their approximate number of logical bytes."""

    stream: StreamId
    segment: SegmentId
    start: int
    stop: int
    size: int

    @property
    def events(self) -> int:
        """The number of events."""
        return self.stop - self.start


def ranges_between(
    reading: Reading, view: StreamView, start: StreamCut, end: StreamCut, *, bytes_max: int, count_max: int
) -> list[SegmentPartRange]:
    """All events between the cuts, once each, in ranges of about `bytes_max`, or larger if there would be more than
    about `count_max` ranges. In reading order: the events of each key follow the order of the ranges, then of the
    offsets. Raises InvalidCut, Truncated."""
    found = split_slice(reading, plan_slice(view, start, end), bytes_max=bytes_max, count_max=count_max)
    return [SegmentPartRange(view.info.id, each.segment, each.start, each.stop, each.bytes) for each in found]


def range_schema(known: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The schema of the batches of `read_range`, for a stream with these columns. Raises SchemaMismatch."""
    return pa.schema([*(known.field(name) for name in select_columns(columns, known)), *ADDED])


def read_range(logs: LogReader, part: SegmentPartRange, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """The events of a range in offset order, as batches of the columns (None: all that the stream has now), then
    `_segment` (int64, `SegmentId.packed`), `_offset` (int64) and `_appended` (timestamp[us, UTC]).

    Raises StreamNotFound, SchemaMismatch for an unknown column, Truncated if events of the range are gone,
    CorruptBlob, BlobMissing.
    """
    with logs.catalog.reading() as reading:
        view = load(reading, part.stream)
    schema = view.info.schema
    names = select_columns(columns, schema.columns)
    # A batch without columns has no row count, so one column is read, and dropped in the end.
    read = names or [schema.time or schema.key or schema.columns.names[0]]
    selection = Selection(pa.schema([schema.columns.field(name) for name in read]))
    schema_of_ranges = range_schema(schema.columns, names)

    for rows in SegmentReader(logs, view, part.segment).rows(part.start, part.stop, selection):
        added = [constant(part.segment.packed, rows.batch.num_rows), offsets_of(rows), appended_of(rows)]
        yield pa.RecordBatch.from_arrays([*rows.batch.columns[: len(names)], *added], schema=schema_of_ranges)
