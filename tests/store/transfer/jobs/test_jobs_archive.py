"""Archives and imports as jobs: files side by side, paused and gone on with, cancelled, and the same in the end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.blobs.local import LocalBlobs
from anabranch.catalog.state.job import JOB_MEMBER
from anabranch.catalog.state.job_plan import ARCHIVE_PLAN, JOB_FILE, JOB_PLAN
from anabranch.errors import AlreadyExists, Conflict, CorruptArchive, JobRunning, JobStopped, NotFound, StreamExists
from anabranch.store import Store
from anabranch.transfer.archives import data_files as files
from anabranch.transfer.archives import digest, plan
from anabranch.transfer.archives.format import METADATA
from anabranch.transfer.jobs import archive
from anabranch.transfer.jobs.archived_files import complete_files
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.record import JobState
from anabranch.transfer.jobs.remote_tasks import Bundle, Carrier, carry
from tests import s3_server
from tests.store.helpers import HookedBlobs, sound
from tests.store.transfer.archives.kit import assert_same
from tests.store.transfer.jobs.kit import opened
from tests.waiting import until

SCHEMA = pa.schema([("device", pa.string()), ("n", pa.int64())])
EVENTS = 96


@pytest.fixture(autouse=True)
def many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 8 events, and bundles of two files."""
    for module in (digest, files, plan):
        monkeypatch.setattr(module, "BLOCK_ROWS", 8)
    monkeypatch.setattr(limits, "PARQUET_BYTES_MAX", 1)
    monkeypatch.setattr(limits, "JOB_BUNDLE_RANGES_MAX", 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The streams `s/a` of two epochs, and `s/b`."""
    with opened("memory", tmp_path) as made:
        made.scopes.create("s", tags={"a": "b"})
        for name in ("s/a", "s/b"):
            made.streams.create(name, schema=SCHEMA, key="device", scaling=2)
            with made.writer(name) as writer:
                writer.write_batch(rows(0, EVENTS // 2)).result()
                made.streams.scale(name, 1)
                writer.write_batch(rows(EVENTS // 2, EVENTS)).result()
        made.aliases.add("s/b", "s/also")
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with opened("memory", tmp_path) as made:
        yield made


def rows(first: int, stop: int) -> pa.Table:
    return pa.table({"device": [f"d{n % 7}" for n in range(first, stop)], "n": list(range(first, stop))}, schema=SCHEMA)


class Puts:
    """What is put below a folder: counted, and held up at the `stop`th until `open`."""

    def __init__(self, patch: pytest.MonkeyPatch, below: Path, stop: int = 0) -> None:
        self.names: list[str] = []
        self.flying = self.most = 0
        self.reached, self.open = threading.Event(), threading.Event()
        real, lock = LocalBlobs.put, threading.Lock()

        def put(blobs: LocalBlobs, key: str, chunks: Any) -> None:
            if not str(blobs._root).startswith(str(below)):
                real(blobs, key, chunks)
                return
            with lock:
                self.names.append(key)
                self.flying += 1
                self.most = max(self.most, self.flying)
                held = len(self.names) == stop
            if held:
                self.reached.set()
                assert self.open.wait(60)
            try:
                real(blobs, key, chunks)
            finally:
                with lock:
                    self.flying -= 1

        patch.setattr(LocalBlobs, "put", put)


def stop_at(puts: Puts, job: Job, stop: Callable[[], object]) -> None:
    """Have a job told to stop while a put of it is held up, and wait until it has."""
    assert puts.reached.wait(60)
    stopping = threading.Thread(target=stop)
    stopping.start()
    until(lambda: job.row().wanted is not None)
    puts.open.set()
    stopping.join(60)
    assert not stopping.is_alive()


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def data_of(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in bytes_of(folder).items() if name != METADATA}


# archives


@pytest.mark.parametrize("after", [1, 4, 9])
def test_an_archive_that_was_paused_goes_on_and_is_that_of_an_undisturbed_run(
    after: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.archives.create("s/a", tmp_path / "undisturbed")
    puts = Puts(monkeypatch, tmp_path / "archive", after)
    job = store.jobs.archive("s/a", tmp_path / "archive", window=2)
    stop_at(puts, job, job.pause)
    with pytest.raises(JobStopped, match="paused"):
        job.wait()
    progress = job.progress()
    assert progress.events == sum(each.reached - each.start for each in progress.ranges) < progress.row.events
    with pytest.raises(NotFound, match="never finished"):
        ab.read_archive(tmp_path / "archive")
    whole = set(data_of(tmp_path / "archive"))
    with store.writer("s/a") as writer:  # the archive is as of when it began
        writer.write_batch(rows(0, 5)).result()
    first = len(puts.names)
    report = store.jobs.resume(job.id).wait()
    assert report.files_there == len(whole) >= after
    assert not whole & set(puts.names[first:])
    assert data_of(tmp_path / "archive") == data_of(tmp_path / "undisturbed")
    assert list(ab.verify_archive(tmp_path / "archive")) == []
    (archived,) = ab.read_archive(tmp_path / "archive").archive.streams
    assert archived.events == EVENTS
    assert job.progress().events == EVENTS


def test_files_are_written_at_the_same_time_within_the_window(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(3)
    met: list[str] = []
    real = LocalBlobs.put

    def put(blobs: LocalBlobs, key: str, chunks: Any) -> None:
        if len(met) < 3:
            met.append(key)
            meeting.wait(60)
        real(blobs, key, chunks)

    with monkeypatch.context() as patch:
        patch.setattr(LocalBlobs, "put", put)
        store.archives.create_scope("s", tmp_path / "met", window=3)
    puts = Puts(monkeypatch, tmp_path / "archive")
    told: list[tuple[int, int]] = []
    job = store.jobs.archive_scope("s", tmp_path / "archive", window=3, progress=lambda _, *each: told.append(each))
    job.wait()
    assert 0 < puts.most <= 3
    assert told == sorted(told)
    assert told[-1] == (2 * EVENTS, 2 * EVENTS)
    assert 0 < (job.memory_peak or 0) <= 3 * 8 * 64
    assert data_of(tmp_path / "archive") == data_of(tmp_path / "met")


def test_a_cancelled_archive_leaves_no_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    puts = Puts(monkeypatch, tmp_path / "archive", 4)
    job = store.jobs.archive("s/a", tmp_path / "archive", window=2)
    stop_at(puts, job, job.cancel)
    assert job.row().state is JobState.CANCELLED
    assert bytes_of(tmp_path / "archive") == {}
    paused = Puts(monkeypatch, tmp_path / "other", 4)
    job = store.jobs.archive("s/a", tmp_path / "other", window=2)
    stop_at(paused, job, job.pause)
    assert data_of(tmp_path / "other")
    store.jobs.get(job.id).cancel()  # when nobody runs it
    assert bytes_of(tmp_path / "other") == {}
    with store.catalog.reading() as txn:
        assert txn.states(ARCHIVE_PLAN) == txn.states(JOB_FILE) == []
    with pytest.raises(JobStopped, match="cancelled"):
        store.jobs.resume(job.id)
    store.archives.create("s/a", tmp_path / "other")
    assert list(ab.verify_archive(tmp_path / "other")) == []


def test_an_archive_asked_for_again_is_the_same_job_and_any_other_in_its_place_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = Puts(monkeypatch, tmp_path / "archive", 3)
    job = store.jobs.archive_scope("s", tmp_path / "archive", window=1)
    assert puts.reached.wait(60)
    assert store.jobs.archive_scope("s", tmp_path / "archive").id == job.id
    with pytest.raises(Conflict, match=f"job {job.id} archives 's'"):
        store.jobs.archive("s/a", tmp_path / "archive")
    puts.open.set()
    report = job.wait()
    assert (
        store.archives.create("s/b", tmp_path / "third", request="r")
        == store.jobs.archive("s/b", tmp_path / "third", request="r").wait()
    )
    with pytest.raises(AlreadyExists):
        store.jobs.archive_scope("s", tmp_path / "archive")
    assert (report.streams, report.events) == (2, 2 * EVENTS)
    (row,) = (row for row in store.jobs.list() if row.id == job.id)
    assert (row.verb, row.sources, row.target) == ("archive", ("s",), str(tmp_path / "archive"))


def test_an_archive_that_failed_is_tried_again_and_one_that_changed_is_mended(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = LocalBlobs.put, [5]

    def full(blobs: LocalBlobs, key: str, chunks: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise ab.errors.DiskFull("the disk is full")
        real(blobs, key, chunks)

    monkeypatch.setattr(LocalBlobs, "put", full)
    job = store.jobs.archive("s/a", tmp_path / "archive", window=1)
    with pytest.raises(ab.errors.DiskFull):
        job.wait()
    assert (job.row().state, "DiskFull" in str(job.row().error)) == (JobState.FAILED, True)
    written = data_of(tmp_path / "archive")
    torn = max(written)  # it was not known to be whole
    (tmp_path / "archive" / torn).write_bytes(written[torn][:-5])
    with store.catalog.reading() as snapshot:
        known = {each.file.name for each in complete_files(snapshot, job.id).values()}
    changed = min(known)  # and is as long as it was
    (tmp_path / "archive" / changed).write_bytes(written[changed][:-5] + bytes(5))
    report = store.archives.create("s/a", tmp_path / "archive")
    assert report.files_there == len(written) - 2 == 2
    assert list(ab.verify_archive(tmp_path / "archive")) == []


def test_an_archive_whose_metadata_is_there_but_whose_job_does_not_know_is_done_when_asked_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ab.errors.StoreUnavailable("just now")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "drop_files", away)
        with pytest.raises(ab.errors.StoreUnavailable):
            store.archives.create("s/a", tmp_path / "archive")
    before = bytes_of(tmp_path / "archive")
    assert METADATA in before
    report = store.archives.create("s/a", tmp_path / "archive")
    assert report.files_there == report.files == len(before) - 1
    assert bytes_of(tmp_path / "archive") == before
    with pytest.raises(AlreadyExists):
        store.archives.create("s/a", tmp_path / "archive")


def test_a_carrier_writes_an_archive_and_brings_it_in(store: Store, other: Store, tmp_path: Path) -> None:
    moved: list[int] = []

    def carrier_of(job_store_of: Store) -> Carrier:
        def carrier(bundles: Sequence[Bundle]) -> None:
            moved.append(len(bundles))
            for each in [*bundles, *bundles[::-2]]:  # some of them twice
                assert carry(each, job_store_of.job_store, job_store_of.job_store)

        return carrier

    store.jobs.archive_scope("s", tmp_path / "archive", carrier=carrier_of(store)).wait()
    store.archives.create_scope("s", tmp_path / "undisturbed")
    assert data_of(tmp_path / "archive") == data_of(tmp_path / "undisturbed")
    other.jobs.import_archive(tmp_path / "archive", carrier=carrier_of(other)).wait()
    for name in ("s/a", "s/b"):
        assert_same(store, name, other, name)
    assert all(count > 5 for count in moved)


# imports


def history(store: Store) -> int:
    return len([*store.blobs.list("history/")])


def names(store: Store) -> list[str]:
    return [str(info.name) for info in store.streams.list(internal=True)]


@pytest.mark.parametrize("after", [3, 6])
def test_an_import_that_was_paused_goes_on_with_the_files_that_are_missing(
    after: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.archives.create_scope("s", tmp_path / "archive")
    with opened("folder", tmp_path / "other") as other:
        puts = Puts(monkeypatch, tmp_path / "other", after)
        job = other.jobs.import_archive(tmp_path / "archive", as_="u", window=2)
        stop_at(puts, job, job.pause)
        with pytest.raises(JobStopped, match="paused"):
            job.wait()
        assert [str(info.name) for info in other.streams.list()] == []
        assert "u" not in [scope.name for scope in other.scopes.list()]
        for _ in range(2):
            other.collect(horizon_us=0)
        staged = history(other)
        assert staged >= after - 2  # but for what was in flight
        assert 0 < job.progress().events < job.row().events == 2 * EVENTS
        imported = other.jobs.resume(job.id).wait()
        assert len(puts.names) <= len(data_of(tmp_path / "archive")) + 2
        assert [str(name) for name, _ in imported.streams] == ["u/a", "u/b"] == names(other)
        for name in ("a", "b"):
            assert_same(store, f"s/{name}", other, f"u/{name}")
        assert other.streams.get("u/also").name == ab.StreamName("u", "b")
        with other.catalog.reading() as txn:
            assert txn.states(JOB_MEMBER) == txn.states(JOB_PLAN) == []


def test_an_import_from_a_bucket_holds_the_file_that_it_brings_and_none_that_it_has_brought(
    store: Store, tmp_path: Path
) -> None:
    store.streams.create("s/large")
    with store.writer("s/large") as writer:
        for n in range(EVENTS):
            writer.write(random.Random(n).randbytes(16 * limits.KIB))
    url = s3_server.fresh_url()
    store.archives.create("s/large", url)
    (archived,) = ab.read_archive(url).archive.streams
    sizes = [file.size for segment in archived.segments for file in segment.files]
    assert len(sizes) == EVENTS // 8
    with opened("folder", tmp_path / "other") as other:
        other.scopes.create("u")
        held: list[int] = []
        hook = HookedBlobs(other.blobs)
        hook.before_put = lambda: held.append(pa.total_allocated_bytes())
        other.blobs = hook
        other.jobs._job_store = other.job_store
        before = pa.total_allocated_bytes()
        job = other.jobs.import_archive(url, as_="u/x", window=1)
        job.wait()
        assert len(held) == len(sizes)
        assert max(held) - before < 3 * max(sizes)
        assert max(sizes) <= (job.memory_peak or 0) < 2 * max(sizes)
        assert_same(store, "s/large", other, "u/x")


def test_a_cancelled_import_leaves_nothing(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.archives.create("s/a", tmp_path / "archive")
    other.scopes.create("u")
    real, reached = type(other.blobs).put, threading.Event()
    held = threading.Event()

    def put(blobs: Any, key: str, chunks: Any) -> None:
        if key.startswith("history/") and history(other) == 3:
            reached.set()
            assert held.wait(60)
        real(blobs, key, chunks)

    monkeypatch.setattr(type(other.blobs), "put", put)
    job = other.jobs.import_archive(tmp_path / "archive", as_="u/x", window=1)
    assert reached.wait(60)
    assert other.jobs.import_archive(tmp_path / "archive", as_="u/x").id == job.id
    stopping = threading.Thread(target=job.cancel)
    stopping.start()
    until(lambda: job.row().wanted is not None)
    held.set()
    stopping.join(60)
    assert job.row().state is JobState.CANCELLED
    for _ in range(3):
        other.collect(horizon_us=0)
    assert names(other) == [] and history(other) == 0
    assert sound(other)


@pytest.mark.parametrize("window", [1, 4])
def test_of_an_archive_with_a_changed_file_nothing_half_imported_stays(
    store: Store, other: Store, tmp_path: Path, window: int
) -> None:
    store.archives.create("s/a", tmp_path / "archive")
    name = max(data_of(tmp_path / "archive"))
    good = (tmp_path / "archive" / name).read_bytes()
    (tmp_path / "archive" / name).write_bytes(bytes([good[0] ^ 1]) + good[1:])
    other.scopes.create("u")
    with pytest.raises(CorruptArchive, match=name):
        other.jobs.import_archive(tmp_path / "archive", as_="u/a", window=window).wait()
    (row,) = other.jobs.list()
    assert (row.state, name in str(row.error)) == (JobState.CANCELLED, True)
    assert names(other) == []
    for _ in range(3):
        other.collect(horizon_us=0)
    assert history(other) == 0
    (tmp_path / "archive" / name).write_bytes(good)
    other.archives.import_(tmp_path / "archive", as_="u/a")
    assert_same(store, "s/a", other, "u/a")


def test_an_import_of_an_archive_that_was_exchanged_meanwhile_ends_by_name(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.archives.create("s/a", tmp_path / "archive")
    store.archives.create("s/a", tmp_path / "second")
    other.scopes.create("u")
    real, left = type(other.blobs).put, [2]

    def full(blobs: Any, key: str, chunks: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise ab.errors.DiskFull("the disk is full")
        real(blobs, key, chunks)

    monkeypatch.setattr(type(other.blobs), "put", full)
    with pytest.raises(ab.errors.DiskFull):
        other.jobs.import_archive(tmp_path / "archive", as_="u/a", window=1).wait()
    (row,) = other.jobs.list()
    assert row.state is JobState.FAILED
    first = (tmp_path / "archive" / METADATA).read_bytes()
    (tmp_path / "archive" / METADATA).write_bytes((tmp_path / "second" / METADATA).read_bytes())
    with pytest.raises(CorruptArchive, match="is not the one"):
        other.jobs.resume(row.id).wait()
    assert names(other) == []
    (tmp_path / "archive" / METADATA).write_bytes(first)
    other.archives.import_(tmp_path / "archive", as_="u/a")
    assert_same(store, "s/a", other, "u/a")
    store.streams.create("s/c")
    with pytest.raises(StreamExists):
        other.jobs.import_archive(tmp_path / "second", as_="u/a")
    assert len(other.jobs.list()) == 2


def test_an_import_that_another_process_runs_is_not_run_twice(store: Store, tmp_path: Path) -> None:
    store.archives.create("s/a", tmp_path / "archive")
    with opened("folder", tmp_path / "b") as target, ab.connect(tmp_path / "b", create=True) as twin:
        target.scopes.create("u")
        gate, at = threading.Event(), threading.Event()

        def watch(*_: object) -> None:
            at.set()
            assert gate.wait(60)

        job = target.jobs.import_archive(tmp_path / "archive", as_="u/a", window=1, progress=watch)
        assert at.wait(60)
        with pytest.raises(JobRunning):
            twin.archives.import_(tmp_path / "archive", as_="u/a")
        made = twin.jobs.resume(job.id, take_over=True).wait()
        gate.set()
        assert job.wait(60) == made
        assert history(twin) <= len(data_of(tmp_path / "archive")) + 1
        assert_same(store, "s/a", twin, "u/a")


def test_a_file_that_another_brought_meanwhile_is_not_appended_twice(
    store: Store, other: Store, tmp_path: Path
) -> None:
    def by_two(bundles: Sequence[Bundle]) -> None:
        for bundle in bundles:
            blobs = HookedBlobs(other.blobs)

            def overtake(bundle: Bundle = bundle, blobs: HookedBlobs = blobs) -> None:
                blobs.before_put = lambda: None
                assert carry(bundle, other.job_store, other.job_store)

            blobs.before_put = overtake
            assert carry(bundle, other.job_store, replace(other.job_store, blobs=blobs))

    store.archives.create_scope("s", tmp_path / "archive")
    other.jobs.import_archive(tmp_path / "archive", carrier=by_two).wait()
    for name in ("s/a", "s/b"):
        assert_same(store, name, other, name)
