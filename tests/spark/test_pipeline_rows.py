"""Pipelines as rows of the catalog: who may run one, who takes over, what is refused. No Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import pytest

import anabranch as ab
from anabranch.catalog.port import Catalog, Subject, Writing
from anabranch.errors import (
    AppendUncertain,
    Conflict,
    InvalidArgument,
    InvalidSql,
    PipelineNotFound,
    PipelineRunning,
)
from anabranch.spark.pipelines import admin as pipeline_admin
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.heartbeat import Heartbeat
from anabranch.spark.pipelines.plan import WATERMARK_US, plan
from anabranch.spark.pipelines.process import is_running, started_us
from anabranch.spark.pipelines.record import LEASE_US, PipelineHolder, PipelineRow, Restart
from tests.waiting import state_of, until

SQL = "CREATE STREAM s.out AS SELECT a, count(*) AS n FROM STREAM s.raw GROUP BY window(at, '1 minute'), a"
NOW = 1_700_000_000_000_000
ME = row_of.this_process("me")
OTHER = PipelineHolder(os.getpid(), socket.gethostname(), "other")
ELSEWHERE = PipelineHolder(1, "another-host", "elsewhere")


@pytest.fixture
def store() -> Iterator[ab.Store]:
    with ab.connect("memory://") as opened:
        yield opened


def claim(
    store: ab.Store, holder: PipelineHolder = ME, *, sql: str = SQL, now: int = NOW, restart: Restart | None = None
) -> PipelineRow:
    return row_of.claim(store.catalog, "p", sql, [s.output for s in plan(sql)], holder, now=now, restart=restart)


def dead_process() -> PipelineHolder:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return PipelineHolder(child.pid, socket.gethostname(), "dead")


def test_a_claimed_pipeline_is_running_and_survives_the_way_through_json(store: ab.Store) -> None:
    row = claim(store)
    assert row_of.find(store.catalog, "p") == row
    assert row.state_at(NOW) == "running"
    assert row.outputs[0].target == "s/out"
    assert row.outputs[0].sources == ("s/raw",)
    assert [each.name for each in row_of.rows(store.catalog)] == ["p"]


class LosesAnAnswer:
    """A catalog whose first transaction takes place, but whose caller is not told."""

    def __init__(self, inner: Catalog) -> None:
        self._inner = inner
        self.lost = False

    @contextmanager
    def writing(self, on: Subject | None = None) -> Iterator[Writing]:
        with self._inner.writing(on) as txn:
            yield txn
        if not self.lost:
            self.lost = True
            raise AppendUncertain("the test lost the answer to this transaction")


def test_a_heartbeat_goes_on_when_the_answer_to_one_is_lost(store: ab.Store) -> None:
    claim(store, now=store.runtime.clock.now())
    catalog = LosesAnAnswer(store.catalog)
    heartbeat = Heartbeat(cast(Catalog, catalog), store.runtime, "p", ME)
    try:
        until(lambda: catalog.lost)
        row_of.request_stop(store.catalog, "p", now=store.runtime.clock.now())
        until(lambda: heartbeat.stop_requested)
        assert heartbeat.lost is None
    finally:
        heartbeat.close()


def test_a_second_runner_is_refused_by_name_and_process(store: ab.Store) -> None:
    claim(store)
    with pytest.raises(PipelineRunning, match=f"process {os.getpid()} on") as refused:
        claim(store, OTHER)
    assert refused.value.pid == os.getpid()


def test_a_dead_process_of_this_machine_is_taken_over_at_once(store: ab.Store) -> None:
    claim(store, dead_process())
    assert row_of.find(store.catalog, "p").state_at(NOW) == "lost"
    assert claim(store, ME).holder == ME


@contextmanager
def zombie() -> Iterator[int]:
    """The id of a process that has ended, and whose parent has not asked how."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        until(lambda: state_of(child.pid) == "Z")
        yield child.pid
    finally:
        child.wait()


@pytest.mark.parametrize("started", [False, True])
def test_a_zombie_is_taken_over_at_once(store: ab.Store, started: bool) -> None:
    with zombie() as pid:
        claim(store, PipelineHolder(pid, socket.gethostname(), "zombie", started_us(pid) if started else None))
        assert row_of.find(store.catalog, "p").state_at(NOW) == "lost"
        assert claim(store, ME).holder == ME


