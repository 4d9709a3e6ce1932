"""Decides which panes of sessions are due, and of which events each is made. Pure.

As in Spark, a session of a key is a run of events with no pause longer than the gap. It lasts from its first event to
one gap after its last. It is closed when the watermark reaches that end, and forgotten `late_us` later; an event whose
own gap ended that long before the watermark comes too late, even if its session is still kept. Any other event extends
sessions, joins them, and opens them again if they then end after the watermark: such a session has one more pane on
time. Panes that were emitted of parts of a session stand until its next pane, which takes back all of them where that
is asked for.

As with other windows, sessions that the watermark of a micro-batch has reached close before the batch's events are
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.spark.pipelines.windows.columns import SESSION_WINDOW, TIME
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.grouping import Numbers, RowGroups, codes_of, group
from anabranch.spark.pipelines.windows.pane_rows import EARLY, LATE, ON_TIME, Flags, Panes, early_due, pane_rows
from anabranch.spark.pipelines.windows.panes import Advanced, BucketState
from anabranch.spark.pipelines.windows.spans import StatementWindow

__all__ = ["advance_sessions"]

# What is known of each event: when it came, or when its session had its last pane; and of that pane the index (-1: it was in
# none), the timing and the bounds. In µs.
_AT, _INDEX, _TIMING, _START, _STOP = (f"_anabranch_pane_{name}" for name in ("at", "index", "timing", "start", "stop"))
_NONE = -1


def advance_sessions(
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
    """As `panes.advance`, for sessions. What is known of them is kept with their events; `state.windows` is not used."""
    rows = state.rows
    if came is not None:
        in_time = came.column(TIME).cast(pa.int64()).to_numpy() + window.size_us + policy.late_us > watermark_us
        rows = _with_pane_columns(rows, came.filter(pa.array(in_time)), now_us)
    book = _SessionBook.of(rows, codes_of([rows.column(key) for key in keys]), window.size_us)
    panes: list[Panes] = []

    def fire(sessions: _Sessions, due: Flags, timing: int) -> None:
        panes.extend(book.fire(sessions, due, timing, policy, now_us))

    # The sessions of the events before this micro-batch.
    old = np.arange(state.rows.num_rows)
    before = book.sessions(old)
    closing = (before.stop_us <= watermark_us) & (before.stop_us > state.watermark_us)
    fire(before, closing & ((before.fresh > 0) if policy.mode == "discarding" else True), ON_TIME)
    alive = np.zeros(rows.num_rows, np.bool_)
    alive[before.rows] = np.repeat(before.stop_us + policy.late_us > watermark_us, before.counts)
    alive[len(old) :] = True

    which = np.flatnonzero(alive)
    after = book.sessions(which)
    past = after.stop_us <= watermark_us
    newest = np.maximum.reduceat(after.rows, after.starts) if len(after.rows) else after.rows
    fire(after, past & (newest >= len(old)), LATE)
    fire(after, ~past & early_due(policy, after.fresh, now_us - after.at), EARLY)

    dues = np.where(past, after.stop_us + policy.late_us, after.stop_us)
    emitted = pane_rows(rows, columns, panes, policy, window=SESSION_WINDOW)
    kept = BucketState(book.table(rows).take(pa.array(which)), watermark_us=watermark_us)
    return Advanced(emitted, kept, int(dues.min()) if len(dues) else None)


def _with_pane_columns(old: pa.Table, came: pa.Table, now_us: int) -> pa.Table:
    fresh = {_AT: now_us, _INDEX: _NONE, _TIMING: 0, _START: 0, _STOP: 0}
    for name, value in fresh.items():
        came = came.append_column(name, pa.array(np.full(came.num_rows, value, np.int64)))
    return pa.concat_tables([old, came]).combine_chunks() if old.num_rows else came


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Sessions of several keys: `rows` are the indices of their events, session after session, in each as they came. The others
    are arrays by session: where it begins in `rows`, how many it has, its bounds, since when it waits for a pane (`at`), how
    many of its events were in none (`fresh`), and the `index` of its next pane."""

    rows: Numbers
    starts: Numbers
    counts: Numbers
    start_us: Numbers
    stop_us: Numbers
    at: Numbers
    fresh: Numbers
    index: Numbers


