"""Windows of a number of events: which are complete, and which events stay open. Pure.

The windows of a key are the events 0 to `size`, `step` to `step + size`, and so on, as they come. A window is complete
with its last event. Each event is kept until the last of its windows is complete; of a key without open events nothing
is kept.

With EMIT a window has panes. It is on time with its last event; until then each micro-batch gives it at most one early pane.
Its bounds are the earliest and the latest event time so far, so an early pane's bounds may be narrower than the window's. The
first event of a window never changes, so it identifies the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.spark.pipelines.windows.columns import COUNT_WINDOW, OFFSET, SEGMENT, TIME
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.grouping import Numbers, RowGroups, codes_of, group
from anabranch.spark.pipelines.windows.pane_rows import (
    EARLY,
    ON_TIME,
    PaneBook,
    Panes,
    early_due,
    members_of,
    pane_rows,
)

__all__ = [
    "CompletedWindows",
    "CountPanes",
    "CountWindow",
    "advance_counts",
    "complete_windows",
    "full_windows",
    "open_rows",
]

# What is known of each window, kept with its first event: of how many events its last pane was made (0: it had none), when that
# was, or when its first event came, and the index of its next pane.
_FIRED, _AT, _INDEX = (f"_anabranch_pane_{name}" for name in ("fired", "at", "index"))


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of `size` events, one beginning every `step` events: tumbling if both are equal."""

    size: int
    step: int


@dataclass(frozen=True, slots=True)
class CompletedWindows:
    """The complete and the open windows of rows. `rows` are those of complete windows, window after window, `size`
    each, with all windows of a key in their order; `open` are those that are kept, in the order in which they came."""

    rows: pa.Table
    open: pa.Table


def complete_windows(rows: pa.Table, keys: list[str], window: CountWindow) -> CompletedWindows:
    """Find the complete windows among rows of any keys: those that were open, then those that came, in their order.
    `keys` are the columns that make up a key."""
    if not rows.num_rows:
        return CompletedWindows(rows, rows)
    groups = group(codes_of([rows.column(key) for key in keys]))
    full = full_windows(groups, window)
    complete = groups.order[_members(groups.starts, full, window)]
    return CompletedWindows(rows.take(pa.array(complete)), rows.take(pa.array(open_rows(groups, full, window))))


def full_windows(groups: RowGroups, window: CountWindow) -> Numbers:
    """How many windows of each group are complete."""
    full: Numbers = np.where(groups.counts < window.size, 0, (groups.counts - window.size) // window.step + 1)
    return full


def open_rows(groups: RowGroups, full: Numbers, window: CountWindow) -> Numbers:
    """The rows that are in a window that is not complete, in the order in which they came."""
    stays = groups.positions >= np.repeat(full * window.step, groups.counts)
    kept: Numbers = np.sort(groups.order[stays])
    return kept


def _members(starts: Numbers, full: Numbers, window: CountWindow) -> Numbers:
    """The indices in `RowGroups.order` of the events of complete windows; each group has `full` of these windows."""
    within = np.arange(full.sum()) - np.repeat(np.cumsum(full) - full, full)
    firsts = np.repeat(starts, full) + within * window.step
    members: Numbers = (firsts[:, None] + np.arange(window.size)).ravel()
    return members


@dataclass(frozen=True, slots=True)
class CountPanes:
    """The events of the panes that are due, each with its window and pane (None without any); and the events of open windows,
    in the order in which they came, with what is known of the windows that they begin."""

    emitted: pa.Table | None
    open: pa.Table


def advance_counts(
    known: pa.Table | None,
    came: pa.Table | None,
    keys: Sequence[str],
    columns: Sequence[str],
    window: CountWindow,
    policy: EmitPolicy,
    *,
    stream: StreamId,
    now_us: int,
) -> CountPanes:
    """Take the events of a micro-batch of `stream`, `came`, which are in order (None without any); `known` are the
    events of open windows (None without any). One of the two is not None. Emitted events keep these `columns`."""
    rows = pa.concat_tables(
        [each for each in (known, _with_pane_columns(came, now_us)) if each is not None]
    ).combine_chunks()
    groups = group(codes_of([rows.column(key) for key in keys]))
    book = _CountBook.of(rows, groups, window, stream)
    full = book.counts == window.size
    early = ~full & early_due(policy, book.counts - book.fired, now_us - book.at)
    which = np.flatnonzero(full | early)
    panes = list(book.fire(which, book.counts, np.where(full[which], ON_TIME, EARLY), policy, now_us))
    kept = book.table().take(pa.array(open_rows(groups, full_windows(groups, window), window)))
    return CountPanes(pane_rows(rows, columns, panes, policy, window=COUNT_WINDOW), kept)


def _with_pane_columns(came: pa.Table | None, now_us: int) -> pa.Table | None:
    if came is not None:
        for name, value in {_FIRED: 0, _AT: now_us, _INDEX: 0}.items():
            came = came.append_column(name, pa.array(np.full(came.num_rows, value, np.int64)))
    return came


@dataclass(frozen=True)
class _CountBook(PaneBook):
    """The windows that have events, of which each is on time once: arrays by window. `group` is that of its key, `low` where it
    begins in it, `counts` how many events it has, `first` the index of the first."""

    rows: pa.Table
    stream: StreamId
    groups: RowGroups
    group: Numbers
    low: Numbers
    counts: Numbers
    first: Numbers
    fired: Numbers
    at: Numbers
    index: Numbers
    timing: Numbers

    @classmethod
    def of(cls, rows: pa.Table, groups: RowGroups, window: CountWindow, stream: StreamId) -> _CountBook:
        begun = -(-groups.counts // window.step)
        of_group = np.repeat(np.arange(len(begun)), begun)
        low = (np.arange(begun.sum()) - np.repeat(np.cumsum(begun) - begun, begun)) * window.step
        first = groups.order[groups.starts[of_group] + low]
        counts = np.minimum(groups.counts[of_group] - low, window.size)
        fired, at, index = (rows.column(name).to_numpy()[first] for name in (_FIRED, _AT, _INDEX))
        return cls(rows, stream, groups, of_group, low, counts, first, fired, at, index, np.full(len(first), EARLY))

    def table(self) -> pa.Table:
        """The rows with what is known now."""
        rows = self.rows
        for name, column in {_FIRED: self.fired, _AT: self.at, _INDEX: self.index}.items():
            values = rows.column(name).to_numpy().copy()
            values[self.first] = column
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
        return rows

    def panes(
        self, which: Numbers, low: Numbers, high: Numbers, timing: Numbers, index: Numbers, *, retracts: bool
    ) -> Panes:
        """See `PaneBook.panes`."""
        times = self.rows.column(TIME).cast(pa.int64()).to_numpy()
        segments, offsets = (self.rows.column(name).to_numpy() for name in (SEGMENT, OFFSET))
        of, begin = self.group[which], self.low[which]
        members = times[members_of(self.groups, of, begin, begin + high)]
        begins = np.cumsum(high) - high
        start, stop = (by.reduceat(members, begins) if len(which) else begins for by in (np.minimum, np.maximum))
        pointers = [
            str(EventPointer(self.stream, SegmentId.unpack(int(segments[row])), int(offsets[row])))
            for row in self.first[which]
        ]
        chosen = members_of(self.groups, of, begin + low, begin + high)
        return Panes(chosen, high - low, start, stop, timing, index, retracts, pointers)
