"""Routing of a writer's events: the open segments of a stream, and the splitting of batches by segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.raw_event import RawEvent
from anabranch.core.routing import KeyPoints, key_points, point_of, spread_point, spread_points
from anabranch.errors import CorruptCatalog, StreamSealed
from anabranch.model.append import TimeBounds
from anabranch.model.ids import LogId, Micros, SegmentId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView

Rows = npt.NDArray[np.intp]


class RoutedRows(NamedTuple):
    """The events of a batch that go to one segment. `rows` are their numbers in the batch, rising; `size` their logical
    bytes, `bounds` their event times, both None where they are the whole batch."""

    segment: SegmentId
    log: LogId
    batch: pa.RecordBatch | RawEvent
    rows: Rows
    bounds: TimeBounds | None
    size: int | None


class Routes:
    """The open segments in one view of a stream."""

    def __init__(self, view: StreamView) -> None:
        self.info = view.info
        self.segments = view.current
        if view.info.sealed:
            raise StreamSealed(str(view.info.name))
        self.logs: list[LogId] = []
        self.offsets: dict[LogId, int] = {}  # segment offset = log position + this
        for segment in self.segments:
            span = view.spans[segment.id][-1]
            if span.stop is not None:
                raise CorruptCatalog(f"segment {span.segment} is open, but does not follow its log", "spans")
            self.logs.append(span.log)
            self.offsets[span.log] = span.offset - span.start

    def split(self, batch: pa.RecordBatch | RawEvent, points: KeyPoints | None) -> Iterator[RoutedRows]:
        """The batch by segment, each part in the original order; `points` is None where there is only one segment."""
        schema = self.info.schema
        count = batch.num_rows
        if len(self.segments) == 1 or points is None:
            yield RoutedRows(self.segments[0].id, self.logs[0], batch, np.arange(count), None, None)
            return
        where = points.locate([segment.range for segment in self.segments])
        if count == 1 or (where == where[0]).all():
            first = int(where[0])
            yield RoutedRows(self.segments[first].id, self.logs[first], batch, np.arange(count), None, None)
            return
        assert not isinstance(batch, RawEvent), "it goes to one segment"
        order = np.argsort(where, kind="stable")
        counts = np.bincount(where, minlength=len(self.segments))
        stops = np.cumsum(counts)
        sorted_batch = batch.take(pa.array(order))
        bounds = _bounds(sorted_batch, schema, stops - counts, counts)
        sizes = run_sizes(sorted_batch, stops - counts, stops)
        for i in np.flatnonzero(counts):
            start, stop = int(stops[i] - counts[i]), int(stops[i])
            part = sorted_batch.slice(start, stop - start)
            size = part.nbytes if sizes is None else int(sizes[i])
            yield RoutedRows(
                self.segments[i].id, self.logs[i], part, order[start:stop], bounds[i] if bounds else None, size
            )

    def needs_points(self) -> bool:
        """False where every event goes to the one segment anyway."""
        return len(self.segments) > 1


def points_of(batch: pa.RecordBatch | RawEvent, schema: StreamSchema, spread_from: int) -> KeyPoints:
    """The key points of a batch; events without a key are spread, counted from `spread_from`."""
    if isinstance(batch, RawEvent):
        point = spread_point(spread_from) if batch.key is None else point_of(batch.key)
        return KeyPoints(np.array([point], np.uint64), np.zeros(1, np.intp))
    if schema.key is None:
        return KeyPoints(spread_points(batch.num_rows, spread_from), np.arange(batch.num_rows))
    return key_points(batch.column(schema.key), spread_from=spread_from)


def _bounds(
    batch: pa.RecordBatch, schema: StreamSchema, starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]
) -> list[TimeBounds] | None:
    """The event time bounds of adjacent runs in one pass; None where times are missing or there are none."""
    if schema.time is None or batch.column(schema.time).null_count:
        return None
    times = pc.cast(batch.column(schema.time), pa.int64()).to_numpy()
    filled = np.flatnonzero(counts)
    lows, highs = np.minimum.reduceat(times, starts[filled]), np.maximum.reduceat(times, starts[filled])
    bounds = [TimeBounds(None, None)] * len(counts)
    for i, low, high in zip(filled, lows.tolist(), highs.tolist(), strict=True):
        bounds[i] = TimeBounds(Micros(low), Micros(high))
    return bounds


def run_sizes(batch: pa.RecordBatch, starts: Rows, stops: Rows) -> npt.NDArray[np.int64] | None:
    """`nbytes` of each run of rows, up to rounding, computed all at once: one call per run would take a tenth of a
    commit's time per log. None if a column's type is not simple."""
    counts = stops - starts
    found = np.zeros(len(counts), dtype=np.int64)
    for column in batch.columns:
        validity, values = column.buffers()[:2]
        kind = column.type
        if validity is not None:
            found += -(-counts // 8)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            ends = np.frombuffer(values, np.int32)[column.offset :]
            found += ends[stops] - ends[starts] + 4 * counts
        elif pa.types.is_primitive(kind):
            found += -(-counts * kind.bit_width // 8)
        else:
            return None
    return found
