"""Ranges of segments: small values, each of which can be read by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.catalog.port import Catalog, Reading
from anabranch.core import cuts
from anabranch.core.shared import constant
from anabranch.core.stretch import plan_stretch
from anabranch.log.plan import Plan
from anabranch.log.read import LogReader, Selection, appended_of, offsets_of
from anabranch.log.slices import slices
from anabranch.log.view import load
from anabranch.model.columns import ADDED, chosen
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The events `start <= offset < stop` of a segment; `size` is about how many logical bytes they have."""

    stream: StreamId
    segment: SegmentId
    start: int
    stop: int
    size: int

    @property
    def events(self) -> int:
        """How many there are."""
        return self.stop - self.start


def ranges_between(
    reading: Reading, view: StreamView, start: StreamCut, end: StreamCut, *, bytes_max: int, count_max: int
) -> list[StreamPart]:
    """All events between the cuts, once each, in ranges of about `bytes_max`, larger where they would be more than about
    `count_max`. In reading order: that of each key is the order of the ranges, then of the offsets. Raises InvalidCut,
    Truncated."""
    found = slices(reading, plan_stretch(view, start, end), bytes_max=bytes_max, count_max=count_max)
    return [StreamPart(view.info.id, each.segment, each.start, each.stop, each.bytes) for each in found]


def columns_version(catalog: Catalog, part: StreamPart) -> int:
    """Of the columns that its stream has by now. Raises StreamNotFound, Truncated where events of the range are gone."""
    with catalog.reading() as reading:
        return _readable(reading, part, part.start).info.schema_version


def read_range(
    catalog: Catalog, logs: LogReader, part: StreamPart, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """The events of a range in offset order, as batches of the columns (None: all the stream has now), then `_segment`
    (int64, `SegmentId.packed`), `_offset` (int64) and `_appended` (timestamp[us, UTC]).

    Raises StreamNotFound, SchemaMismatch for an unknown column, Truncated where events of it are gone, CorruptBlob,
    BlobMissing.
    """
    with catalog.reading() as reading:
        schema = load(reading, part.stream).info.schema
    names = chosen(columns, schema.columns)
    # A batch without columns has no rows to count, so one is read, and left out again in the end.
    read = names or [schema.time or schema.key or schema.columns.names[0]]
    selection = Selection(pa.schema([schema.columns.field(name) for name in read]))
    told = pa.schema([*(schema.columns.field(name) for name in names), *ADDED])

    def page(offset: int) -> Plan:
        with catalog.reading() as reading:
            view = _readable(reading, part, offset)  # what flattened a segment meanwhile has changed its spans
            return logs.plan(reading, view, part.segment, offset, part.stop)

    for rows in logs.read(page, part.start, part.stop, selection):
        added = [constant(part.segment.packed, rows.batch.num_rows), offsets_of(rows), appended_of(rows)]
        yield pa.RecordBatch.from_arrays([*rows.batch.columns[: len(names)], *added], schema=told)


def _readable(reading: Reading, part: StreamPart, offset: int) -> StreamView:
    view = load(reading, part.stream)
    if part.segment not in view.segments or cuts.below_head(view, {part.segment: offset}):
        raise cuts.truncated(view)
    return view
