"""Copies that follow a stream of their own store: they view what is new where it lies, and no byte is moved."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.errors import Conflict, JobStopped, StreamNotFound, Truncated
from anabranch.model.ids import StreamId
from anabranch.store import Store
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.record import JobState
from tests.store.helpers import HookedBlobs, bodies_of, sound
from tests.store.transfer.jobs.kit import WIDER, fill, image, live, opened
from tests.waiting import until


@pytest.fixture(params=["folder", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path / "a") as found:
        live(found)
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Store]:
    with opened("folder", tmp_path / "a") as found:
        live(found)
        yield found


def follow(store: Store, *, end: Until | bool = True, name: str = "s/b") -> Job:
    return store.jobs.copy(store, "s/a", name, follow=end, independent=False)


def caught_up(store: Store, name: str = "s/b") -> bool:
    one, other = store.streams.view("s/a"), store.streams.view(name)
    return [one.length(s.id) for s in one.ordered] == [other.length(s.id) for s in other.ordered]


def spans(store: Store, name: str) -> dict[str, int]:
    """How many spans each segment has that hold anything."""
    view = store.streams.view(name)
    return {
        str(segment): sum(span.stop is None or span.start < span.stop for span in found)
        for segment, found in view.spans.items()
    }


def bytes_of(store: Store, stream: StreamId) -> int:
    """What lies in logs of the stream's own."""
    view = store.streams.view(stream)
    return sum(log.length for log in view.logs.values() if log.stream == stream)


def test_no_byte_is_moved_and_what_follows_in_a_log_is_one_span(store: Store) -> None:
    blobs = HookedBlobs(store.blobs)
    store.blobs = blobs
    store.jobs._job_store = store.job_store
    job = follow(store)
    started = spans(store, "s/b")
    for n in range(6):
        fill(store, "s/a", 440 + 30 * n, 470 + 30 * n)
        until(lambda: caught_up(store))
    assert image(store, "s/b") == image(store, "s/a")
    assert spans(store, "s/b") == started  # the last one became longer
    assert blobs.puts == 0
    assert bytes_of(store, store.streams.get("s/b").id) == 0
    until(lambda: job.row().followed == 180)
    assert job.row().lag == 0
    job.pause()
    assert sound(store)


def test_it_goes_through_scales_columns_appends_and_upkeep(store: Store) -> None:
    job = follow(store)
    for n in range(4):
        fill(store, "s/a", 440 + 40 * n, 480 + 40 * n)
        if n == 1:
            store.streams.evolve("s/a", WIDER.append(pa.field("more", pa.string())))
            store.streams.append("s/a", "s/a")
        store.streams.scale("s/a", 1 + n % 3)
        store.compact(force=True)
        store.collect(horizon_us=0)
    until(lambda: caught_up(store))
    until(lambda: store.streams.get("s/b").epoch == store.streams.get("s/a").epoch)
    assert image(store, "s/b") == image(store, "s/a")
    job.pause()
    assert sound(store)
    whole = image(store, "s/b")["events"]
    store.streams.delete("s/a")  # the copy stays whole
    for _ in range(3):
        store.compact(force=True)
        store.collect(horizon_us=0)
    assert image(store, "s/b")["events"] == whole
    with store.writer("s/b") as writer:  # it is a stream like any other now
        pointer = writer.write({"device": "d1", "n": -1}).result()
    assert store.fetch(pointer).body["n"] == -1
    times = [event.appended_us or 0 for event in store.reader("s/b") if event.pointer.segment == pointer.segment]
    assert times == sorted(times)
    assert sound(store)


def test_paused_and_resumed_it_goes_on_from_where_it_was(folder: Store) -> None:
    job = follow(folder)
    for n in range(4):
        fill(folder, "s/a", 440 + 40 * n, 480 + 40 * n)
        if n % 2:
            folder.streams.scale("s/a", 1 + n)
        job.pause()
        with pytest.raises(JobStopped, match="paused"):
            job.wait()
        job = folder.jobs.resume(job.id)
    until(lambda: caught_up(folder))
    assert image(folder, "s/b") == image(folder, "s/a")
    until(lambda: job.row().followed == 160)
    job.pause()
    assert sound(folder)


