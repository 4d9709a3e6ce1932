"""Converts every way of naming a place in a stream (edge, cut, pointer, time, text) to a stream cut."""

from __future__ import annotations

import re
from datetime import datetime

import pyarrow as pa

from anabranch.catalog.port import Reading
from anabranch.core import cuts
from anabranch.errors import EventNotFound, InvalidPointer
from anabranch.log.read import LogReader, SegmentRows, Selection
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.time_index import cut_at
from anabranch.log.view import with_current_spans
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamView
from anabranch.model.time_kind import TimeKind, time_kind
from anabranch.model.times import DEFAULT_RULES, TimeRules, to_datetime, to_micros

Place = Edge | StreamCut | EventPointer | datetime | int | str

_POINTER = re.compile(r"[0-9a-f]{48}\Z")
_CUT = re.compile(r"[0-9a-f]{16}:")


def cut_behind(batch: pa.RecordBatch, after: StreamCut) -> StreamCut:
    """The cut after the last row of `batch`, the first part of a larger batch; `after` is the cut after the larger
    batch."""
    segment, offset = batch.column("_segment")[-1].as_py(), batch.column("_offset")[-1].as_py()
    return StreamCut.of(after.stream, {s: offset + 1 if s.packed == segment else o for s, o in after})


def parse_place(text: str, rules: TimeRules = DEFAULT_RULES) -> Place:
    """Parses the text form of a place: `head`, `tail`, a cut, a pointer or an ISO 8601 time. Raises InvalidArgument."""
    if text.lower() in ("head", "tail"):
        return HEAD if text.lower() == "head" else TAIL
    if _POINTER.match(text):
        return EventPointer.parse(text)
    if _CUT.match(text):
        return StreamCut.parse(text)
    return to_micros(text, rules)


def place_text(place: Place) -> str:
    """A place as text for `parse_place`. Raises InvalidArgument for a text that is not a place."""
    if isinstance(place, str):
        parse_place(place)
        return place
    if isinstance(place, Edge):
        return place.value
    if isinstance(place, int | datetime):
        return to_datetime(to_micros(place)).isoformat()
    return str(place)


def to_cut(
    logs: LogReader,
    view: StreamView,
    place: Place,
    *,
    by: TimeKind = "append",
    rules: TimeRules | None = None,
) -> StreamCut:
    """The cut at a place: before the first event at or after it.

    A pointer stands for the cut at its event's append time, with its own segment exactly at the event. `by` says
    whether a time is an append or an event time; `rules` say how it is interpreted, by default those of the store.
    Raises InvalidArgument and its subclasses, EventNotFound, Truncated.
    """
    by = time_kind(by)
    if isinstance(place, str):
        place = parse_place(place, rules or logs.times)
    if isinstance(place, Edge | StreamCut):
        return cuts.resolve(view, place)
    if isinstance(place, EventPointer):
        rows = look_up(logs, view, place)
        time = Micros(rows.appended if isinstance(rows.appended, int) else rows.appended[0].value)
        return cut_at(logs, view, time, pin=(place.segment, place.offset))
    return cut_at(logs, view, to_micros(place, rules or logs.times), by_event_time=by == "event")


def fetch(logs: LogReader, view: StreamView, pointer: EventPointer) -> Event:
    """The event at a pointer. Raises EventNotFound, Truncated, and InvalidPointer for another stream's pointer."""
    rows = look_up(logs, view, pointer)
    run = EventRun(view.info.id, view.info.schema, pointer.segment, rows.batch, pointer.offset, appended=rows.appended)
    return Event(run, 0)


def look_up(logs: LogReader, view: StreamView, pointer: EventPointer) -> SegmentRows:
    """The row of the event at a pointer. Raises what `fetch` raises."""

    def checked(reading: Reading, last: StreamView) -> StreamView:
        now = with_current_spans(reading, last)
        check_pointer(now, pointer)
        return now

    segment = SegmentReader(logs, view, pointer.segment, current=checked)
    return next(segment.rows(pointer.offset, pointer.offset + 1, Selection(view.info.schema.columns)))


def check_pointer(view: StreamView, pointer: EventPointer) -> None:
    """Raises EventNotFound, Truncated or InvalidPointer unless the event can be read."""
    if pointer.stream != view.info.id:
        raise InvalidPointer(f"the pointer belongs to stream {pointer.stream:016x}, not to '{view.info.name}'")
    if cuts.below_head(view, {pointer.segment: pointer.offset}) and _existed(view, pointer.segment):
        raise cuts.truncated_error(view)
    if pointer.segment not in view.segments or pointer.offset >= view.length(pointer.segment):
        raise EventNotFound(f"'{view.info.name}' holds no event {pointer}")


def _existed(view: StreamView, segment: SegmentId) -> bool:
    return segment in view.segments or (segment.number < view.info.next_number and segment.epoch <= view.info.epoch)
