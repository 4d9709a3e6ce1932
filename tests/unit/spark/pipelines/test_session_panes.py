"""Early, late and repeated results of sessions, held to a model that takes one event at a time, and to DuckDB."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.spark.pipelines.windows.columns import TIME
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.panes import BucketState
from anabranch.spark.pipelines.windows.session_panes import advance_sessions
from anabranch.spark.pipelines.windows.spans import StatementWindow
from tests.unit.spark.pipelines.panes import BATCHES, SCHEMA, Event, Pane, kept, panes_of, policies, table


@dataclass
class Session:
    """What the model knows of a session of a key. `panes` are those that stand, each as its start, end, timing, index and
    events."""

    key: str
    start: int
    end: int
    at: int
    events: list[Event] = field(default_factory=list)
    unseen: list[Event] = field(default_factory=list)
    panes: list[tuple[int, int, str, int, list[Event]]] = field(default_factory=list)
    index: int = 0
    closed: bool = False
    grew: bool = False


class Model:
    def __init__(self, gap: int, policy: EmitPolicy) -> None:
        self.gap = gap
        self.policy = policy
        self.sessions: list[Session] = []

    def fire(self, found: Session, timing: str, now: int) -> list[Pane]:
        panes: list[Pane] = []
        if self.policy.mode == "retracting":
            for start, end, was, index, events in found.panes:
                panes.append((found.key, start, end, was, index, True, kept(events, self.policy)))
        events = sorted(found.unseen if self.policy.mode == "discarding" else found.events, key=lambda each: each[1])
        panes.append((found.key, found.start, found.end, timing, found.index, False, kept(events, self.policy)))
        found.panes = [(found.start, found.end, timing, found.index, sorted(found.events, key=lambda each: each[1]))]
        found.unseen, found.at = [], now
        found.index += 1
        return panes

    def add(self, key: str, event: Event, now: int) -> None:
        """The event is a session, which is joined with each that it touches."""
        new = Session(key, event[0], event[0] + self.gap, now, [event], [event], grew=True)
        for other in [each for each in self.sessions if each.key == key]:
            if other.start <= new.end and new.start <= other.end:
                self.sessions.remove(other)
                new.start, new.end = min(new.start, other.start), max(new.end, other.end)
                new.at, new.index = min(new.at, other.at), max(new.index, other.index)
                new.events += other.events
                new.unseen += other.unseen
                new.panes += other.panes
        self.sessions.append(new)

    def batch(self, events: list[tuple[str, int, int]], watermark: int, now: int) -> list[Pane]:
        panes: list[Pane] = []
        for found in self.sessions:
            found.grew = False
            if found.end <= watermark and not found.closed:
                found.closed = True
                if self.policy.mode != "discarding" or found.unseen:
                    panes += self.fire(found, "on_time", now)
        self.sessions = [each for each in self.sessions if each.end + self.policy.late_us > watermark]
        for key, time, number in events:
            if time + self.gap + self.policy.late_us > watermark:
                self.add(key, (time, number), now)
        for found in self.sessions:
            found.closed = found.end <= watermark
            due = (self.policy.early_events is not None and len(found.unseen) >= self.policy.early_events) or (
                self.policy.early_us is not None and found.unseen and now - found.at >= self.policy.early_us
            )
            if found.closed and found.grew:
                panes += self.fire(found, "late", now)
            elif not found.closed and due:
                panes += self.fire(found, "early", now)
        return panes


@settings(max_examples=200)
@given(st.integers(1, 5), policies(late_us=st.integers(0, 8)), BATCHES)
@example(  # a late event joins a session that is closed with one that is open
    4, EmitPolicy(early_events=1, late_us=8, mode="retracting"), [([("a", 2), ("a", 9)], 0, 0), ([("a", 6)], 7, 0)]
)
def test_panes_of_sessions_are_those_of_the_model(
    gap: int, policy: EmitPolicy, batches: list[tuple[list[tuple[str, int]], int, int]]
) -> None:
    model, state, window = Model(gap, policy), BucketState(SCHEMA.empty_table()), StatementWindow("at", gap, 0)
    watermark = now = number = 0
    for events, step, passed in batches:
        watermark, now = watermark + step, now + passed
        numbered = [(key, time, number + each) for each, (key, time) in enumerate(events)]
        number += len(events)
        came = table(numbered) if numbered or not state.rows.num_rows else None
        found = advance_sessions(state, came, ["key"], ["key", "n"], window, policy, watermark_us=watermark, now_us=now)
        state = found.state
        assert sorted(panes_of(found.emitted, "session_window")) == sorted(model.batch(numbered, watermark, now))
        ends = [each.end + policy.late_us if each.closed else each.end for each in model.sessions]
        assert found.due_us == min(ends, default=None)


def sessions_by_duckdb(events: pa.Table, gap: int) -> Counter[tuple[str, int, int, tuple[int, ...]]]:
    """Sessions as (key, start, end, events)."""
    connection = duckdb.connect()
    connection.register("events", events.select(["key", "n"]).append_column("t", events.column(TIME).cast(pa.int64())))
    found = connection.execute(
        """
        SELECT key, min(t), max(t) + $gap, list_sort(list(n)) FROM (
            SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY key ORDER BY t, n) AS session FROM (
                SELECT *, coalesce(t - lag(t) OVER (PARTITION BY key ORDER BY t, n) > $gap, true) AS begins FROM events
            )
        ) GROUP BY key, session
        """,
        {"gap": gap},
    ).fetchall()
    return Counter((key, start, end, tuple(numbers)) for key, start, end, numbers in found)


@settings(max_examples=50)
@given(st.integers(1, 5), st.none() | st.integers(1, 3), BATCHES)
def test_results_less_retractions_are_the_sessions_of_duckdb(
    gap: int, early_events: int | None, batches: list[tuple[list[tuple[str, int]], int, int]]
) -> None:
    policy = EmitPolicy(early_events=early_events, late_us=1_000, mode="retracting")
    state, window = BucketState(SCHEMA.empty_table()), StatementWindow("at", gap, 0)
    net: Counter[tuple[str, int, int, tuple[int, ...]]] = Counter()
    numbered: list[tuple[str, int, int]] = []
    watermark = number = 0
    for events, step, _ in [*batches, ([], 100, 0)]:
        watermark += step
        came = [(key, time, number + each) for each, (key, time) in enumerate(events)]
        number += len(came)
        numbered += came
        found = advance_sessions(
            state, table(came), ["key"], ["key", "n"], window, policy, watermark_us=watermark, now_us=0
        )
        state = found.state
        for key, start, end, _, _, retracted, numbers in panes_of(found.emitted, "session_window"):
            net[key, start, end, tuple(sorted(numbers))] += -1 if retracted else 1
    assert +net == sessions_by_duckdb(table(numbered), gap)
    assert not -net