def test_it_ends_after_so_many_events_and_reports_its_lag(folder: Store) -> None:
    before = len(bodies_of(folder, "s/a"))
    job = follow(folder, end=Until(events=25))
    job.pause()
    fill(folder, "s/a", 440, 500)
    job = folder.jobs.resume(job.id)
    job.wait(60)
    row = job.row()
    assert (row.followed, row.lag) == (25, 35)
    assert len(bodies_of(folder, "s/b")) == before + 25
    assert sound(folder)


def test_it_ends_with_a_sealed_source_and_when_nothing_comes(folder: Store) -> None:
    follow(folder, end=Until(idle_s=0.05), name="s/idle").wait(60)
    follow(folder, end=Until(for_s=0.05), name="s/soon").wait(60)
    job = follow(folder)
    fill(folder, "s/a", 440, 480)
    folder.streams.seal("s/a")
    job.wait(60)
    assert image(folder, "s/b") == image(folder, "s/a")
    assert job.row().state is JobState.DONE
    assert sound(folder)


def test_two_copies_follow_one_source_beside_its_writer(folder: Store) -> None:
    jobs = [follow(folder, name="s/b"), follow(folder, name="s/c")]

    def write() -> None:
        for n in range(10):
            fill(folder, "s/a", 440 + 20 * n, 460 + 20 * n)
            folder.streams.scale("s/a", 1 + n % 3)

    writing = threading.Thread(target=write)
    writing.start()
    writing.join(60)
    folder.streams.seal("s/a")
    for job in jobs:
        job.wait(60)
    assert image(folder, "s/b") == image(folder, "s/c") == image(folder, "s/a")
    assert sound(folder)


def test_a_reader_of_the_copy_hears_of_what_is_new(folder: Store) -> None:
    job = follow(folder)
    with folder.reader("s/b", follow=True) as reader:
        events = iter(reader)
        assert len([next(events) for _ in range(380)]) == 380
        fill(folder, "s/a", 440, 470)
        assert sorted(next(events).body["n"] for _ in range(30)) == [*range(440, 470)]
    job.pause()


def test_somebody_elses_write_to_the_copy_is_noticed(folder: Store) -> None:
    job = follow(folder)
    job.pause()
    with folder.writer("s/b") as writer:
        for n in range(9):
            writer.write({"device": f"d{n}", "n": -1}).result()
    fill(folder, "s/a", 440, 540)  # more than that in each segment
    job = folder.jobs.resume(job.id)
    with pytest.raises(Conflict, match="written to by another client"):
        job.wait(60)
    assert job.row().state is JobState.FAILED
    assert sound(folder)


def test_what_a_source_truncates_before_it_was_viewed_is_reported(folder: Store) -> None:
    job = follow(folder)
    until(lambda: caught_up(folder))
    job.pause()
    fill(folder, "s/a", 440, 540)
    folder.streams.truncate("s/a", folder.cuts.tail("s/a"))
    fill(folder, "s/a", 540, 560)
    with pytest.raises(Truncated):
        folder.jobs.resume(job.id).wait(60)
    assert sound(folder)


def test_what_was_viewed_stays_where_the_source_is_truncated_behind_it(folder: Store) -> None:
    job = follow(folder)
    fill(folder, "s/a", 440, 480)
    until(lambda: caught_up(folder))
    whole = image(folder, "s/b")["events"]
    folder.streams.truncate("s/a", folder.cuts.tail("s/a"))
    folder.collect(horizon_us=0)
    fill(folder, "s/a", 480, 500)
    until(lambda: caught_up(folder))
    now = image(folder, "s/b")["events"]
    assert {place: now[place] for place in whole} == whole
    assert len(now) == len(whole) + 20
    job.pause()
    assert sound(folder)


def test_a_source_that_is_deleted_is_reported(folder: Store) -> None:
    job = follow(folder)
    until(lambda: caught_up(folder))
    folder.streams.delete("s/a")
    with pytest.raises(StreamNotFound):
        job.wait(60)
    assert sound(folder)


def test_what_was_followed_with_bytes_of_its_own_stays_independent(folder: Store) -> None:
    job = folder.jobs.copy(folder, "s/a", "s/b", follow=True, independent=True)
    fill(folder, "s/a", 440, 480)
    until(lambda: job.row().result is not None)
    until(lambda: caught_up(folder))
    view = folder.streams.view("s/b")
    assert not set(folder.streams.view("s/a").logs) & {span.log for found in view.spans.values() for span in found}
    job.pause()
