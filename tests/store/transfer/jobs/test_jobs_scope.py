"""Copies of scopes into another store: one job for all streams, within one window, each stream whole by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.job import JOB_MEMBER
from anabranch.catalog.state.job_plan import JOB_PLAN
from anabranch.errors import InvalidArgument, JobRunning, JobStopped, ScopeNotFound, StreamExists, Truncated
from anabranch.store import Store
from anabranch.transfer.jobs.record import JobState
from anabranch.transfer.jobs.remote_tasks import Bundle, carry
from tests.store.helpers import HookedBlobs, sound
from tests.store.transfer.jobs.kit import SETTINGS, Gate, image, live, opened, stop_at

pytestmark = pytest.mark.usefixtures("many_ranges")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """A store with a scope of a stream that has been through much and six small ones, and one that is empty."""
    with opened("memory", tmp_path) as source, opened("memory", tmp_path) as target:
        live(source)
        for name in "bcdefg":
            source.streams.create(f"s/{name}", scaling=2)
            with source.writer(f"s/{name}") as writer:
                for n in range(4):
                    writer.write(name.encode() * 600, key=str(n)).result()
        yield source, target


def names(store: Store, *, internal: bool = False) -> list[str]:
    return [str(info.name) for info in store.streams.list(internal=internal)]


def assert_same(source: Store, target: Store, scope: str = "u") -> None:
    assert names(target, internal=True) == [name.replace("s/", f"{scope}/") for name in names(source)]
    for name in names(source):
        assert image(target, name.replace("s/", f"{scope}/")) == image(source, name)
    with target.catalog.reading() as txn:
        assert txn.states(JOB_MEMBER) == []
    assert sound(target)


def test_one_job_copies_all_streams_of_a_scope_and_its_tags(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.scopes.create("empty", tags={"a": "b"})
    told: list[tuple[int, int]] = []
    copies = source.scopes.copy("s", "u", to=target, progress=lambda _, *each: told.append(each))
    assert [target.streams.view(each.copy).info.name.name for each in copies] == list("abcdefg")
    assert_same(source, target)
    (row,) = target.jobs.list()
    assert (row.verb, row.sources, row.target, row.members, row.state) == ("copy scope", ("s",), "u", 7, JobState.DONE)
    assert told == sorted(told)
    assert told[-1] == (row.bytes, row.bytes)
    assert target.jobs.get(row.id).progress().events == row.events == 380 + 24
    assert source.scopes.copy("empty", "other", to=target) == []
    assert dict(target.scopes.get("other").tags) == {"a": "b"}


def test_progress_counts_what_came_since_a_copy_of_a_scope_began(pair: tuple[Store, Store]) -> None:
    source, target = pair
    told: list[tuple[int, int]] = []

    def progress(_: str, done: int, total: int) -> None:
        if not told:
            with source.writer("s/g") as writer:
                writer.write(b"g" * 5_000, key="more").result()
        told.append((done, total))

    source.scopes.copy("s", "u", to=target, window=1, progress=progress)
    (row,) = target.jobs.list()
    assert all(done <= total for done, total in told)
    assert told[-1] == (row.bytes, row.bytes)


def test_asked_again_a_copy_of_a_scope_copies_what_is_new_and_changes_nothing_else(pair: tuple[Store, Store]) -> None:
    source, target = pair
    first = source.scopes.copy("s", "u", to=target, request="r")
    blobs = HookedBlobs(target.blobs)
    target.blobs = blobs
    target.jobs._job_store = target.job_store
    assert source.scopes.copy("s", "u", to=target, request="r") == first
    assert source.scopes.copy("s", "u", to=target) == first
    assert blobs.puts == 0
    source.streams.create("s/new")
    again = source.scopes.copy("s", "u", to=target)
    assert again[:-1] == first
    assert_same(source, target)


def test_names_that_are_taken_are_refused_before_anything_is_moved(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.aliases.add("s/b", "s/also")
    target.scopes.create("u")
    for taken in ("u/c", "u/also"):
        target.streams.create(taken)
        with pytest.raises(StreamExists, match=taken):
            source.scopes.copy("s", "u", to=target)
        assert names(target, internal=True) == [taken]
        target.streams.delete(taken)
    assert target.jobs.list() == []
    with pytest.raises(ScopeNotFound):
        source.scopes.copy("none", "v", to=target)
    with pytest.raises(InvalidArgument, match="onto itself"):
        source.scopes.copy("s", "s", to=source)
    assert [scope.name for scope in target.scopes.list()] == ["u"]


def test_aliases_of_a_scope_lead_to_the_copies(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.scopes.create("x")
    source.aliases.add("s/b", "s/also")
    source.aliases.add("s/b", "x/elsewhere")
    source.streams.copy("s/c", "x/c")
    source.aliases.add("x/c", "s/foreign")
    for _ in range(2):
        source.scopes.copy("s", "u", to=target)
    assert {str(alias): str(name) for alias, name in target.aliases.of().items()} == {"u/also": "u/b"}


def test_internal_and_ephemeral_streams_stay_behind_unless_asked_for(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.create("s/_own")
    with source.ephemeral.create("s/gone"):
        source.scopes.copy("s", "u", to=target)
        source.scopes.copy("s", "v", to=target, internal=True, ephemeral=True)
    assert {name[2:] for name in names(target, internal=True) if name[0] == "v"} == {*"abcdefg", "_own", "gone"}
    assert {name[2:] for name in names(target, internal=True) if name[0] == "u"} == {*"abcdefg"}


@pytest.mark.parametrize("after", [1, 9, 16])
def test_a_paused_copy_of_a_scope_goes_on_as_one(after: int, pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, after)
    job = target.jobs.copy_scope(source, "s", "u", window=2)
    stop_at(gate, job, job.pause)
    with pytest.raises(JobStopped, match="paused"):
        job.wait()
    progress = job.progress()
    assert progress.events < progress.row.events
    assert sum(each.reached - each.start for each in progress.ranges) <= progress.events
    puts = HookedBlobs(target.blobs)
    target.blobs = puts
    target.jobs._job_store = target.job_store
    source.streams.create("s/later")  # was not there when the job was made
    copies = target.jobs.resume(job.id, source=source).wait()
    assert [target.streams.view(each.copy).info.name.name for each in copies] == list("abcdefg")
    source.streams.delete("s/later")
    assert_same(source, target)


def test_a_cancelled_copy_of_a_scope_keeps_whole_streams_and_nothing_else(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.delete("s/a")
    gate = Gate(target, 5)
    job = target.jobs.copy_scope(source, "s", "u", window=1)
    stop_at(gate, job, job.cancel)
    assert job.row().state is JobState.CANCELLED
    there = names(target, internal=True)
    assert 0 < len(there) < 6
    for name in there:
        assert image(target, name) == image(source, name.replace("u/", "s/"))
    with target.catalog.reading() as txn:
        assert txn.states(JOB_MEMBER) == txn.states(JOB_PLAN) == []
    for _ in range(3):
        target.collect(horizon_us=0)
    used = set()
    with target.catalog.reading() as txn:
        used = {str(row[0]) for row in txn.export("blobs")}
    assert {info.key for info in target.blobs.list("commits/")} <= used
    assert sound(target)
    source.scopes.copy("s", "u", to=target)
    assert_same(source, target)


def test_one_window_bounds_what_all_streams_hold_and_have_in_flight(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.delete("s/a")  # whose files are larger than messages
    for number in range(3):
        source.streams.create(f"s/many-{number}", scaling=2)
        with source.writer(f"s/many-{number}") as writer:
            for n in range(10):
                writer.write(bytes(200), key=str(n)).result()
    lock, flying, most = threading.Lock(), 0, 0
    real = target.blobs

    class Counting(HookedBlobs):
        def put(self, key: str, chunks: Sequence[object]) -> None:
            nonlocal flying, most
            with lock:
                flying += 1
                most = max(most, flying)
            try:
                super().put(key, chunks)  # type: ignore[arg-type]
            finally:
                with lock:
                    flying -= 1

    target.blobs = Counting(real)
    target.jobs._job_store = target.job_store
    job = target.jobs.copy_scope(source, "s", "u", window=3)
    job.wait()
    assert 0 < most <= 3
    largest = 2 * limits.KIB  # a message of these streams
    assert 0 < (job.memory_peak or 0) <= 3 * (limits.JOB_BLOB_BYTES + largest)
    assert_same(source, target)


def test_streams_of_a_scope_are_copied_at_the_same_time(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.delete("s/a")  # what is left are streams of one bundle each
    meeting = threading.Barrier(3)
    blobs = HookedBlobs(target.blobs)
    met: list[int] = []

    def before_put() -> None:
        if len(met) < 3:
            met.append(1)
            meeting.wait(60)

    blobs.before_put = before_put
    target.blobs = blobs
    target.jobs._job_store = target.job_store
    target.jobs.copy_scope(source, "s", "u", window=3).wait()
    assert len(met) == 3
    assert_same(source, target)


def test_a_stream_that_is_deleted_before_its_turn_is_not_copied(pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, 1)
    job = target.jobs.copy_scope(source, "s", "u", window=1)
    assert gate.reached.wait(60)
    source.streams.delete("s/g")
    source.streams.rename("s/f", "s/x")  # it is the same stream
    gate.open.set()
    assert len(job.wait()) == 6
    assert names(target, internal=True) == [f"u/{name}" for name in "abcdef"]
    assert job.progress().events == job.row().events == 380 + 20


def test_what_is_truncated_under_way_fails_the_job_which_goes_on_with_the_others(pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, 1)
    job = target.jobs.copy_scope(source, "s", "u", window=1)
    assert gate.reached.wait(60)
    source.streams.truncate("s/a", source.cuts.tail("s/a"))
    gate.open.set()
    with pytest.raises(Truncated):
        job.wait()
    assert job.row().state is JobState.FAILED
    assert "Truncated" in str(job.row().error)
    job.cancel()
    source.scopes.copy("s", "u", to=target)
    assert_same(source, target)


def test_a_carrier_moves_the_bundles_of_all_streams(pair: tuple[Store, Store]) -> None:
    source, target = pair
    moved: list[int] = []

    def carrier(bundles: Sequence[Bundle]) -> None:
        moved.append(len(bundles))
        if len(moved) == 1:
            assert all(carry(each, source.job_store, target.job_store) for each in bundles[::2])
            raise RuntimeError("half of it")
        for each in reversed(bundles):
            assert carry(each, source.job_store, target.job_store)

    job = target.jobs.copy_scope(source, "s", "u", carrier=carrier)
    with pytest.raises(RuntimeError, match="half"):
        job.wait()
    assert 0 < job.progress().events < job.row().events
    target.jobs.resume(job.id, source=source, carrier=carrier).wait()
    assert moved[0] > 10
    assert_same(source, target)


def test_a_copy_of_a_scope_that_another_process_runs_is_waited_for_and_found_again(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as source, opened("folder", tmp_path / "b") as target:
        source.scopes.create("s")
        for name in ("s/a", "s/b"):
            source.streams.create(name)
            with source.writer(name) as writer:
                writer.write(bytes(600)).result()
        gate = Gate(target, 1)
        job = target.jobs.copy_scope(source, "s", "u", window=1)
        assert gate.reached.wait(60)
        with ab.connect(tmp_path / "b", settings=SETTINGS, create=True) as other:
            found = other.jobs.get(job.id)
            with pytest.raises(TimeoutError):
                found.wait(0.01)
            with pytest.raises(JobRunning):
                source.scopes.copy("s", "u", to=other)
            gate.open.set()
            assert found.wait(120) == job.wait(120)
        assert_same(source, target)


@pytest.mark.parametrize("places", ["memory postgres", "postgres memory"])
def test_a_scope_is_copied_between_catalogs_of_any_kind(places: str, tmp_path: Path) -> None:
    first, second = places.split()
    with opened(first, tmp_path / "a") as source, opened(second, tmp_path / "b") as target:
        source.scopes.create("s")
        for name in ("s/a", "s/b"):
            source.streams.create(name, scaling=2)
            with source.writer(name) as writer:
                for n in range(6):
                    writer.write(bytes(600), key=str(n)).result()
        source.aliases.add("s/b", "s/also")
        source.scopes.copy("s", "u", to=target)
        assert_same(source, target)
        assert target.streams.get("u/also").name == ab.StreamName("u", "b")
