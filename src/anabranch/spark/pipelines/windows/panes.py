"""Decides which results of time windows are due, and of which events each is made. Pure.

The terms are those of Beam: a *pane* is one result of a window, with a timing (early, on time, late) and an index. A window is
on time when the watermark reaches its end, and is forgotten `late_us` later. Each micro-batch gives a window at most one early
or one late pane. An event is judged by the watermark with which its micro-batch begins; a window whose end that watermark has
reached closes before events of the batch count. So it makes no difference whether a batch without events ran before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.windows.columns import PANE, TIME, WINDOW
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.grouping import Numbers, RowGroups, codes_of, group
from anabranch.spark.pipelines.windows.spans import StatementWindow, windows_of

__all__ = ["EARLY", "LATE", "ON_TIME", "BucketState", "advance", "next_due_us"]

EARLY, ON_TIME, LATE = 0, 1, 2
_TIMINGS: Final = pa.array(["early", "on_time", "late"])
_END, _FIRED, _AT, _INDEX, _CLOSED, _TIMING = "end", "fired", "at", "index", "closed", "timing"

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BucketState:
    """The events of windows that are not forgotten, in the order in which they came, as of a watermark; and of each such
    window of a key its `end`, how many of its events were in its last pane (`fired`), when that was (`at`), the `index` of
    the next pane, whether it is `closed`, and the `timing` of its last pane. Times in µs."""

    rows: pa.Table
    windows: pa.Table | None = None
    watermark_us: int = 0


def advance(
    state: BucketState,
    came: pa.Table,
    keys: Sequence[str],
    columns: Sequence[str],
    window: StatementWindow,
    policy: EmitPolicy,
    *,
    watermark_us: int,
    now_us: int,
) -> tuple[pa.Table | None, BucketState]:
    """The events of the panes that are due, each with its window and pane, and `columns` of its own; None without any. And the
    state afterwards. `came` are the events of the micro-batch, in order."""
    rows = pa.concat_tables([state.rows, came]).combine_chunks() if came.num_rows else state.rows
    old = state.rows.num_rows
    times = rows.column(TIME).cast(pa.int64()).to_numpy()
    cell_rows, cell_ends = windows_of(times, window)
    known_from = np.where(cell_rows < old, state.watermark_us, watermark_us)
    alive = cell_ends + policy.late_us > known_from
    cell_rows, cell_ends = cell_rows[alive], cell_ends[alive]
    book = _Book.of(state.windows, rows, keys, cell_rows, cell_ends, now_us)
    groups, ends = book.groups, book.ends
    counts = groups.counts
    olds = np.add.reduceat(cell_rows[groups.order] < old, groups.starts) if len(counts) else counts
    past = ends <= watermark_us

    panes = _Panes(policy)
    closing = past & ~book.closed & (olds > 0)
    due = closing & ((olds > book.fired) if policy.mode == "discarding" else True)
    panes.add(book, due, olds, ON_TIME, now_us)
    book.closed |= past
    panes.add(book, past & (counts > np.maximum(olds, book.fired)), counts, LATE, now_us)
    fresh = counts - book.fired
    early = np.zeros(len(counts), np.bool_)
    if policy.early_events is not None:
        early |= fresh >= policy.early_events
    if policy.early_us is not None:
        early |= (fresh > 0) & (now_us - book.at >= policy.early_us)
    panes.add(book, ~past & early, counts, EARLY, now_us)

    stays = ends + policy.late_us > watermark_us
    kept_rows = np.unique(cell_rows[cell_ends + policy.late_us > watermark_us])
    after = BucketState(rows.take(pa.array(kept_rows)), book.table(stays), watermark_us)
    return panes.emitted(rows, columns, groups, cell_rows, ends, times, window), after


def next_due_us(state: BucketState, policy: EmitPolicy) -> int | None:
    """The watermark at which the state changes without further events; None for none."""
    if state.windows is None or not state.windows.num_rows:
        return None
    ends = state.windows.column(_END).to_numpy()
    closed = state.windows.column(_CLOSED).to_numpy()
    return int(np.where(closed, ends + policy.late_us, ends).min())


class _Book:
    """What is known of each window that has events: arrays by window, in the order of `groups`."""

    def __init__(self, groups: RowGroups, ends: Numbers, keys: pa.Table, now_us: int) -> None:
        count = len(ends)
        self.groups = groups
        self.ends = ends
        self.fired = np.zeros(count, np.int64)
        self.at = np.full(count, now_us, np.int64)
        self.index = np.zeros(count, np.int64)
        self.closed = np.zeros(count, np.bool_)
        self.timing = np.zeros(count, np.int64)
        self._keys = keys

    @classmethod
    def of(
        cls, known: pa.Table | None, rows: pa.Table, keys: Sequence[str], cells: Numbers, ends: Numbers, now_us: int
    ) -> _Book:
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
        book = cls(groups, ends[firsts], rows.select(keys).take(pa.array(cells[firsts])), now_us)
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


class _Panes:
    """Collects panes, then makes their events."""

    def __init__(self, policy: EmitPolicy) -> None:
        self._policy = policy
        self._parts: list[npt.NDArray[np.int64]] = []

    def add(self, book: _Book, due: Flags, upto: Numbers, timing: int, now_us: int) -> None:
        """A pane of each window that is `due`, with its events up to these counts."""
        which = np.flatnonzero(due)
        low = book.fired[which] if self._policy.mode == "discarding" else np.zeros(len(which), np.int64)
        if self._policy.mode == "retracting":
            again = which[book.fired[which] > 0]
            zeros = np.zeros(len(again), np.int64)
            self._part(again, zeros, book.fired[again], book.timing[again], book.index[again] - 1, 1)
        self._part(which, low, upto[which], np.full(len(which), timing), book.index[which], 0)
        book.fired[which] = upto[which]
        book.at[which] = now_us
        book.index[which] += 1
        book.timing[which] = timing

    def _part(
        self, which: Numbers, low: Numbers, high: Numbers, timing: Numbers, index: Numbers, retracts: int
    ) -> None:
        self._parts.append(np.stack([which, low, high, timing, index, np.full(len(which), retracts)]).astype(np.int64))

    def emitted(
        self,
        rows: pa.Table,
        columns: Sequence[str],
        groups: RowGroups,
        cell_rows: Numbers,
        ends: Numbers,
        times: Numbers,
        window: StatementWindow,
    ) -> pa.Table | None:
        which, low, high, timing, index, retracts = np.concatenate(self._parts, axis=1)
        if not len(which):
            return None
        if self._policy.last_events is not None:
            low = np.maximum(low, high - self._policy.last_events)
        sizes = high - low
        pane = np.repeat(np.arange(len(which)), sizes)
        within = np.arange(len(pane)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        taken = cell_rows[groups.order[groups.starts[which[pane]] + low[pane] + within]]
        if self._policy.last_us is not None:
            newest = np.maximum.reduceat(times[taken], np.cumsum(sizes) - sizes)
            stays = times[taken] > newest[pane] - self._policy.last_us
            pane, taken = pane[stays], taken[stays]
        stop = ends[which[pane]]
        bounds = [pa.array(each).cast(TIME_TYPE) for each in (stop - window.size_us, stop)]
        panes = [_TIMINGS.take(pa.array(timing[pane])), pa.array(index[pane]), pa.array(retracts[pane] == 1)]
        return (
            rows.select(list(columns))
            .take(pa.array(taken))
            .append_column(WINDOW, pa.StructArray.from_arrays(bounds, names=["start", "end"]))
            .append_column(PANE, pa.StructArray.from_arrays(panes, names=["timing", "index", "retraction"]))
        )
