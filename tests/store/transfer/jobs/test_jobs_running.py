"""Running jobs: repeated requests, pause, resume, cancel, takeover, and memory bounds."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    JobNotFound,
    JobRunning,
    JobStopped,
    RequestMismatch,
)
from anabranch.store import Store
from anabranch.transfer.jobs import run as job_run
from anabranch.transfer.jobs.record import JobState
from anabranch.transfer.jobs.remote_tasks import Bundle, carry
from tests.store.helpers import HookedBlobs, bodies_of, sound
from tests.store.transfer.jobs.kit import SETTINGS, Gate, image, live, opened, stop_at
from tests.waiting import PATIENCE_S, until, until_ended

pytestmark = pytest.mark.usefixtures("many_ranges")


def test_a_store_keeps_nothing_of_finished_jobs(pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.copy(source, "s/a", "t/b")
    copied, left = job.wait(), weakref.ref(job)
    assert target.jobs.get(job.id).wait() == copied
    del job
    until(lambda: gc.collect() >= 0 and left() is None)


# repeated requests


def test_a_copy_asked_for_again_moves_nothing(pair: tuple[Store, Store]) -> None:
    source, target = pair
    copied = source.streams.copy("s/a", "t/b", to=target, request="r")
    blobs = HookedBlobs(target.blobs)
    target.blobs = blobs
    target.jobs._job_store = target.job_store
    assert source.streams.copy("s/a", "t/b", to=target, request="r") == copied
    assert source.streams.copy("s/a", "t/b", to=target) == copied
    assert blobs.puts == 0
    with pytest.raises(RequestMismatch):
        source.streams.copy("s/a", "t/c", to=target, request="r")


# pausing, resuming, cancelling


@pytest.mark.parametrize("after", [1, 2, 5, 8])
def test_a_paused_job_continues_where_it_stopped(after: int, pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, after)
    job = target.jobs.copy(source, "s/a", "t/b", window=2)
    stop_at(gate, job, job.pause)
    assert job.row().state is JobState.PAUSED
    with pytest.raises(JobStopped, match="paused"):
        job.wait()
    moved = job.progress().events
    assert moved < job.row().events
    again = target.jobs.resume(job.id, source=source)
    assert again.progress().events >= moved
    again.wait()
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)


def test_a_cancelled_job_leaves_nothing_behind(pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, 4)
    job = target.jobs.copy(source, "s/a", "t/b", window=1)
    stop_at(gate, job, job.cancel)
    assert job.row().state is JobState.CANCELLED
    for _ in range(3):
        target.collect(horizon_us=0)
    assert list(target.streams.list(internal=True)) == []
    assert list(target.blobs.list("commits/")) == []
    with pytest.raises(JobStopped, match="cancelled"):
        target.jobs.resume(job.id, source=source)
    with pytest.raises(JobNotFound):
        target.jobs.get("nope")
    assert sound(target)


def test_a_store_that_is_closed_pauses_its_jobs(tmp_path: Path) -> None:
    with opened("folder", tmp_path / "a") as source:
        live(source)
        with opened("folder", tmp_path / "b") as target:
            target.scopes.create("t")
            gate = Gate(target, 3)
            job = target.jobs.copy(source, "s/a", "t/b", window=2)
            gate.wait()
            closing = threading.Thread(target=target.close)
            closing.start()
            until(lambda: target.jobs._closed)
            gate.open.set()
            until_ended(closing)
        with ab.connect(tmp_path / "b", settings=SETTINGS, create=True) as target:
            assert target.jobs.get(job.id).row().state is JobState.PAUSED
            target.jobs.resume(job.id).wait()  # it knows where its source is
            assert image(target, "t/b") == image(source, "s/a")
            assert sound(target)


def test_two_processes_do_not_run_one_job_unless_it_is_taken_over(tmp_path: Path, pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, 3)
    job = target.jobs.copy(source, "s/a", "t/b", window=1)
    gate.wait()
    with ab.connect(tmp_path / "b", settings=SETTINGS, create=True) as other:
        with pytest.raises(JobRunning):
            other.jobs.resume(job.id, source=source)
        other.jobs.resume(job.id, source=source, take_over=True).wait()
        gate.open.set()
        # Its pending step is refused, because it no longer holds the job; it learns that the job is done.
        assert job.wait(PATIENCE_S).copy == other.streams.get("t/b").id
        assert image(other, "t/b") == image(source, "s/a")
        assert sound(other)


def test_a_step_that_another_took_meanwhile_is_not_appended_twice(pair: tuple[Store, Store]) -> None:
    source, target = pair

    def by_two(bundles: Sequence[Bundle]) -> None:
        for bundle in bundles:
            blobs = HookedBlobs(target.blobs)

            def overtake(bundle: Bundle = bundle, blobs: HookedBlobs = blobs) -> None:
                blobs.before_put = lambda: None
                assert carry(bundle, source.job_store, target.job_store)

            blobs.before_put = overtake
            assert carry(bundle, source.job_store, replace(target.job_store, blobs=blobs))

    target.jobs.copy(source, "s/a", "t/b", carrier=by_two).wait()
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)


def test_a_run_is_visible_while_a_step_takes_long(pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_run, "HEARTBEAT_S", 0.01)
    source, target = pair
    gate = Gate(target, 3)
    job = target.jobs.copy(source, "s/a", "t/b", window=1)
    gate.wait()
    before = job.row().seen_at
    until(lambda: job.row().seen_at > before)
    gate.open.set()
    job.wait()


# bounds


@pytest.mark.parametrize("window", [1, 3])
def test_a_window_bounds_what_is_held_in_memory(window: int, pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.create("s/raw", scaling=4)
    with source.writer("s/raw") as writer:
        for n in range(120):
            writer.write(bytes(200), key=str(n)).result()
    job = target.jobs.copy(source, "s/raw", "t/raw", window=window)
    job.wait()
    largest = 600  # a message of one event
    assert 0 < (job.memory_peak or 0) <= window * (limits.JOB_BLOB_BYTES + largest)


def test_a_window_can_be_widened_and_narrowed(pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, 1)
    job = target.jobs.copy(source, "s/a", "t/b", window=1)
    gate.wait()
    assert job.window == 1
    job.window = 3
    assert job.window == 3
    gate.open.set()
    job.wait()
    assert image(target, "t/b") == image(source, "s/a")


def test_progress_reports_events_bytes_and_each_range(pair: tuple[Store, Store]) -> None:
    source, target = pair
    live(source, "s/b")
    told: list[tuple[str, int, int]] = []
    gate = Gate(target, 6)
    job = target.jobs.stitch(source, ["s/a", "s/b"], "t/b", window=1, progress=lambda *each: told.append(each))
    gate.wait()
    progress = job.progress()
    assert 0 < progress.events < progress.row.events
    assert 0 < progress.bytes < progress.row.bytes
    assert len(progress.ranges) > 3
    assert list(dict.fromkeys(each.stream for each in progress.ranges)) == ["s/a", "s/b"]
    assert sum(each.reached - each.start for each in progress.ranges) == progress.events
    gate.open.set()
    job.wait()
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == told[-1][2]
    assert job.progress().events == len(bodies_of(source, "s/a")) + len(bodies_of(source, "s/b"))
