"""Markers: rows that stand for no event, by which a source advances Spark's watermark.

Spark derives the watermark only from the times of rows, so without new events it stays where it is. Then windows stay
open at the end of a source, and a source that is silent holds back the watermark of a query that reads several. In both
cases the source yields one row with the event time that the watermark needs, `_segment` and `_offset` -1, and nulls. The
query removes it right after the watermark is computed (`is_event`).

A marker is part of the source's offset, with its number and its time. So a micro-batch that is repeated after a crash
yields the same marker.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.core import cuts
from anabranch.core.json_text import parse_json
from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamView
from anabranch.spark.source.offsets import Marker, SourceOffset
from anabranch.spark.source.scan import columns_to_read
from anabranch.spark.types import ADDED, spark_columns
from anabranch.store import Store
from anabranch.store.engine_api import load, newest_event, newest_event_time

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
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
    its tail."""

    horizon_us: int
    ranges: tuple[tuple[StreamCut, StreamCut | None], ...]


@dataclass(frozen=True, slots=True)
class Idleness:
    """A source without new events for `idle_us` follows the others. `others` are the query's other sources, each with
    its watermark's delay."""

    idle_us: int
    others: tuple[tuple[StreamId, int], ...]


@dataclass(frozen=True, slots=True)
class MarkerOption:
    """Options of the markers of a source whose watermark is delayed by `delay_us`. The source's option `markers`. With
    `ask_us` it yields one without effect on the watermark when there were no events for so long, so that a micro-batch
    runs."""

    delay_us: int
    closing: WindowClosing | None = None
    idleness: Idleness | None = None
    ask_us: int | None = None

    def to_option(self) -> str:
        """The option's value."""
        fields: dict[str, object] = {"delay_us": self.delay_us}
        if self.closing is not None:
            ranges = [[str(start), None if stop is None else str(stop)] for start, stop in self.closing.ranges]
            fields["closing"] = {"horizon_us": self.closing.horizon_us, "ranges": ranges}
        if self.idleness is not None:
            fields["idleness"] = {"idle_us": self.idleness.idle_us, "others": self.idleness.others}
        if self.ask_us is not None:
            fields["ask_us"] = self.ask_us
        return json.dumps(fields)

    @classmethod
    def from_option(cls, text: str) -> MarkerOption:
        """The inverse of `to_option`. Raises InvalidArgument."""
        try:
            fields = parse_json(text)
            closing, idleness = fields.get("closing"), fields.get("idleness")
            return cls(
                int(fields["delay_us"]),
                None
                if closing is None
                else WindowClosing(int(closing["horizon_us"]), tuple(map(_range, closing["ranges"]))),
                None
                if idleness is None
                else Idleness(int(idleness["idle_us"]), tuple(map(_other, idleness["others"]))),
                None if (ask_us := fields.get("ask_us")) is None else int(ask_us),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise InvalidArgument(f"option 'markers' is JSON with delay_us, closing and idleness: {exc}") from exc


def _range(texts: Sequence[str | None]) -> tuple[StreamCut, StreamCut | None]:
    start, stop = texts
    return StreamCut.parse(str(start)), None if stop is None else StreamCut.parse(stop)


def _other(numbers: Sequence[int]) -> tuple[StreamId, int]:
    stream, delay_us = map(int, numbers)
    return StreamId(stream), delay_us


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
    """The watermark that a source which is read to its tail takes over from the others; None if it is not idle, or there
    is none to take over. That is the least of those that are not idle; if all are idle, the greatest of all."""
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

    def due(self, opened: Store, offset: SourceOffset) -> Marker | None:
        """The marker to yield at `offset`, where the source has no more events at present; None if none is due."""
        number = 1 if offset.marker is None else offset.marker.number + 1
        if self._option.closing is not None:
            # Each run yields one, even if the run before yielded the same: Spark, started again, closes windows only in
            # a batch that has input.
            if self._closing_number is None:
                self._closing_number = number
            if number > self._closing_number:
                return None
            newest = _newest_of_all(opened, self._option.closing.ranges)
            watermark = None if newest is None else newest + self._option.closing.horizon_us
        elif self._option.idleness is not None:
            watermark = self._idle(opened, offset.cut.stream, self._option.idleness)
            if watermark is None or (self._advanced_to is not None and watermark <= self._advanced_to):
                return None
            self._advanced_to = watermark
        elif self._option.ask_us is not None:
            asks = self._asks(offset.cut, opened.runtime.clock.now(), self._option.ask_us)
            return Marker(number, 0) if asks else None
        else:
            return None
        return None if watermark is None else Marker(number, watermark + self._option.delay_us)

    def _asks(self, cut: StreamCut, now: int, ask_us: int) -> bool:
        if self._rest is None or self._rest[0] != cut:
            self._rest = cut, now
        if cut == self._asked_at or now - self._rest[1] < ask_us:
            return False
        self._asked_at = cut
        return True

    def _idle(self, opened: Store, stream: StreamId, idleness: Idleness) -> int | None:
        with opened.catalog.reading() as reading:
            own = _times(load(reading, stream), self._option.delay_us)
            others = [_times(load(reading, other), delay_us) for other, delay_us in idleness.others]
        return idle_watermark(own, others, idle_us=idleness.idle_us, now=opened.runtime.clock.now())


def _times(view: StreamView, delay_us: int) -> SourceTimes:
    appended_at = max([view.info.created_at, *(log.appended_at for log in view.logs.values())])
    return SourceTimes(newest_event_time(view), appended_at, delay_us)


def _newest_of_all(opened: Store, ranges: Sequence[tuple[StreamCut, StreamCut | None]]) -> int | None:
    found = [_newest(opened, start, stop) for start, stop in ranges]
    return max((each for each in found if each is not None), default=None)


def _newest(opened: Store, start: StreamCut, stop: StreamCut | None) -> Micros | None:
    """The newest event time between two cuts. If events of the range were truncated, those of the whole stream count,
    since the query may have read the truncated ones."""
    with opened.catalog.reading() as reading:
        view = load(reading, start.stream)
    ends = cuts.tail_cut(view) if stop is None else stop
    if cuts.below_head(view, start.as_dict()) or cuts.below_head(view, ends.as_dict()):
        return newest_event_time(view)
    logs = opened.internals.logs
    found = [newest_event(logs, view, segment, low, high) for segment, low, high in cuts.ranges(view, start, ends)]
    return max((each for each in found if each is not None), default=None)


def marker_row(opened: Store, stream: StreamId, names: Sequence[str], time_us: int) -> pa.RecordBatch:
    """A marker as a batch of the named columns and those the store adds. Raises StreamNotFound."""
    with opened.catalog.reading() as reading:
        schema = load(reading, stream).info.schema
    columns = pa.schema([*spark_columns(columns_to_read(schema, names)), *ADDED])
    values = {schema.time: time_us, ADDED[0].name: _NO_EVENT, ADDED[1].name: _NO_EVENT}
    arrays = [pa.array([values.get(field.name)], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def is_event() -> Column:
    """A condition that keeps events and removes markers. Use it right after `withWatermark`.

    Spark moves other conditions below the watermark, where they would remove markers before the watermark is computed.
    It moves none across a condition that is not deterministic. So this one is not, by a term that is always false: no
    partition has a number below zero.
    """
    from pyspark.sql import functions

    return (functions.col(ADDED[1].name) > _NO_EVENT) | (functions.spark_partition_id() < 0)
