"""What the models of panes share: policies, panes read from what is emitted, and which events count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.windows.columns import TIME
from anabranch.spark.pipelines.windows.emit import MODES, EmitPolicy

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64()), (TIME, TIME_TYPE)])

Event = tuple[int, int]
"""Its time and its number, by which events came."""
Pane = tuple[str, int, int, str, int, bool, tuple[int, ...]]
"""A key, a window's start and end, a pane's timing, index and whether it is retracted, and its events."""


def policies(*, late_us: st.SearchStrategy[int]) -> st.SearchStrategy[EmitPolicy]:
    """Any policy, with this lateness."""
    return st.builds(
        EmitPolicy,
        early_events=st.none() | st.integers(1, 3),
        early_us=st.none() | st.integers(1, 4),
        late_us=late_us,
        mode=st.sampled_from(MODES),
        last_events=st.none() | st.integers(1, 3),
        last_us=st.none() | st.integers(1, 4),
    )


EVENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 25)), max_size=8)
BATCHES = st.lists(st.tuples(EVENTS, st.integers(0, 6), st.integers(0, 5)), max_size=6)
"""The keys and times of the events of micro-batches, and by how much the watermark and the clock advance with each."""


def table(events: list[tuple[str, int, int]]) -> pa.Table:
    """Events as (key, time, number)."""
    columns: dict[str, Any] = {"key": [k for k, _, _ in events], "n": [n for _, _, n in events]}
    return pa.table({**columns, TIME: pa.array([t for _, t, _ in events], TIME_TYPE)}, SCHEMA)


def kept(events: list[Event], policy: EmitPolicy) -> tuple[int, ...]:
    """The numbers of those events that count by LAST."""
    if policy.last_events is not None:
        events = events[-policy.last_events :]
    if policy.last_us is not None:
        newest = max(time for time, _ in events)
        events = [each for each in events if each[0] > newest - policy.last_us]
    return tuple(number for _, number in events)


def panes_of(emitted: pa.Table | None, window: str) -> list[Pane]:
    """The panes of windows under this name."""
    if emitted is None:
        return []
    found: dict[Any, list[int]] = {}
    times = emitted.column(window).combine_chunks()
    bounds = [times.field(name).cast(pa.int64()).to_pylist() for name in ("start", "end")]
    names = {field.name for field in times.type}
    firsts = times.field("first").to_pylist() if "first" in names else [None] * len(times)
    for row, *where in zip(emitted.select(["key", "n", "pane"]).to_pylist(), firsts, *bounds, strict=True):
        found.setdefault((*where, row["key"], *row["pane"].values()), []).append(row["n"])
    return [
        (key, start, end, timing, index, retracted, tuple(numbers))
        for (_, start, end, key, timing, index, retracted), numbers in found.items()
    ]
