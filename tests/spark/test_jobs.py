"""Jobs on Spark: tasks move the ranges, whatever becomes of tasks, and the result is that of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import InvalidArgument, JobStopped
from anabranch.spark.jobs import carrier
from anabranch.store import Store
from anabranch.streams.jobs.carry import Bundle, carry
from anabranch.streams.jobs.row import State
from tests.store.helpers import bodies_of, sound
from tests.store.jobs_kit import SETTINGS, image, live, small_ranges

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    small_ranges(monkeypatch)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with (
        ab.connect(tmp_path / "a", settings=SETTINGS) as source,
        ab.connect(tmp_path / "b", settings=SETTINGS) as target,
    ):
        live(source)
        target.streams.create_scope("t")
        yield source, target


def test_tasks_move_a_stream_event_for_event(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    target.jobs.copy(source, "s/a", "t/b", carrier=carrier(spark, source, target)).wait()
    assert image(target, "t/b") == image(source, "s/a")
    target.jobs.append(source, "s/a", "t/b", carrier=carrier(spark, source, target)).wait()
    assert len(bodies_of(target, "t/b")) == 2 * len(bodies_of(source, "s/a"))
    assert sound(target)


def test_bundles_that_are_moved_twice_and_by_two_are_there_once(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    inner = carrier(spark, source, target)

    def twice(bundles: Sequence[Bundle]) -> None:
        assert carry(bundles[0], source.site, target.site)  # here already, and again by a task
        inner([*bundles, *bundles])

    target.jobs.copy(source, "s/a", "t/b", carrier=twice).wait()
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)


def test_a_job_that_fails_on_spark_goes_on_without_it(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    inner = carrier(spark, source, target)

    def half(bundles: Sequence[Bundle]) -> None:
        inner(bundles[::2])
        raise RuntimeError("the executors are gone")

    job = target.jobs.copy(source, "s/a", "t/b", carrier=half)
    with pytest.raises(RuntimeError, match="executors"):
        job.wait()
    assert job.row().state is State.FAILED
    assert 0 < job.progress().events < job.row().events
    target.jobs.resume(job.id, source=source).wait()
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)


def test_a_paused_job_stops_its_tasks(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    inner = carrier(spark, source, target)

    def paused(bundles: Sequence[Bundle]) -> None:
        inner(bundles[:2])
        (row,) = target.jobs.list()
        with target.catalog.writing() as txn:
            txn.put_piece(replace(row, wanted=State.PAUSED).to_piece())
        inner(bundles)

    job = target.jobs.copy(source, "s/a", "t/b", carrier=paused)
    with pytest.raises(JobStopped, match="paused"):
        job.wait()
    assert 0 < job.progress().events < job.row().events
    target.jobs.resume(job.id, source=source, carrier=inner).wait()
    assert image(target, "t/b") == image(source, "s/a")


def test_stores_that_tasks_can_not_open_are_refused(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    with ab.connect("memory://") as memory, pytest.raises(InvalidArgument, match="memory://"):
        carrier(spark, source, memory)
    with pytest.raises(InvalidArgument, match="not both"):
        target.jobs.stitch(source, ["s/a"], "t/b", deduplicate=["n"], carrier=carrier(spark, source, target))
