"""Windows of a number of events: which are complete, and which events stay open. Pure.

The windows of a key are the events 0 to `size`, `step` to `step + size`, and so on, as they come. A window is complete
with its last event. Each event is kept until the last of its windows is complete; of a key without open events nothing
is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.spark.pipelines.windows.grouping import Numbers, RowGroups, codes_of, group

__all__ = ["CompletedWindows", "CountWindow", "complete_windows", "full_windows", "open_rows"]


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of `size` events, one beginning every `step` events: tumbling if both are equal."""

    size: int
    step: int


@dataclass(frozen=True, slots=True)
class CompletedWindows:
    """What has become of rows: `rows` are those of complete windows, window after window, `size` each, with all windows of a
    key in their order; `open` are those that are kept, in the order in which they came."""

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
    """The rows of which there are windows that are not complete, in the order in which they came."""
    stays = groups.positions >= np.repeat(full * window.step, groups.counts)
    kept: Numbers = np.sort(groups.order[stays])
    return kept


def _members(starts: Numbers, full: Numbers, window: CountWindow) -> Numbers:
    """The places of all events of the complete windows, of which each group has `full`."""
    within = np.arange(full.sum()) - np.repeat(np.cumsum(full) - full, full)
    firsts = np.repeat(starts, full) + within * window.step
    members: Numbers = (firsts[:, None] + np.arange(window.size)).ravel()
    return members
