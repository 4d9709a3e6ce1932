"""Reading ranges of segments: how they are dealt out to tasks, and how a task's ranges become batches for Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core import cuts
from anabranch.core.routing import point_of
from anabranch.core.shared import constant
from anabranch.errors import InvalidArgument, SchemaMismatch, Truncated
from anabranch.log.plan import Plan
from anabranch.log.read import Rows, Selection, appended_of, offsets_of
from anabranch.log.view import load, refresh
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
from anabranch.spark.stores import Opened
from anabranch.spark.types import ADDED, conformed, spark_columns

__all__ = ["Range", "chosen", "deal", "only_keys", "read_ranges", "read_rows"]

_TASK_EVENTS_MIN: Final = 128 * 1024  # fewer are not worth a task of their own, which costs about 10 ms
_TASK_EVENTS_MAX: Final = 4 * 1024 * 1024


class Range(NamedTuple):
    """The offsets `start <= offset < stop` of a segment."""

    segment: SegmentId
    start: int
    stop: int

    @property
    def events(self) -> int:
        """How many there are."""
        return self.stop - self.start


def deal(ranges: Sequence[Range], *, tasks: int) -> list[tuple[Range, ...]]:
    """Ranges for each task, in order: about equal shares for `tasks` of them, but no share too small or too large.
    Long ranges are split, short ones put together, so the events of a key stay in order from task to task."""
    share = -(-sum(each.events for each in ranges) // max(tasks, 1))
    share = min(max(share, _TASK_EVENTS_MIN), _TASK_EVENTS_MAX)
    dealt: list[tuple[Range, ...]] = []
    hand: list[Range] = []
    held = 0
    for segment, start, stop in ranges:
        while start < stop:
            take = min(stop - start, share - held)
            hand.append(Range(segment, start, start + take))
            held, start = held + take, start + take
            if held == share:
                dealt.append(tuple(hand))
                hand, held = [], 0
    if hand:
        dealt.append(tuple(hand))
    return dealt


def only_keys(view: StreamView, ranges: Iterable[Range], keys: Sequence[str] | None) -> list[Range]:
    """The ranges that can hold events of these keys. Raises InvalidArgument for a stream without a routing key."""
    if keys is None:
        return list(ranges)
    if view.info.schema.key is None:
        raise InvalidArgument(f"'{view.info.name}' has no routing key, so option 'keys' means nothing")
    points = [point_of(key) for key in keys]
    return [each for each in ranges if any(point in view.segments[each.segment].range for point in points)]


def chosen(schema: StreamSchema, names: Sequence[str] | None) -> pa.Schema:
    """The stored columns to read, in the order asked for. Raises SchemaMismatch."""
    if names is None:
        return schema.columns
    known = schema.columns.names
    for name in names:
        if name not in known:
            raise SchemaMismatch(f"there is no column '{name}'; the stream has {', '.join(known)}", column=name)
    return pa.schema([schema.columns.field(name) for name in names])


def read_ranges(
    opened: Opened,
    stream: StreamId,
    ranges: Iterable[Range],
    names: Sequence[str],
    keys: Sequence[str] | None,
    *,
    lossy: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The events of the ranges, in their order, as batches of the named columns and those the store adds, in exactly
    the types that Spark expects. Raises StreamNotFound, CorruptStore, and Truncated unless it is `lossy`: then what was
    truncated since the ranges were dealt is left out."""
    with opened.store.catalog.reading() as reading:
        view = load(reading, stream)
    stored = chosen(view.info.schema, names)
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
    opened: Opened, view: StreamView, ranges: Iterable[Range], selection: Selection, *, lossy: bool = False
) -> Iterator[tuple[SegmentId, Rows]]:
    """The rows of the ranges, as the store keeps them. Raises as `read_ranges`."""
    for segment, first, stop in ranges:
        pages, start = _Pages(opened, view, segment, stop, selection), first
        while start < stop:
            try:
                for rows in opened.logs.read(pages, start, stop, selection):
                    start = rows.stop
                    if rows.batch.num_rows:
                        yield segment, rows
                break
            except Truncated:
                if not lossy:
                    raise
                start = max(start, pages.view.segments[segment].head)
        view = pages.view


class _Pages:
    """Plans the pages of one range. The stream may change meanwhile: what was truncated away is missed, not misread."""

    def __init__(self, opened: Opened, view: StreamView, segment: SegmentId, stop: int, selection: Selection) -> None:
        self._opened = opened
        self._segment = segment
        self._stop = stop
        self._between = selection.between
        self.view = view

    def __call__(self, offset: int) -> Plan:
        with self._opened.store.catalog.reading() as reading:
            self.view = refresh(reading, self.view)
            if cuts.below_head(self.view, {self._segment: offset}):
                raise cuts.truncated(self.view)
            return self._opened.logs.plan(reading, self.view, self._segment, offset, self._stop, between=self._between)
