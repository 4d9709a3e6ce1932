"""How a pipeline ends when its queries fail or can't be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import PipelineFailed
from anabranch.spark.pipelines import running
from anabranch.spark.pipelines.record import PipelineHolder
from anabranch.spark.pipelines.running import Pipeline


class Query:
    """Fails once it was asked `questions` times whether it is active."""

    def __init__(self, questions: int = 1 << 30, *, stoppable: bool = True) -> None:
        self._questions = questions
        self._stoppable = stoppable
        self.stopped = False

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        self._questions -= 1
        return self._questions >= 0 and not self.stopped

    def exception(self) -> Exception | None:
        return RuntimeError("no space left") if self._questions < 0 else None

    def stop(self) -> None:
        if not self._stoppable:
            raise TimeoutError("the query did not stop")
        self.stopped = True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "store", create=True) as opened:
        yield opened


def pipeline(store: ab.Store, *queries: Query, stop_requested: bool = False) -> Pipeline:
    by_target: Any = {f"out/{number}": query for number, query in enumerate(queries)}
    heartbeat: Any = SimpleNamespace(
        lost=None,
        stop_requested=stop_requested,
        progress=(),
        close=lambda: None,
        holder=PipelineHolder(1, "host", "token"),
    )
    prepared: Any = {target: SimpleNamespace(starts={}, checkpoint=None) for target in by_target}
    spark: Any = None
    return Pipeline(store, spark, "p", (), prepared, heartbeat, once=False, owned=False, queries=by_target)


@pytest.mark.parametrize("stop_requested", [False, True])
@pytest.mark.parametrize("questions", range(2, 7))
def test_a_query_that_fails_at_any_time_fails_its_pipeline(
    monkeypatch: pytest.MonkeyPatch, store: ab.Store, questions: int, stop_requested: bool
) -> None:
    monkeypatch.setattr(running, "batch_in_progress", lambda _checkpoint: 1)
    made = pipeline(store, Query(questions), stop_requested=stop_requested)
    with pytest.raises(PipelineFailed, match="no space left"):
        made.await_termination(30)


def test_a_query_that_can_not_be_stopped_leaves_no_other_running(store: ab.Store) -> None:
    stuck, other = Query(stoppable=False), Query()
    made = pipeline(store, stuck, other)
    made.stop()
    assert other.stopped
    with pytest.raises(PipelineFailed, match="did not stop"):
        made.await_termination(30)


def test_queries_that_nothing_can_supervise_are_stopped(monkeypatch: pytest.MonkeyPatch, store: ab.Store) -> None:
    def refuse(_tasks: Any, name: str, _work: Any) -> None:
        raise RuntimeError("can't start new thread")

    query = Query()
    monkeypatch.setattr(type(store.runtime.tasks), "spawn", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        pipeline(store, query)
    monkeypatch.undo()
    assert query.stopped