def test_a_process_that_has_the_id_of_the_holder_now_is_not_the_holder(store: ab.Store) -> None:
    assert ME.started_us is not None
    claim(store, replace(ME, started_us=ME.started_us - 3_600_000_000))
    assert row_of.find(store.catalog, "p").state_at(NOW) == "lost"
    assert claim(store, ME).state_at(NOW) == "running"
    # A row of an earlier version says nothing of the start: whoever has the id is the holder.
    row_of.finish(store.catalog, "p", ME, now=NOW)
    claim(store, OTHER)
    with pytest.raises(PipelineRunning):
        claim(store, ME)


def test_the_start_of_a_process_is_the_same_for_whoever_asks() -> None:
    command = "import os; from anabranch.spark.pipelines.process import started_us; print(started_us(os.getppid()))"
    told = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    mine = started_us(os.getpid())
    assert mine is not None
    assert abs(int(told.stdout) - mine) <= 2_000_000


def test_without_psutil_the_id_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert started_us(os.getpid()) is None
    assert is_running(os.getpid(), 1)
    assert not is_running(dead_process().pid)


def test_a_holder_elsewhere_is_taken_over_when_its_heartbeat_is_old(store: ab.Store) -> None:
    claim(store, ELSEWHERE)
    with pytest.raises(PipelineRunning):
        claim(store, ME, now=NOW + LEASE_US)
    assert claim(store, ME, now=NOW + LEASE_US + 1).holder == ME
    with pytest.raises(Conflict, match="taken it over"):
        row_of.beat(store.catalog, "p", ELSEWHERE, now=NOW)


def test_a_heartbeat_keeps_the_row_and_brings_the_request_to_stop(store: ab.Store) -> None:
    claim(store, ELSEWHERE)
    assert not row_of.beat(store.catalog, "p", ELSEWHERE, now=NOW + LEASE_US, progress=[{"target": "s/out", "lag": 3}])
    assert row_of.find(store.catalog, "p").progress == ({"target": "s/out", "lag": 3},)
    row_of.request_stop(store.catalog, "p", now=NOW + 2 * LEASE_US)
    assert row_of.beat(store.catalog, "p", ELSEWHERE, now=NOW + 2 * LEASE_US)
    row_of.finish(store.catalog, "p", ELSEWHERE, now=NOW + 2 * LEASE_US)
    row = row_of.find(store.catalog, "p")
    assert (row.state, row.holder, row.stop_requested) == ("stopped", None, False)


def test_a_failure_is_kept_until_the_next_run(store: ab.Store) -> None:
    claim(store)
    row_of.finish(store.catalog, "p", ME, now=NOW, error="it broke")
    assert row_of.find(store.catalog, "p").state == "failed"
    assert row_of.find(store.catalog, "p").error == "it broke"
    assert claim(store).error is None


def test_stopping_what_is_not_running_changes_nothing_but_marks_the_dead(store: ab.Store) -> None:
    claim(store)
    row_of.finish(store.catalog, "p", ME, now=NOW)
    assert pipeline_admin.stop(store, "p").state == "stopped"
    claim(store, dead_process())
    assert pipeline_admin.stop(store, "p", timeout_s=1).state == "stopped"


def test_stop_waits_no_longer_than_it_was_asked_to(store: ab.Store) -> None:
    claim(store, now=store.runtime.clock.now())
    with pytest.raises(PipelineRunning):
        pipeline_admin.stop(store, "p", timeout_s=0.2)


def prepared(store: ab.Store) -> None:
    row_of.save(store.catalog, replace(claim(store), prepared=True))
    row_of.finish(store.catalog, "p", ME, now=NOW)


def test_changed_statements_are_refused_while_there_are_checkpoints(store: ab.Store) -> None:
    prepared(store)
    changed = SQL.replace("1 minute", "2 minutes")
    with pytest.raises(InvalidArgument, match=r"statement for s/out \(line 1\) has changed .* reset p"):
        claim(store, sql=changed)
    row = claim(store, sql=changed, restart=Restart(("head",)))
    assert (row.generation, row.prepared, row.text) == (2, False, changed)


def test_a_new_beginning_that_fails_leaves_the_generation_before(store: ab.Store) -> None:
    prepared(store)
    row = claim(store, restart=Restart(("tail",), replace=True))
    row_of.finish(store.catalog, "p", ME, now=NOW, error="there is no such place")
    again = claim(store)
    assert (again.generation, again.prepared, again.restart) == (1, True, Restart())
    # Once it is saved, it is the one that a later run goes on with.
    row_of.save(store.catalog, row)
    row_of.finish(store.catalog, "p", ME, now=NOW)
    again = claim(store)
    assert (again.generation, again.prepared, again.restart) == (2, False, row.restart)


