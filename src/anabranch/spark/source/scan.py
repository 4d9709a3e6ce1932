"""Reads ranges of segments: distributes ranges to tasks, and converts a task's ranges to batches for Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.constant_columns import constant
from anabranch.core.routing import point_of
from anabranch.errors import InvalidArgument, SchemaMismatch, Truncated
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
from anabranch.spark.types import ADDED, conformed, spark_columns
from anabranch.store import Store
from anabranch.store.engine_api import SegmentReader, SegmentRows, Selection, appended_of, load, offsets_of

__all__ = ["ScanRange", "columns_to_read", "only_keys", "read_ranges", "read_rows", "split_into_tasks"]

_TASK_EVENTS_MIN: Final = 128 * 1024  # fewer are not worth a separate task, which costs about 10 ms
_TASK_EVENTS_MAX: Final = 4 * 1024 * 1024


class ScanRange(NamedTuple):
    """The offsets `start <= offset < stop` of a segment."""

    segment: SegmentId
    start: int
    stop: int

    @property
    def events(self) -> int:
        """The number of events."""
        return self.stop - self.start


def split_into_tasks(ranges: Sequence[ScanRange], *, tasks: int) -> list[tuple[ScanRange, ...]]:
    """The ranges for each task, in order: about equal shares for `tasks` tasks, within a minimum and a maximum size.
    Long ranges are split and short ones combined in order, so the events of a key stay in order from task to task."""
    share = -(-sum(each.events for each in ranges) // max(tasks, 1))
    share = min(max(share, _TASK_EVENTS_MIN), _TASK_EVENTS_MAX)
    dealt: list[tuple[ScanRange, ...]] = []
    hand: list[ScanRange] = []
    held = 0
    for segment, start, stop in ranges:
        while start < stop:
            take = min(stop - start, share - held)
            hand.append(ScanRange(segment, start, start + take))
            held, start = held + take, start + take
            if held == share:
                dealt.append(tuple(hand))
                hand, held = [], 0
    if hand:
        dealt.append(tuple(hand))
    return dealt


def only_keys(view: StreamView, ranges: Iterable[ScanRange], keys: Sequence[str] | None) -> list[ScanRange]:
    """The ranges that can hold events of these keys. Raises InvalidArgument for a stream without a routing key."""
    if keys is None:
        return list(ranges)
    if view.info.schema.key is None:
        raise InvalidArgument(f"'{view.info.name}' has no routing key, so option 'keys' can't be used")
    points = [point_of(key) for key in keys]
    return [each for each in ranges if any(point in view.segments[each.segment].range for point in points)]


def columns_to_read(schema: StreamSchema, names: Sequence[str] | None) -> pa.Schema:
    """The stored columns to read, in the order of `names`; all if it is None. Raises SchemaMismatch."""
    if names is None:
        return schema.columns
    known = schema.columns.names
    for name in names:
        if name not in known:
            raise SchemaMismatch(f"unknown column '{name}'; the stream has {', '.join(known)}", column=name)
    return pa.schema([schema.columns.field(name) for name in names])


def read_ranges(
    opened: Store,
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
    with opened.catalog.reading() as reading:
        view = load(reading, stream)
    stored = columns_to_read(view.info.schema, names)
    columns = pa.schema([*spark_columns(stored), *ADDED])
    key = view.info.schema.key if keys is not None else None
    wanted = stored if key is None or key in names else stored.append(view.info.schema.columns.field(key))
    if not wanted.names:  # a batch without columns has no rows to count
        wanted = pa.schema([view.info.schema.columns.field(0)])
    for segment, rows in read_rows(opened, view, ranges, Selection(wanted), lossy=lossy):
        added = [constant(segment.packed, rows.batch.num_rows), offsets_of(rows), appended_of(rows)]
        batch = conformed([*rows.batch.columns[: len(stored)], *added], columns)
        if key is not None:
            texts = rows.batch.column(key).cast(pa.string())
            batch = batch.filter(pc.is_in(texts, pa.array(keys, pa.string())))
        if batch.num_rows:
            yield batch


def read_rows(
    opened: Store, view: StreamView, ranges: Iterable[ScanRange], selection: Selection, *, lossy: bool = False
) -> Iterator[tuple[SegmentId, SegmentRows]]:
    """The rows of the ranges, in the store's types. Raises as `read_ranges`."""
    for segment, first, stop in ranges:
        source, start = SegmentReader(opened.internals.logs, view, segment), first
        while start < stop:
            try:
                for rows in source.rows(start, stop, selection):
                    start = rows.stop
                    if rows.batch.num_rows:
                        yield segment, rows
                break
            except Truncated:
                if not lossy:
                    raise
                start = source.first_readable(start, stop)
        view = source.view
