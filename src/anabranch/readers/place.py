"""Where to begin and end: every way of naming a place in a stream, as a stream cut."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from anabranch.catalog.port import Catalog
from anabranch.core import cuts
from anabranch.errors import EventNotFound, InvalidArgument, InvalidPointer
from anabranch.log.plan import Plan
from anabranch.log.read import LogReader, Rows, Selection
from anabranch.log.seek import cut_at
from anabranch.log.view import respanned
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamView
from anabranch.model.times import to_micros

Place = Edge | StreamCut | EventPointer | datetime | int | str
TimeKind = Literal["append", "event"]

_POINTER = re.compile(r"[0-9a-f]{48}\Z")
_CUT = re.compile(r"[0-9a-f]{16}:")


def parse_place(text: str) -> Place:
    """The text form of a place: `head`, `tail`, a cut, a pointer or an ISO 8601 time. Raises InvalidArgument."""
    if text.lower() in ("head", "tail"):
        return HEAD if text.lower() == "head" else TAIL
    if _POINTER.match(text):
        return EventPointer.parse(text)
    if _CUT.match(text):
        return StreamCut.parse(text)
    return to_micros(text)


def to_cut(catalog: Catalog, logs: LogReader, view: StreamView, place: Place, *, by: TimeKind = "append") -> StreamCut:
    """The cut at a place: before the first event from there on.

    A pointer stands for the cut at its event's append time, with its own segment exactly at the event. A time is an
    append or event time, as `by` says. Raises InvalidArgument and its kinds, EventNotFound, Truncated.
    """
    if by not in ("append", "event"):
        raise InvalidArgument(f"by is 'append' or 'event', not '{by}'")
    if isinstance(place, str):
        place = parse_place(place)
    if isinstance(place, Edge | StreamCut):
        return cuts.resolve(view, place)
    if isinstance(place, EventPointer):
        rows = look_up(catalog, logs, view, place)
        time = Micros(rows.appended if isinstance(rows.appended, int) else rows.appended[0].value)
        return cut_at(catalog, logs, view, time, pin=(place.segment, place.offset))
    return cut_at(catalog, logs, view, to_micros(place), by_event_time=by == "event")


def fetch(catalog: Catalog, logs: LogReader, view: StreamView, pointer: EventPointer) -> Event:
    """The event at a pointer. Raises EventNotFound, Truncated, InvalidPointer for another stream's pointer."""
    rows = look_up(catalog, logs, view, pointer)
    run = EventRun(view.info.id, view.info.schema, pointer.segment, rows.batch, pointer.offset, appended=rows.appended)
    return Event(run, 0)


def look_up(catalog: Catalog, logs: LogReader, view: StreamView, pointer: EventPointer) -> Rows:
    """The row of an event; see `fetch`."""

    def page(offset: int) -> Plan:
        with catalog.reading() as reading:
            now = respanned(reading, view)
            check_pointer(now, pointer)
            return logs.plan(reading, now, pointer.segment, offset, pointer.offset + 1)

    rows = logs.read(page, pointer.offset, pointer.offset + 1, Selection(view.info.schema.columns))
    return next(rows)


def check_pointer(view: StreamView, pointer: EventPointer) -> None:
    """Raise EventNotFound, Truncated or InvalidPointer unless the event can be read."""
    if pointer.stream != view.info.id:
        raise InvalidPointer(f"the pointer belongs to stream {pointer.stream:016x}, not to '{view.info.name}'")
    if cuts.below_head(view, {pointer.segment: pointer.offset}) and _existed(view, pointer.segment):
        raise cuts.truncated(view)
    if pointer.segment not in view.segments or pointer.offset >= view.length(pointer.segment):
        raise EventNotFound(f"'{view.info.name}' holds no event {pointer}")


def _existed(view: StreamView, segment: SegmentId) -> bool:
    return segment in view.segments or (segment.number < view.info.next_number and segment.epoch <= view.info.epoch)