def test_a_row_that_is_saved_after_long_preparations_is_not_taken_for_a_dead_one(store: ab.Store) -> None:
    row = claim(store)
    row_of.beat(store.catalog, "p", ME, now=NOW + LEASE_US)
    row_of.save(store.catalog, replace(row, prepared=True))
    with pytest.raises(PipelineRunning):
        claim(store, OTHER, now=NOW + LEASE_US + 1)


@pytest.mark.parametrize(
    "same",
    [
        f"-- a comment\n{SQL}",
        SQL.replace("SELECT a,", "SELECT a ,\n  /* n */"),
        SQL.replace("AS SELECT", "WITH (trigger = '5 seconds') AS SELECT", 1),
    ],
)
def test_comments_layout_and_the_trigger_may_change(store: ab.Store, same: str) -> None:
    prepared(store)
    assert claim(store, sql=same).generation == 1


def test_after_a_reset_other_statements_are_welcome(store: ab.Store) -> None:
    prepared(store)
    assert pipeline_admin.reset(store, "p") == ()
    assert claim(store, sql=SQL.replace("1 minute", "2 minutes")).generation == 2


def test_a_running_pipeline_is_not_reset_and_an_unknown_one_is_not_found(store: ab.Store) -> None:
    claim(store, now=store.runtime.clock.now())
    with pytest.raises(PipelineRunning):
        pipeline_admin.reset(store, "p")
    with pytest.raises(PipelineNotFound, match="pipeline 'q' not found"):
        pipeline_admin.find(store, "q")


def test_a_pipeline_needs_a_usable_name(store: ab.Store) -> None:
    with pytest.raises(InvalidArgument, match="not a valid name for a pipeline"):
        row_of.claim(store.catalog, "a/b", SQL, [], ME, now=NOW)


# plans


def test_statements_start_behind_those_they_read() -> None:
    steps = plan(
        "CREATE STREAM s.c AS SELECT * FROM STREAM s.b JOIN STREAM s.a USING (k);"
        "CREATE STREAM s.b AS SELECT * FROM STREAM s.a;"
        "CREATE STREAM s.a WITH (watermark = '3 seconds') AS SELECT * FROM STREAM s.raw"
    )
    assert [(step.target, step.level) for step in steps] == [("s/a", 0), ("s/b", 1), ("s/c", 2)]


def test_a_chain_waits_no_longer_than_its_sources_are_disordered() -> None:
    steps = plan(
        "CREATE STREAM s.plain WITH (watermark = '3 seconds') AS SELECT * FROM STREAM s.raw;"
        "CREATE STREAM s.counts AS SELECT window.end AS e FROM STREAM s.plain GROUP BY window(at, '1 minute');"
        "CREATE STREAM s.more AS SELECT window.end AS e FROM STREAM s.counts GROUP BY window(e, '1 hour');"
        "CREATE STREAM s.odd AS SELECT count(*) AS n FROM STREAM s.counts_late GROUP BY window(at, '1 hour')"
    )
    delays = {step.target: list(step.delays_us.values()) for step in steps}
    assert delays == {"s/plain": [3_000_000], "s/counts": [3_000_000], "s/more": [0], "s/odd": [WATERMARK_US]}


def test_a_stream_that_is_written_anew_with_every_batch_can_not_be_read_as_one() -> None:
    with pytest.raises(InvalidSql, match="line 2: 's/a' is rewritten"):
        plan(
            "CREATE STREAM s.a WITH (mode = complete) AS SELECT k, count(*) AS n FROM STREAM s.raw GROUP BY k;\n"
            "CREATE STREAM s.b AS SELECT * FROM STREAM s.a"
        )


def test_the_next_run_knows_the_ids_of_all_streams_of_a_statement(store: ab.Store) -> None:
    # A hot standby that takes over stores the row as it was claimed, and the next standby reads the ids from there.
    sql = SQL.replace(" AS SELECT", " INTO s.big WHEN n > 9 FEEDBACK WITHIN 2 HOPS INTO s.raw WHEN n < 3 AS SELECT", 1)
    row = claim(store, dead_process(), sql=sql)
    output = replace(row.outputs[0], target_id="01", side_ids=("02",), feedback_ids=("03",))
    row_of.save(store.catalog, replace(row, outputs=(output,), prepared=True))
    (output,) = claim(store, sql=sql).outputs
    assert (output.target_id, output.side_ids, output.feedback_ids) == ("01", ("02",), ("03",))
