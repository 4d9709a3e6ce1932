"""Early, late and repeated results of windows, held to a model that knows one event and one window at a time, and the SQL that
asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.windows.clauses import WindowedQuery
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.panes import BucketState, advance
from anabranch.spark.pipelines.windows.spans import StatementWindow
from tests.unit.spark.pipelines.panes import BATCHES, SCHEMA, Pane, kept, panes_of, policies, table


@dataclass
class Window:
    """What the model knows of a window of a key: its events as (time, number)."""

    events: list[tuple[int, int]] = field(default_factory=list)
    fired: int = 0
    at: int = 0
    index: int = 0
    timing: str = ""
    closed: bool = False


class Model:
    def __init__(self, window: StatementWindow, policy: EmitPolicy) -> None:
        self.window = window
        self.policy = policy
        self.windows: dict[tuple[str, int], Window] = {}

    def fire(self, key: str, end: int, timing: str, now: int) -> list[Pane]:
        found, panes = self.windows[key, end], list[Pane]()
        start = end - self.window.size_us
        if self.policy.mode == "retracting" and found.fired:
            earlier = kept(found.events[: found.fired], self.policy)
            panes.append((key, start, end, found.timing, found.index - 1, True, earlier))
        events = found.events[found.fired if self.policy.mode == "discarding" else 0 :]
        panes.append((key, start, end, timing, found.index, False, kept(events, self.policy)))
        found.fired, found.at, found.timing = len(found.events), now, timing
        found.index += 1
        return panes

    def batch(self, events: list[tuple[str, int, int]], watermark: int, now: int) -> list[Pane]:
        panes: list[Pane] = []
        for (key, end), found in self.windows.items():
            if end <= watermark and not found.closed:
                found.closed = True
                if self.policy.mode != "discarding" or len(found.events) > found.fired:
                    panes += self.fire(key, end, "on_time", now)
        late = set()
        for key, time, number in events:
            for start in range(time - self.window.size_us + 1, time + 1):
                end = start + self.window.size_us
                fits = (start - self.window.start_us) % self.window.slide_us == 0
                if fits and end + self.policy.late_us > watermark:
                    found = self.windows.setdefault((key, end), Window(at=now))
                    found.events.append((time, number))
                    if end <= watermark:
                        found.closed = True
                        late.add((key, end))
        for (key, end), found in self.windows.items():
            fresh = len(found.events) - found.fired
            if (key, end) in late:
                panes += self.fire(key, end, "late", now)
            elif not found.closed and (
                (self.policy.early_events is not None and fresh >= self.policy.early_events)
                or (self.policy.early_us is not None and fresh and now - found.at >= self.policy.early_us)
            ):
                panes += self.fire(key, end, "early", now)
        self.windows = {each: w for each, w in self.windows.items() if each[1] + self.policy.late_us > watermark}
        return panes


@st.composite
def windows(draw: st.DrawFn) -> StatementWindow:
    size = draw(st.integers(1, 6))
    slide = draw(st.integers(1, size))
    return StatementWindow("at", size, slide, draw(st.integers(1 - slide, slide - 1)))


@settings(max_examples=150)
@given(windows(), policies(late_us=st.integers(0, 6)), BATCHES)
def test_panes_are_those_of_the_model(
    window: StatementWindow, policy: EmitPolicy, batches: list[tuple[list[tuple[str, int]], int, int]]
) -> None:
    model, state = Model(window, policy), BucketState(SCHEMA.empty_table())
    watermark = now = number = 0
    for events, step, passed in batches:
        watermark, now = watermark + step, now + passed
        numbered = [(key, time, number + each) for each, (key, time) in enumerate(events)]
        number += len(events)
        came = table(numbered) if numbered else None
        found = advance(state, came, ["key"], ["key", "n"], window, policy, watermark_us=watermark, now_us=now)
        state = found.state
        assert sorted(panes_of(found.emitted, "window")) == sorted(model.batch(numbered, watermark, now))
        ends = [end + policy.late_us if found.closed else end for (_, end), found in model.windows.items()]
        assert found.due_us == min(ends, default=None)


def windowed(query: str) -> WindowedQuery:
    (statement,) = parse(f"DECLARE PARAMETER often INTERVAL DEFAULT '5 seconds';\nCREATE STREAM s.out AS {query}")
    assert statement.windowed is not None
    return statement.windowed


@pytest.mark.parametrize(
    ("clause", "policy"),
    [
        ("EARLY EVERY 100 EVENTS", EmitPolicy(early_events=100)),
        ("EARLY EVERY '10 seconds'", EmitPolicy(early_us=10_000_000)),
        ("EARLY EVERY :often", EmitPolicy(early_us=5_000_000)),
        ("early every 7 events, early every interval '1 minute'", EmitPolicy(early_events=7, early_us=60_000_000)),
        ("LATE WITHIN '1 hour' RETRACTING", EmitPolicy(late_us=3_600_000_000, mode="retracting")),
        ("DISCARDING, LAST 10 EVENTS", EmitPolicy(mode="discarding", last_events=10)),
        ("ACCUMULATING, LAST '10 seconds'", EmitPolicy(last_us=10_000_000)),
    ],
)
def test_the_clause_says_when_results_come_and_what_they_are_made_of(clause: str, policy: EmitPolicy) -> None:
    query = "SELECT window.end AS e, pane.index AS i, count(*) AS n FROM STREAM s.a GROUP BY k, window(at, '1 minute')"
    found = windowed(f"{query} HAVING window(at, '1 minute').end > '2020-01-01' EMIT {clause}")
    assert found.emit == policy
    assert found.window == StatementWindow("at", 60_000_000, 60_000_000)
    # Of the results of a key in a micro-batch, a retraction comes before the one that takes its place.
    order = ", k AS _anabranch_key_0, struct(pane.index, pane.retraction) AS _anabranch_order"
    assert found.results == (
        f"SELECT window.end AS e, pane.index AS i, count(*) AS n{order if policy.mode == 'retracting' else ''} "
        "FROM anabranch_windows AS `a` GROUP BY k, window, pane HAVING window.end > '2020-01-01'"
    )


@pytest.mark.parametrize(
    ("call", "name"), [("session_window(at, '1 minute')", "session_window"), ("count_window(5, 2)", "count_window")]
)
def test_sessions_and_windows_of_events_have_panes_too(call: str, name: str) -> None:
    found = windowed(f"SELECT {name}.end AS e, count(*) AS n FROM STREAM s.a GROUP BY k, {call} EMIT RETRACTING")
    assert found.emit == EmitPolicy(mode="retracting")
    assert found.results == (
        f"SELECT {name}.end AS e, count(*) AS n, k AS _anabranch_key_0, "
        "struct(pane.index, pane.retraction) AS _anabranch_order "
        f"FROM anabranch_windows AS `a` GROUP BY k, {name}, pane"
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("GROUP BY window(at, '1 minute') EMIT", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT EARLY", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT EARLY LATE WITHIN '1 minute'", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT LATE LAST 5 EVENTS", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT EARLY EVERY 0 EVENTS", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT EARLY EVERY 10", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT EARLY EVERY 'soon'", "not an interval"),
        ("GROUP BY window(at, '1 minute') EMIT LATE WITHIN '0 seconds'", "more than 0"),
        ("GROUP BY window(at, '1 minute') EMIT LATE WITHIN 10 EVENTS", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT DISCARDING, RETRACTING", "twice the same"),
        ("GROUP BY window(at, '1 minute') EMIT DISCARDING,", "expected after EMIT"),
        ("GROUP BY window(at, '1 minute') EMIT CHANGES", "expected after EMIT"),
        (
            "GROUP BY window(at, '1 minute'), session_window(at, '1 minute') EMIT DISCARDING",
            "exactly one kind of window",
        ),
        ("GROUP BY k EMIT DISCARDING", "exactly one kind of window"),
        ("GROUP BY count_window(5) EMIT LATE WITHIN '1 minute'", "LATE WITHIN requires windows of time"),
        ("GROUP BY count_window(5), window(at, '1 minute') EMIT DISCARDING", "both count_window and other windows"),
    ],
)
def test_what_emit_can_not_do_is_refused_at_its_line(query: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message) as refused:
        windowed(f"SELECT count(*) AS n FROM STREAM s.a {query}")
    assert refused.value.line == 2
