"""Ranges of segments: distributes them to tasks, and reads their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.core.routing import point_of
from anabranch.errors import InvalidArgument, SchemaMismatch, Truncated
from anabranch.model.ids import SegmentId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
from anabranch.store import Store
from anabranch.store.engine_api import SegmentReader, SegmentRows, Selection

__all__ = ["ScanRange", "columns_to_read", "only_keys", "read_rows", "split_into_tasks"]

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
    split: list[tuple[ScanRange, ...]] = []
    task_ranges: list[ScanRange] = []
    task_events = 0
    for segment, start, stop in ranges:
        while start < stop:
            take = min(stop - start, share - task_events)
            task_ranges.append(ScanRange(segment, start, start + take))
            task_events, start = task_events + take, start + take
            if task_events == share:
                split.append(tuple(task_ranges))
                task_ranges, task_events = [], 0
    if task_ranges:
        split.append(tuple(task_ranges))
    return split


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


def read_rows(
    opened: Store, view: StreamView, ranges: Iterable[ScanRange], selection: Selection, *, lossy: bool = False
) -> Iterator[tuple[SegmentId, SegmentRows]]:
    """The rows of the ranges of a store that this process has open. Raises StreamNotFound, CorruptStore, and Truncated;
    with `lossy` it skips events that are truncated, instead of raising Truncated."""
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
