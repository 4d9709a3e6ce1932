"""`anabranch queries top`: how deployed queries do, as a table and as JSON."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.state.query import QueryStandby
from anabranch.deployments import hosting
from anabranch.export.metrics import samples
from anabranch.model.ids import Micros
from tests.cli.kit import Line
from tests.hosted import Hosted

PROGRESS = {
    "target": "out/means",
    "state": "running",
    "batch": 7,
    "rows_per_s": 1234.4,
    "lag": 4321,
    "lag_s": 2.5,
    "run_late": 3,
    "run_shed": 40,
    "written": 80,
    "watermark_us": 1_767_225_600_000_000,
    "state_rows": 17,
    "state_bytes": 2048,
    "batch_ms": 1500,
    "operators": [
        {
            "operator": "stateStoreSave",
            "rows": 17,
            "bytes": 2048,
            "updated": 5,
            "commit_ms": 12,
            "dropped": 3,
        }
    ],
    "segments": [
        {
            "stream": "iot/sensors",
            "segment": "0.0",
            "lag": 4321,
            "event_time_us": 1_767_225_600_000_000,
            "skew_s": 1234.5,
        },
        {"stream": "iot/sensors", "segment": "0.1", "lag": 0, "event_time_us": None, "skew_s": None},
    ],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        made.queries.deploy("means", "…")
        made.queries.deploy("new", "…")
        hosted = Hosted(made, "means")
        hosted.prepare("out/means", progress=(PROGRESS,))
        hosted.report("running")
        yield made


def test_each_statement_and_each_operator_has_a_row(store: ab.Store) -> None:
    line = Line(Path(store.url))
    first, means, new = line("queries", "top").out.splitlines()
    assert first.split("  ")[0] == "QUERY"
    assert " ".join(means.split()) == (
        "means running - out/means 1,234 4,321 2.5 s 2026-01-01T00:00:00Z 17 2.0 kB 3 40 7 1,500 ms"
    )
    assert new.split() == ["new", "waiting", *"-" * 12]
    _, save = line("queries", "top", "means", "--operators", "--once").out.splitlines()
    assert " ".join(save.split()) == "means out/means stateStoreSave 17 2.0 kB 5 12 ms 3"
    (found,) = line("queries", "top", "--json").json
    assert (found["query"], found["lag_s"], found["watermark"]) == ("means", 2.5, "2026-01-01T00:00:00Z")
    assert found["operators"][0]["dropped"] == 3
    _, first, second = line("queries", "top", "means", "--segments", "--once").out.splitlines()
    assert " ".join(first.split()) == "means out/means iot/sensors 0.0 4,321 2026-01-01T00:00:00Z 1,234.5 s"
    assert second.split() == ["means", "out/means", "iot/sensors", "0.1", "0", "-", "-"]
    assert found["segments"][0]["event_time"] == "2026-01-01T00:00:00Z"
    assert "event_time_us" not in found["segments"][0]
    assert "not both" in line.refused("queries", "top", "--segments", "--operators")
    assert "query 'none' not found" in line.refused("queries", "top", "none")
    assert "means" in line("queries", "show", "means").out


def test_the_state_of_a_hot_standby_is_shown(store: ab.Store) -> None:
    line = Line(Path(store.url))
    store.queries.deploy("means", "…", standby="hot")

    def shown() -> list[str]:
        _, means, _ = line("queries", "top").out.splitlines()
        _, listed, _ = line("queries", "list").out.splitlines()
        return [means.split()[2], listed.split("hot, ")[1].split()[0]]

    assert shown() == ["none", "none"]
    until = Micros(store.runtime.clock.now() + 60_000_000)
    (row, _) = hosting.queries(store.catalog)
    hosting.refuse(store.catalog, row, "2@host", "full", now=store.runtime.clock.now(), standby=True)
    reason = "host 2@host has no room: full"
    assert reason in line("queries", "show", "means").out
    assert f"query 'means' has no hot standby: {reason}" in line("queries", "list").err
    assert line("queries", "show", "means", "--json").json["standby_refused"] == reason
    standby = QueryStandby("b", 2, "host", until, row.change)
    assert hosting.claim_standby(store.catalog, "means", standby, now=store.runtime.clock.now())
    assert shown() == ["behind", "behind"]
    hosting.update_standby(store.catalog, "means", "b", partial(replace, ready=True))
    assert shown() == ["ready", "ready"]


def test_the_metrics_of_a_query_are_those_of_its_last_report(store: ab.Store) -> None:
    found = {(each.metric, *(value for _, value in each.labels)): each.value for each in samples(store)}
    statement = ("means", "out/means")
    assert found["anabranch_pipeline_lag_seconds", *statement] == 2.5
    assert found["anabranch_pipeline_watermark_seconds", *statement] == 1_767_225_600
    assert found["anabranch_pipeline_batch_seconds", *statement] == 1.5
    assert found["anabranch_pipeline_late_events", *statement] == 3
    assert found["anabranch_pipeline_shed_events", *statement] == 40
    assert found["anabranch_pipeline_state_rows", *statement, "1 stateStoreSave"] == 17
    assert found["anabranch_pipeline_dropped_rows", *statement, "1 stateStoreSave"] == 3
    assert sum(value for (metric, *_), value in found.items() if metric == "anabranch_query_state") == 2
    assert found["anabranch_query_state", "means", "running"] == found["anabranch_query_state", "new", "waiting"] == 1


@pytest.mark.parametrize("columns", [80, 200])
def test_on_a_terminal_the_table_is_live_until_ctrl_c(store: ab.Store, columns: int) -> None:
    terminal, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "anabranch.cli.main",
        "queries",
        "top",
        "--interval",
        "100ms",
        "--store",
        store.url,
    ]
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"1,234") < 3:  # it is drawn again and again
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    os.close(terminal)
    assert all(text in shown for text in (b"means", b"running", b"4,321", b"2.5 s", b"QUERY", b"ROWS/S", b"LAG"))
    assert (b"no room for" in shown) == (columns == 80)
    assert "…".encode() not in shown, "no text is cut off"
