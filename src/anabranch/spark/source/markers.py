"""Markers: rows that stand for no event, by which a source advances Spark's watermark.

Spark derives the watermark only from the times of rows, so without new events it stays where it is. Then windows stay
open at the end of a source, and a source that is silent holds back the watermark of a query that reads several. In both
cases the source yields one row with the event time and append time that the watermark needs, `_segment` and `_offset` -1,
and nulls. The query removes it right after the watermark is computed (`is_event`).

A marker is part of the source's offset, with its number and its time. So a micro-batch that is repeated after a crash
yields the same marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.core import cuts
from anabranch.model.columns import APPENDED
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamView
from anabranch.spark.source.offsets import Marker, SourceOffset
from anabranch.spark.source.scan import columns_to_read
from anabranch.spark.types import ADDED, spark_columns
from anabranch.store import Store
from anabranch.store.engine_api import append_time, load, newest_event, newest_event_time

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "ClockClosing",
    "Idleness",
    "MarkerOption",
    "Markers",
    "SourceTimes",
    "WindowClosing",
    "idle_watermark",
    "is_event",
    "marker_row",
]

_NO_EVENT: Final = -1  # the segment and offset of a marker


@dataclass(frozen=True, slots=True)
class WindowClosing:
    """Close what is open at the end of the sources: the watermark goes to the newest event time of `ranges` and
    `horizon_us` more. Each range is where a source of the query begins, and where it ends in this run; None stands for
    its tail. With `by_append_time` the newest append time takes the place of the newest event time."""

    horizon_us: int
    ranges: tuple[tuple[StreamCut, StreamCut | None], ...]
    by_append_time: bool = False


@dataclass(frozen=True, slots=True)
class ClockClosing:
    """Close windows over append times as the clock passes their ends, also without new events. Windows end at
    `start_us` and multiples of `step_us` after it. Sessions end anywhere; for them the watermark moves by such steps.
    All are closed `horizon_us` after the newest append time."""

    horizon_us: int
    step_us: int
    start_us: int = 0

    def last_end(self, time: int) -> int:
        """The last end of a window at or before this time."""
        return time - (time - self.start_us) % self.step_us


@dataclass(frozen=True, slots=True)
class Idleness:
    """A source without new events for `idle_us` follows the others. `others` are the query's other sources, each with
    its watermark's delay."""

    idle_us: int
    others: tuple[tuple[StreamId, int], ...]


@dataclass(frozen=True, slots=True)
class MarkerOption:
    """Options of the markers of a source whose watermark is delayed by `delay_us`. The source's option `markers`. After
    `ask_us` without events the source yields a marker that makes a micro-batch run and leaves the watermark as it is.
    With `clock` the watermark follows the clock where there are no new events."""

    delay_us: int
    closing: WindowClosing | None = None
    idleness: Idleness | None = None
    ask_us: int | None = None
    clock: ClockClosing | None = None

    @property
    def yields_any(self) -> bool:
        """False if the source yields no markers."""
        return any(each is not None for each in (self.closing, self.idleness, self.ask_us, self.clock))


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """The newest event time of a source, None if it has none; when its last event was appended; and its watermark's
    delay. In µs."""

    newest: int | None
    appended_at: int
    delay_us: int

    @property
    def watermark(self) -> int | None:
        """The watermark once the source is read to its tail."""
        return None if self.newest is None else self.newest - self.delay_us


def idle_watermark(own: SourceTimes, others: Sequence[SourceTimes], *, idle_us: int, now: int) -> int | None:
    """The watermark that a source which is read to its tail takes over from the others: the lowest of the sources that
    are not idle; if all are idle, the highest of all. None if the source is not idle, or a source that is not idle has
    none."""
    if now - own.appended_at < idle_us:
        return None
    active = [each.watermark for each in others if now - each.appended_at < idle_us]
    if not active:
        known = [each.watermark for each in (own, *others) if each.watermark is not None]
        return max(known, default=None)
    known = [each for each in active if each is not None]
    return min(known) if len(known) == len(active) else None


