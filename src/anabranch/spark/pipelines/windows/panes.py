"""Decides which panes of windows of time are due, other than of sessions, and of which events each is made. Pure.

A window is on time when the watermark reaches its end, and is forgotten `late_us` later. Each micro-batch gives a
window at most one early or one late pane. Whether an event is late depends on the watermark with which its micro-batch
begins. A window whose end this watermark has reached closes before the batch's events are counted. So results don't
depend on whether a batch without events ran before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.spark.pipelines.windows.columns import TIME, WINDOW
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.grouping import Numbers, RowGroups, codes_of, group
from anabranch.spark.pipelines.windows.pane_rows import (
    EARLY,
    LATE,
    ON_TIME,
    Flags,
    PaneBook,
    Panes,
    early_due,
    members_of,
    pane_rows,
)
from anabranch.spark.pipelines.windows.spans import StatementWindow, windows_of

__all__ = ["Advanced", "BucketState", "advance"]

_END, _FIRED, _AT, _INDEX, _CLOSED, _TIMING = "end", "fired", "at", "index", "closed", "timing"


@dataclass(frozen=True, slots=True)
class BucketState:
    """The events of windows that are not forgotten, in the order in which they came, as of a watermark; and of each such
    window of a key its `end`, how many of its events were in its last pane (`fired`), when that was (`at`), the `index` of
    the next pane, whether it is `closed`, and the `timing` of its last pane. Times in µs."""

    rows: pa.Table
    windows: pa.Table | None = None
    watermark_us: int = 0


@dataclass(frozen=True, slots=True)
class Advanced:
    """A bucket after a micro-batch: `emitted` are the events of the panes that are due, each with its window and pane
    (None without any); `due_us` is the watermark at which `state` changes without further events (None for none)."""

    emitted: pa.Table | None
    state: BucketState
    due_us: int | None


def advance(
    state: BucketState,
    came: pa.Table | None,
    keys: Sequence[str],
    columns: Sequence[str],
    window: StatementWindow,
    policy: EmitPolicy,
    *,
    watermark_us: int,
    now_us: int,
) -> Advanced:
    """Take the events of a micro-batch, `came`, which are in order (None without any). Those that are emitted have the `columns`
    of their own."""
    rows = state.rows if came is None else pa.concat_tables([state.rows, came]).combine_chunks()
    old = state.rows.num_rows
    times = rows.column(TIME).cast(pa.int64()).to_numpy()
    cell_rows, cell_ends = windows_of(times, window)
    known_from = np.where(cell_rows < old, state.watermark_us, watermark_us)
    alive = cell_ends + policy.late_us > known_from
    cell_rows, cell_ends = cell_rows[alive], cell_ends[alive]
    book = _WindowBook.of(state.windows, rows, keys, cell_rows, cell_ends, window.size_us, now_us)
    groups, ends = book.groups, book.ends
    counts = groups.counts
    olds = np.add.reduceat(cell_rows[groups.order] < old, groups.starts) if len(counts) else counts
    past = ends <= watermark_us

    panes: list[Panes] = []

    def fire(due: Flags, upto: Numbers, timing: int) -> None:
        which = np.flatnonzero(due)
        panes.extend(book.fire(which, upto, np.full(len(which), timing), policy, now_us))

    closing = past & ~book.closed & (olds > 0)
    due = closing & ((olds > book.fired) if policy.mode == "discarding" else True)
    fire(due, olds, ON_TIME)
    book.closed |= past
    fire(past & (counts > np.maximum(olds, book.fired)), counts, LATE)
    fire(~past & early_due(policy, counts - book.fired, now_us - book.at), counts, EARLY)

    stays = ends + policy.late_us > watermark_us
    kept_rows = np.unique(cell_rows[cell_ends + policy.late_us > watermark_us])
    after = BucketState(rows.take(pa.array(kept_rows)), book.table(stays), watermark_us)
    dues = np.where(book.closed, ends + policy.late_us, ends)[stays]
    due_us = int(dues.min()) if len(dues) else None
    return Advanced(pane_rows(rows, columns, panes, policy, window=WINDOW), after, due_us)


class _WindowBook(PaneBook):
    """What is known of each window that has events: arrays by window, in the order of `groups`. A cell is a pair of an
    event and a window: `cell_rows` are the rows of the cells' events, and `groups` has the indices of the cells of each
    window."""

    def __init__(
        self, groups: RowGroups, cell_rows: Numbers, ends: Numbers, keys: pa.Table, size_us: int, now_us: int
    ) -> None:
        count = len(ends)
        self.groups = groups
        self._cell_rows = cell_rows
        self._size_us = size_us
        self.ends = ends
        self.fired = np.zeros(count, np.int64)
        self.at = np.full(count, now_us, np.int64)
        self.index = np.zeros(count, np.int64)
        self.closed = np.zeros(count, np.bool_)
        self.timing = np.zeros(count, np.int64)
        self._keys = keys

    @classmethod
    def of(
        cls,
        known: pa.Table | None,
        rows: pa.Table,
        keys: Sequence[str],
        cells: Numbers,
        ends: Numbers,
        size_us: int,
        now_us: int,
    ) -> _WindowBook:
        count = rows.num_rows
        columns = [rows.column(key) for key in keys]
        if known is not None:
            columns = [
                pa.chunked_array([*a.chunks, *known.column(k).chunks]) for k, a in zip(keys, columns, strict=True)
            ]
        codes = codes_of(columns)
        known_ends = np.empty(0, np.int64) if known is None else known.column(_END).to_numpy()
        distinct, ranks = np.unique(np.r_[ends, known_ends], return_inverse=True)
        ids = np.r_[codes[:count][cells], codes[count:]] * max(len(distinct), 1) + ranks
        groups = group(ids[: len(cells)])
        firsts = groups.order[groups.starts]
        book = cls(groups, cells, ends[firsts], rows.select(keys).take(pa.array(cells[firsts])), size_us, now_us)
        if known is not None and known.num_rows:
            # Every window that is known has events, so each is found.
            places = np.searchsorted(ids[: len(cells)][firsts], ids[len(cells) :])
            for name in (_FIRED, _AT, _INDEX, _CLOSED, _TIMING):
                getattr(book, name)[places] = known.column(name).to_numpy()
        return book

    def table(self, stays: Flags) -> pa.Table:
        table = self._keys
        for name in (_END, _FIRED, _AT, _INDEX, _CLOSED, _TIMING):
            table = table.append_column(name, pa.array(self.ends if name == _END else getattr(self, name)))
        return table.filter(pa.array(stays))

    def panes(
        self, which: Numbers, low: Numbers, high: Numbers, timing: Numbers, index: Numbers, *, retracts: bool
    ) -> Panes:
        """See `PaneBook.panes`."""
        members = self._cell_rows[members_of(self.groups, which, low, high)]
        stop = self.ends[which]
        return Panes(members, high - low, stop - self._size_us, stop, timing, index, retracts)
