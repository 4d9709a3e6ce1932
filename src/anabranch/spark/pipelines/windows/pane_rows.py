"""Panes, and the events of which each is made. Pure.

A *pane*, as in Beam, is one result of a window: with a timing (early, on time, late), an index, and, if it takes back an earlier
one, marked as a retraction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.windows.columns import PANE, TIME
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.grouping import Numbers, RowGroups

__all__ = ["EARLY", "LATE", "ON_TIME", "Flags", "PaneBook", "Panes", "early_due", "members_of", "pane_rows"]

EARLY, ON_TIME, LATE = 0, 1, 2
_TIMINGS: Final = pa.array(["early", "on_time", "late"])

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Panes:
    """Some panes. `members` are the indices of the events of all, pane after pane, in each as they came, before any are left
    out by LAST; `sizes` is how many of these each pane has, at least one. The others are arrays by pane, too: its window's
    bounds in µs, its `timing`, its `index`, and for windows of a number of events the pointer of the `first` of these."""

    members: Numbers
    sizes: Numbers
    start_us: Numbers
    stop_us: Numbers
    timing: Numbers
    index: Numbers
    retracts: bool = False
    first: Sequence[str] | None = None


class PaneBook:
    """What is known of windows: arrays by window, of how many events the last pane was made (0: it had none), when that was, the
    index of the next pane, and the timing of the last one."""

    fired: Numbers
    at: Numbers
    index: Numbers
    timing: Numbers

    def panes(
        self, which: Numbers, low: Numbers, high: Numbers, timing: Numbers, index: Numbers, *, retracts: bool
    ) -> Panes:
        """A pane of each of these windows, of its events from the place `low` to before `high`."""
        raise NotImplementedError

    def fire(
        self, which: Numbers, counts: Numbers, timing: Numbers, policy: EmitPolicy, now_us: int
    ) -> Iterator[Panes]:
        """A pane of each of these windows, with its first events, as many as `counts` has by window."""
        low = self.fired[which] if policy.mode == "discarding" else np.zeros(len(which), np.int64)
        if policy.mode == "retracting":
            again = which[self.fired[which] > 0]
            low_again, index = np.zeros(len(again), np.int64), self.index[again] - 1
            yield self.panes(again, low_again, self.fired[again], self.timing[again], index, retracts=True)
        yield self.panes(which, low, counts[which], timing, self.index[which], retracts=False)
        self.fired[which] = counts[which]
        self.at[which] = now_us
        self.index[which] += 1
        self.timing[which] = timing


def early_due(policy: EmitPolicy, fresh: Numbers, waited_us: Numbers) -> Flags:
    """Which open windows have an early pane: `fresh` are their new events, `waited_us` the time since the last pane, or since
    the first event."""
    due = np.zeros(len(fresh), np.bool_)
    if policy.early_events is not None:
        due |= fresh >= policy.early_events
    if policy.early_us is not None:
        due |= (fresh > 0) & (waited_us >= policy.early_us)
    return due


def members_of(groups: RowGroups, which: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """For each of the groups `which`, the indices of its rows at the positions from `low` to before `high`."""
    sizes = high - low
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members: Numbers = groups.order[np.repeat(groups.starts[which] + low, sizes) + within]
    return members


def pane_rows(
    rows: pa.Table, columns: Sequence[str], found: Sequence[Panes], policy: EmitPolicy, *, window: str
) -> pa.Table | None:
    """The events of panes, one after another: the `columns` of `rows`, the window under this name and `PANE`; None without
    any."""
    if not any(len(each.members) for each in found):
        return None
    members = np.concatenate([each.members for each in found])
    sizes = np.concatenate([each.sizes for each in found])
    pane = np.repeat(np.arange(len(sizes)), sizes)
    begins = np.cumsum(sizes) - sizes
    stays = np.ones(len(members), np.bool_)
    if policy.last_events is not None:
        stays &= np.repeat(begins + sizes, sizes) - np.arange(len(members)) <= policy.last_events
    if policy.last_us is not None:
        times = rows.column(TIME).cast(pa.int64()).to_numpy()[members]
        newest = np.maximum.reduceat(np.where(stays, times, times.min()), begins)
        stays &= times > newest[pane] - policy.last_us
    pane, members = pane[stays], members[stays]
    taken = rows.select(list(columns)).take(pa.array(members))
    of_pane = pa.array(pane)
    return taken.append_column(window, _windows(found).take(of_pane)).append_column(PANE, _panes(found).take(of_pane))


def _windows(found: Sequence[Panes]) -> pa.StructArray:
    bounds = [np.concatenate([each.start_us for each in found]), np.concatenate([each.stop_us for each in found])]
    fields = {name: pa.array(each).cast(TIME_TYPE) for name, each in zip(("start", "end"), bounds, strict=True)}
    if found[0].first is not None:
        fields["first"] = pa.array([text for each in found for text in each.first or ()], pa.string())
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def _panes(found: Sequence[Panes]) -> pa.StructArray:
    timing = np.concatenate([each.timing for each in found])
    index = np.concatenate([each.index for each in found])
    retracts = np.concatenate([np.full(len(each.sizes), each.retracts) for each in found])
    return pa.StructArray.from_arrays(
        [_TIMINGS.take(pa.array(timing)), pa.array(index), pa.array(retracts)], names=["timing", "index", "retraction"]
    )
