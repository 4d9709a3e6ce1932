"""What is read: ranges of a stream, and pages of them."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import time_ago
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.rate import Rate
from anabranch.model.stream import StreamInfo
from anabranch.model.time_kind import TimeKind, time_kind
from anabranch.reading.bounds import cut_behind
from anabranch.reading.reader import Reader
from anabranch.store.facade import Store


class Range(NamedTuple):
    """The events to read: from the place `start` to the place `end`, or to the tail at the time of opening; only those
    with an event time in `between`; as fast as `rate` allows."""

    start: str
    end: str | None
    by: TimeKind
    columns: list[str] | None
    between: tuple[str, str] | None
    limit: int | None
    meta: bool
    rate: Rate | None = None


def absolute(text: str, now: Micros) -> str:
    """A place. An age such as `-15m`, which means 15 minutes ago, becomes a time in µs; other texts are unchanged."""
    ago = time_ago(text, now)
    return text if ago is None else str(ago)


def place(text: str) -> int | str:
    """A place as the reader takes it: a number is a time in µs."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text


def time_kind_of(by: str | None) -> TimeKind:
    """The kind of the times in places. Raises InvalidArgument."""
    return time_kind(by, form="by={}")


def rate_of(events_per_s: float | str | None, bytes_per_s: float | str | None) -> Rate | None:
    """The rate that a consumer asks for; None: as fast as possible. Raises InvalidArgument."""
    if events_per_s is None and bytes_per_s is None:
        return None
    if isinstance(events_per_s, str):
        try:
            events_per_s = float(events_per_s)
        except ValueError:
            raise InvalidArgument(f"expected events_per_s as a number above 0, got '{events_per_s:.100}'") from None
    return Rate(events_per_s, bytes_per_s)


def open_range(store: Store, info: StreamInfo, asked: Range) -> Reader:
    """A reader of the range. Raises what `Store.reader` raises."""
    between = asked.between
    return store.reader(
        info.name,
        start=place(asked.start),
        end=None if asked.end is None else place(asked.end),
        by=asked.by,
        columns=asked.columns,
        between=None if between is None else (place(between[0]), place(between[1])),
        batch_rows=min(asked.limit or limits.READ_ROWS_MAX, limits.READ_ROWS_MAX),
    )


class EventPage(NamedTuple):
    """The events of a page; `after` is the cut after them; `complete` if no event follows in the range."""

    batches: list[tuple[pa.RecordBatch, StreamCut]]
    after: StreamCut
    complete: bool


def read_page(reader: Reader, limit: int) -> EventPage:
    """At most `limit` events, and about `limits.HTTP_PAGE_BYTES_MAX` bytes."""
    batches: list[tuple[pa.RecordBatch, StreamCut]] = []
    left, size, after = limit, 0, reader.position
    while left and size < limits.HTTP_PAGE_BYTES_MAX:
        batch = reader.read()
        if batch is None:
            return EventPage(batches, reader.position, complete=True)
        after = reader.position
        keep = min(left, _fitting(batch, limits.HTTP_PAGE_BYTES_MAX - size))
        if keep < batch.num_rows:
            batch = batch.slice(0, keep)
            after = cut_behind(batch, after)
            return EventPage([*batches, (batch, after)], after, complete=False)
        batches.append((batch, after))
        left, size = left - batch.num_rows, size + batch.nbytes
    return EventPage(batches, after, complete=False)


def _fitting(batch: pa.RecordBatch, bytes_left: int) -> int:
    """How many of the rows take about this many bytes; at least one."""
    return max(1, int(batch.num_rows * bytes_left // max(1, batch.nbytes)))