class Markers:
    """Decides when a source yields a marker, during one run of its query. For one thread."""

    def __init__(self, option: MarkerOption) -> None:
        self._option = option
        self._closing_number: int | None = None  # of this run's marker that closes windows
        self._advanced_to: int | None = None
        self._rest: tuple[StreamCut, int] | None = None  # where the source has no more events, and since when
        self._asked_at: StreamCut | None = None
        self._clock_cut: StreamCut | None = None  # where the source had no more events
        self._clock_watermark: int | None = None  # the watermark at `_clock_cut`
        self._clock_stop: int | None = None  # the watermark that closes all windows at `_clock_cut`

    def due(self, opened: Store, offset: SourceOffset, *, once: bool = False) -> Marker | None:
        """The marker to yield at `offset`, where the source has no more events at present; None if none is due. With
        `once` the query is to end, so the clock is looked at only once."""
        number = 1 if offset.marker is None else offset.marker.number + 1
        if self._option.closing is not None:
            # Each run yields one, even if the run before yielded the same: Spark, started again, closes windows only in
            # a batch that has input.
            if self._closing_number is None:
                self._closing_number = number
            if number > self._closing_number:
                return None
            newest = _newest_of_all(opened, self._option.closing)
            watermark = None if newest is None else newest + self._option.closing.horizon_us
        elif self._option.idleness is not None:
            watermark = self._idle_marker_watermark(opened, offset.cut.stream, self._option.idleness)
            if watermark is None or (self._advanced_to is not None and watermark <= self._advanced_to):
                return None
            self._advanced_to = watermark
        else:
            now, ask_us = opened.runtime.clock.now(), self._option.ask_us
            watermark = self._clock_marker_watermark(opened, offset.cut, now, once=once)
            if watermark is None and ask_us is not None and self._is_ask_due(offset.cut, now, ask_us):
                return Marker(number, 0)
        return None if watermark is None else Marker(number, watermark + self._option.delay_us)

    def _is_ask_due(self, cut: StreamCut, now: int, ask_us: int) -> bool:
        if self._rest is None or self._rest[0] != cut:
            self._rest = cut, now
        if cut == self._asked_at or now - self._rest[1] < ask_us:
            return False
        self._asked_at = cut
        return True

    def _clock_marker_watermark(self, opened: Store, cut: StreamCut, now: int, *, once: bool) -> int | None:
        """The watermark that closes windows over append times; None if there are none to close. A window is closed once
        the clock has passed its end by the watermark's delay, because then nothing is appended to it any more."""
        clock = self._option.clock
        if clock is None:
            return None
        if cut != self._clock_cut:
            with opened.catalog.reading() as reading:
                newest = _newest_append_time(load(reading, cut.stream))
            self._clock_cut = cut
            self._clock_watermark = None if newest is None else newest - self._option.delay_us
            self._clock_stop = None if newest is None else newest + clock.horizon_us
        before, stop, passed = self._clock_watermark, self._clock_stop, now - self._option.delay_us
        if before is None or stop is None:
            return None
        watermark = stop if passed >= stop else clock.last_end(passed)
        if watermark <= before:
            return None
        self._clock_watermark = None if once or watermark == stop else watermark
        return watermark

    def _idle_marker_watermark(self, opened: Store, stream: StreamId, idleness: Idleness) -> int | None:
        with opened.catalog.reading() as reading:
            own = _times(load(reading, stream), self._option.delay_us)
            others = [_times(load(reading, other), delay_us) for other, delay_us in idleness.others]
        return idle_watermark(own, others, idle_us=idleness.idle_us, now=opened.runtime.clock.now())


def _times(view: StreamView, delay_us: int) -> SourceTimes:
    appended_at = max([view.info.created_at, *(log.appended_at for log in view.logs.values())])
    return SourceTimes(newest_event_time(view), appended_at, delay_us)


def _newest_append_time(view: StreamView) -> int | None:
    return max((log.appended_at for log in view.logs.values() if log.appended_at), default=None)


def _newest_of_all(opened: Store, closing: WindowClosing) -> int | None:
    found = [_newest(opened, start, stop, by_append_time=closing.by_append_time) for start, stop in closing.ranges]
    return max((each for each in found if each is not None), default=None)


def _newest(opened: Store, start: StreamCut, stop: StreamCut | None, *, by_append_time: bool) -> int | None:
    """The newest event time, or append time, between two cuts. If events of the range were truncated, those of the whole
    stream count, since the query may have read the truncated ones."""
    with opened.catalog.reading() as reading:
        view = load(reading, start.stream)
    ends = cuts.tail_cut(view) if stop is None else stop
    if cuts.below_head(view, start.as_dict()) or cuts.below_head(view, ends.as_dict()):
        return _newest_append_time(view) if by_append_time else newest_event_time(view)
    logs, ranges = opened.internals.logs, cuts.ranges(view, start, ends)
    if by_append_time:  # these ascend in each segment
        return max((append_time(logs, view, segment, high - 1) for segment, _, high in ranges), default=None)
    found = [newest_event(logs, view, segment, low, high) for segment, low, high in ranges]
    return max((each for each in found if each is not None), default=None)


def marker_row(opened: Store, stream: StreamId, names: Sequence[str], time_us: int) -> pa.RecordBatch:
    """A marker as a batch of the named columns and those the store adds. Raises StreamNotFound."""
    with opened.catalog.reading() as reading:
        schema = load(reading, stream).info.schema
    columns = pa.schema([*spark_columns(columns_to_read(schema, names)), *ADDED])
    values = {schema.time: time_us, APPENDED: time_us, ADDED[0].name: _NO_EVENT, ADDED[1].name: _NO_EVENT}
    arrays = [pa.array([values.get(field.name)], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def is_event() -> Column:
    """A condition that keeps events and removes markers. Use it right after `withWatermark`.

    Spark moves other conditions below the watermark, where they would remove markers before the watermark is computed.
    It moves none across a condition that is not deterministic. So a term makes this condition
    nondeterministic. The term is always false: no partition has a number below zero.
    """
    from pyspark.sql import functions

    return (functions.col(ADDED[1].name) > _NO_EVENT) | (functions.spark_partition_id() < 0)
