"""Early and repeated results of windows of a number of events, held to a model that takes one window at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.model.ids import StreamId
from anabranch.model.pointer import EventPointer
from anabranch.spark.pipelines.windows.columns import OFFSET, SEGMENT
from anabranch.spark.pipelines.windows.count import CountWindow, advance_counts
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from tests.unit.spark.pipelines.panes import BATCHES, Event, Pane, kept, panes_of, policies, table


@dataclass
class Window:
    """What the model knows of a window that has events: where it begins among the events of its key, and its last pane."""

    begin: int
    at: int
    fired: int = 0
    index: int = 0


class Model:
    def __init__(self, window: CountWindow, policy: EmitPolicy) -> None:
        self.window = window
        self.policy = policy
        self.events: dict[str, list[Event]] = {}
        self.open: dict[str, list[Window]] = {}

    def pane(self, key: str, found: Window, low: int, high: int, timing: str, index: int, retracted: bool) -> Pane:
        own = self.events[key][found.begin : found.begin + high]
        times = [time for time, _ in own]
        return (key, min(times), max(times), timing, index, retracted, kept(own[low:], self.policy))

    def batch(self, events: list[tuple[str, int, int]], now: int) -> list[Pane]:
        panes: list[Pane] = []
        for key, time, number in events:
            own = self.events.setdefault(key, [])
            if len(own) % self.window.step == 0:
                self.open.setdefault(key, []).append(Window(len(own), now))
            own.append((time, number))
        for key, windows in self.open.items():
            for found in list(windows):
                count = min(len(self.events[key]) - found.begin, self.window.size)
                early = (self.policy.early_events is not None and count - found.fired >= self.policy.early_events) or (
                    self.policy.early_us is not None and count > found.fired and now - found.at >= self.policy.early_us
                )
                if count < self.window.size and not early:
                    continue
                if self.policy.mode == "retracting" and found.fired:
                    panes.append(self.pane(key, found, 0, found.fired, "early", found.index - 1, True))
                low = found.fired if self.policy.mode == "discarding" else 0
                timing = "on_time" if count == self.window.size else "early"
                panes.append(self.pane(key, found, low, count, timing, found.index, False))
                found.fired, found.at, found.index = count, now, found.index + 1
                if count == self.window.size:
                    windows.remove(found)
        return panes


@st.composite
def windows(draw: st.DrawFn) -> CountWindow:
    size = draw(st.integers(1, 5))
    return CountWindow(size, draw(st.integers(1, size)))


def located(events: list[tuple[str, int, int]]) -> pa.Table:
    """The events, each at the offset that is its number."""
    rows = table(events).append_column(SEGMENT, pa.array(np.zeros(len(events), np.int64)))
    return rows.append_column(OFFSET, rows.column("n"))


@settings(max_examples=200)
@given(windows(), policies(late_us=st.just(0)), BATCHES)
def test_panes_of_windows_of_events_are_those_of_the_model(
    window: CountWindow, policy: EmitPolicy, batches: list[tuple[list[tuple[str, int]], int, int]]
) -> None:
    model, known, now, number = Model(window, policy), None, 0, 0
    for events, _, passed in batches:
        now += passed
        numbered = [(key, time, number + each) for each, (key, time) in enumerate(events)]
        number += len(events)
        if not numbered and known is None:
            continue
        came = located(numbered) if numbered else None
        found = advance_counts(known, came, ["key"], ["key", "n"], window, policy, stream=StreamId(7), now_us=now)
        known = found.open if found.open.num_rows else None
        assert sorted(panes_of(found.emitted, "count_window")) == sorted(model.batch(numbered, now))
        assert set(firsts(found.emitted)) <= {
            (key, str(EventPointer.parse(f"{7:016x}{0:016x}{own[begin][1]:016x}")))
            for key, own in model.events.items()
            for begin in range(0, len(own), window.step)
        }


def firsts(emitted: pa.Table | None) -> list[tuple[str, str]]:
    if emitted is None:
        return []
    pointers = emitted.column("count_window").combine_chunks().field("first").to_pylist()
    return list(zip(emitted.column("key").to_pylist(), pointers, strict=True))


def test_results_of_one_window_name_its_first_event() -> None:
    policy, window, known = EmitPolicy(early_events=1), CountWindow(3, 2), None
    found = []
    for number in range(5):
        came = located([("a", 10 - number, number)])
        advanced = advance_counts(known, came, ["key"], ["key", "n"], window, policy, stream=StreamId(7), now_us=0)
        known = advanced.open
        emitted = advanced.emitted
        assert emitted is not None
        panes = emitted.column("pane").to_pylist()
        found += [
            (int(first[-16:], 16), pane["index"]) for (_, first), pane in zip(firsts(emitted), panes, strict=True)
        ]
    assert sorted(set(found)) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2), (4, 0)]