@dataclass(frozen=True, slots=True)
class _SessionBook:
    """What is known of events: arrays by event. `of_key` is equal for events of one key."""

    times: Numbers
    of_key: Numbers
    gap_us: int
    at: Numbers
    index: Numbers
    timing: Numbers
    start_us: Numbers
    stop_us: Numbers

    @classmethod
    def of(cls, rows: pa.Table, of_key: Numbers, gap_us: int) -> _SessionBook:
        known = (rows.column(name).to_numpy().copy() for name in (_AT, _INDEX, _TIMING, _START, _STOP))
        return cls(rows.column(TIME).cast(pa.int64()).to_numpy(), of_key, gap_us, *known)

    def table(self, rows: pa.Table) -> pa.Table:
        """The rows with what is known now."""
        columns = (self.at, self.index, self.timing, self.start_us, self.stop_us)
        for name, column in zip((_AT, _INDEX, _TIMING, _START, _STOP), columns, strict=True):
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(column))
        return rows

    def sessions(self, which: Numbers) -> _Sessions:
        """The sessions of these events."""
        times, keys = self.times[which], self.of_key[which]
        order = np.lexsort((times, keys))
        sorted_times, sorted_keys = times[order], keys[order]
        begins = np.ones(len(which), np.bool_)
        begins[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (np.diff(sorted_times) > self.gap_us)
        session = np.empty(len(which), np.int64)
        session[order] = np.cumsum(begins) - 1
        groups = group(session)
        rows = which[groups.order]

        def reduced(by: np.ufunc, values: Numbers) -> Numbers:
            found: Numbers = by.reduceat(values, groups.starts) if len(values) else np.empty(0, np.int64)
            return found

        return _Sessions(
            rows,
            groups.starts,
            groups.counts,
            reduced(np.minimum, self.times[rows]),
            reduced(np.maximum, self.times[rows]) + self.gap_us,
            reduced(np.minimum, self.at[rows]),
            reduced(np.add, (self.index[rows] == _NONE).astype(np.int64)),
            reduced(np.maximum, self.index[rows]) + 1,
        )

    def fire(self, sessions: _Sessions, due: Flags, timing: int, policy: EmitPolicy, now_us: int) -> Iterator[Panes]:
        """A pane of each session that is due."""
        which = np.flatnonzero(due)
        of_session = np.repeat(np.arange(len(due)), sessions.counts)
        chosen = due[of_session]
        rows, of_session = sessions.rows[chosen], of_session[chosen]
        if not len(rows):
            return
        if policy.mode == "retracting":
            yield self._retractions(rows, of_session)
        taken = self.index[rows] == _NONE if policy.mode == "discarding" else np.ones(len(rows), np.bool_)
        sizes = sessions.fresh[which] if policy.mode == "discarding" else sessions.counts[which]
        bounds = sessions.start_us[which], sessions.stop_us[which]
        yield Panes(rows[taken], sizes, *bounds, np.full(len(which), timing), sessions.index[which])
        self.at[rows] = now_us
        self.index[rows] = sessions.index[of_session]
        self.timing[rows] = timing
        self.start_us[rows] = sessions.start_us[of_session]
        self.stop_us[rows] = sessions.stop_us[of_session]

    def _retractions(self, rows: Numbers, of_session: Numbers) -> Panes:
        """The panes that these events were in, as retractions. In one session each has its own start."""
        emitted = self.index[rows] != _NONE
        rows, of_session = rows[emitted], of_session[emitted]
        starts = np.unique(self.start_us[rows], return_inverse=True)[1].astype(np.int64)
        groups: RowGroups = group(of_session * (len(rows) + 1) + starts)
        members = rows[groups.order]
        first = members[groups.starts]
        return Panes(
            members,
            groups.counts,
            self.start_us[first],
            self.stop_us[first],
            self.timing[first],
            self.index[first],
            retracts=True,
        )
