"""Jobs on Spark: tasks move the ranges, whatever becomes of tasks, and the result is that of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument, JobStopped
from anabranch.spark.transfer_jobs import SparkCarrier, carrier
from anabranch.store import Store
from anabranch.transfer.jobs.record import JobState, put_job
from anabranch.transfer.jobs.remote_tasks import Bundle, carry
from tests.store.helpers import bodies_of, sound
from tests.store.transfer.jobs.kit import SCHEMA, SETTINGS, fill, image, live, small_ranges

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    small_ranges(monkeypatch)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with (
        ab.connect(tmp_path / "a", settings=SETTINGS, create=True) as source,
        ab.connect(tmp_path / "b", settings=SETTINGS, create=True) as target,
    ):
        live(source)
        target.scopes.create("t")
        yield source, target


def test_tasks_move_a_stream_event_for_event(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    target.jobs.copy(source, "s/a", "t/b", carrier=carrier(spark, source, target)).wait()
    assert image(target, "t/b") == image(source, "s/a")
    target.jobs.append(source, "s/a", "t/b", carrier=carrier(spark, source, target)).wait()
    assert len(bodies_of(target, "t/b")) == 2 * len(bodies_of(source, "s/a"))
    assert sound(target)


@pytest.mark.slow
def test_tasks_stitch_streams_of_several_stores(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    target.streams.create("t/c", schema=SCHEMA, key="device", time="at")
    fill(target, "t/c", 430, 450)
    parts, columns = [ab.InStore(source, "s/a"), ab.InStore(target, "t/c")], ["device", "n"]
    with pytest.raises(InvalidArgument, match="reads 2 stores"):
        target.jobs.stitch(target, parts, "t/b", carrier=carrier(spark, source, target)).wait()
    both = carrier(spark, [source, target], target)
    assert target.jobs.stitch(target, parts, "t/b", deduplicate=columns, carrier=both).wait().repeats == 10
    assert [body["n"] for body in bodies_of(target, "t/b")][-10:] == [*range(440, 450)]
    assert len(bodies_of(target, "t/b")) == len(bodies_of(source, "s/a")) + 10


def test_bundles_that_are_moved_twice_and_by_two_are_there_once(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    inner = carrier(spark, source, target)

    def twice(bundles: Sequence[Bundle]) -> None:
        assert carry(bundles[0], source.job_store, target.job_store)  # here already, and again by a task
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
    assert job.row().state is JobState.FAILED
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
            put_job(txn, replace(row, wanted=JobState.PAUSED))
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
    with pytest.raises(InvalidArgument, match="can't find repeats"):
        target.jobs.stitch(source, ["s/a"], "t/b", deduplicate=["n"], carrier=lambda bundles: None)


@pytest.mark.slow
def test_tasks_leave_out_just_what_one_process_leaves_out(
    spark: SparkSession, pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    monkeypatch.setattr(limits, "DEDUP_ROWS", 300)  # several tasks compare
    source.streams.copy("s/a", "s/view")  # sees the same positions
    source.streams.create("s/more", schema=SCHEMA, key="device", time="at")
    fill(source, "s/more", 400, 460)
    fill(source, "s/more", 430, 445)
    names = ["s/a", "s/view", "s/more"]
    how: dict[str, Any] = {"deduplicate": ["device", "n"], "prefer": [2]}
    tasks = carrier(spark, source, target)
    one = target.jobs.stitch(source, names, "t/one", **how).wait()
    job = target.jobs.stitch(source, names, "t/many", **how, carrier=tasks)
    many = job.wait()
    assert many.repeats == one.repeats == job.row().repeats == 380 + 40 + 15
    events = [
        [(e.pointer.segment, e.pointer.offset, e.body) for e in target.reader(name)] for name in ("t/one", "t/many")
    ]
    assert events[0] == events[1] and len(events[0]) == 400
    for name in ("t/x", "t/y"):
        source.streams.copy("s/more", name, to=target)
    again = target.jobs.append(source, "s/a", "t/x", deduplicate=["n"]).wait()
    spread = target.jobs.append(source, "s/a", "t/y", deduplicate=["n"], carrier=tasks).wait()
    assert again.repeats == spread.repeats == 40
    assert bodies_of(target, "t/x") == bodies_of(target, "t/y")
    assert sound(target)


@pytest.mark.slow
def test_a_job_that_leaves_out_repeats_goes_on_without_spark(spark: SparkSession, pair: tuple[Store, Store]) -> None:
    source, target = pair
    inner = carrier(spark, source, target)

    class Half(SparkCarrier):
        def __call__(self, bundles: Sequence[Bundle]) -> None:
            super().__call__(bundles[::2])
            raise RuntimeError("the executors are gone")

    source.streams.copy("s/a", "s/b", independent=True)
    half = Half(spark, *inner._places)
    job = target.jobs.stitch(source, ["s/b", "s/a"], "t/b", deduplicate=["n"], prefer=[1], carrier=half)
    with pytest.raises(RuntimeError, match="executors"):
        job.wait()
    assert 0 < job.progress().events < 380
    assert target.jobs.resume(job.id, source=source).wait().repeats == 380
    assert bodies_of(target, "t/b") == bodies_of(source, "s/a")
    assert sound(target)


def test_tasks_archive_import_and_copy_a_scope(spark: SparkSession, pair: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = pair
    source.streams.copy("s/a", "s/b")
    here, there = carrier(spark, source, source), carrier(spark, target, target)
    source.jobs.archive_scope("s", tmp_path / "archive", carrier=here).wait()
    assert list(ab.verify_archive(tmp_path / "archive")) == []
    target.jobs.import_archive(tmp_path / "archive", as_="u", carrier=there).wait()
    target.jobs.copy_scope(source, "s", "v", carrier=carrier(spark, source, target)).wait()
    for name in ("a", "b"):
        digest = source.archives.digest(f"s/{name}")
        assert target.archives.digest(f"u/{name}") == digest == target.archives.digest(f"v/{name}")
        assert image(target, f"v/{name}") == image(source, f"s/{name}")
    assert [str(info.name) for info in target.streams.list(internal=True)] == ["u/a", "u/b", "v/a", "v/b"]
    assert sound(target)
