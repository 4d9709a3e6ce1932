"""Replacing a time range of out-of-order data as a job: watched, paused, resumed, cancelled, and undisturbed by what
happens to the stream meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.job import JobState
from anabranch.catalog.state.job_plan import REPLACING, REPLACING_PORTION
from anabranch.errors import InvalidArgument, JobRunning, JobStopped, RequestMismatch, StreamNotFound
from anabranch.log.upkeep.extent_rows import ExtentRows
from anabranch.model.stream import StreamInfo
from anabranch.store import Store, at_once
from anabranch.transfer.jobs.replace_range import REWRITTEN
from tests.store.helpers import ANYWHERE, store_at
from tests.store.streams.algebra.test_replace import Row, by_key, healthy, make, numbers, rows, rows_of, write


@pytest.fixture(autouse=True)
def tiny_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLACE_VIEW_EVENTS", 4)
    monkeypatch.setattr(limits, "REPLACE_RUNS_MIN", 2)
    monkeypatch.setattr(limits, "REPLACE_EVENTS_MAX", 10)


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        yield made


def scattered(store: Store, name: str = "s/x", events: int = 100) -> list[Row]:
    """Every second event is in the range 50..51."""
    make(store, name)
    found: list[Row] = [("k", 50 if n % 2 else 10, n) for n in range(events)]
    write(store, rows(*found), name)
    return found


def kept(found: Sequence[Row]) -> list[int]:
    return [n for _, time, n in found if time != 50]


def streams_of(store: Store) -> list[str]:
    return [str(info.name) for info in store.streams.list(internal=True)]


def during(act: Callable[[int], object], *, step: str = REWRITTEN) -> Callable[[str, int, int | None], None]:
    """A progress callback that calls `act` with the number of the call at each report of this step."""
    numbers = count()

    def progress(what: str, _done: int, _total: int | None) -> None:
        if what == step:
            act(next(numbers))

    return progress


def at_first(act: Callable[[], object]) -> Callable[[str, int, int | None], None]:
    """The same for the first report alone."""
    return during(lambda number: act() if number == 0 else None)


# jobs as others are


def pause(store: Store) -> None:
    """Have the job that runs here stop before its next step."""
    for row in store.jobs.list():
        run = store.jobs.get(row.id)._run
        if run is not None and row.state is JobState.RUNNING:
            run.control.stop(JobState.PAUSED)


def paused(store: Store, name: str, **options: Any) -> str:
    """A job that was paused behind its first portion."""
    with pytest.raises(JobStopped):
        store.streams.replace(name, window=1, progress=at_first(lambda: pause(store)), **options)
    return store.jobs.list()[-1].id


def test_the_replacement_is_written_to_after_a_cancelled_job_as_before(store: Store) -> None:
    scattered(store)
    make(store, "s/new")
    write(store, rows(("k", 50, 1_000)), "s/new")
    job = paused(store, "s/x", between=(50, 51), with_="s/new")
    store.jobs.get(job).cancel()
    write(store, rows(("k", 50, 1_001)), "s/new")
    assert numbers(store, "s/new") == [1_000, 1_001]
    healthy(store)


def test_it_is_a_job_that_is_listed_and_whose_progress_is_shown(store: Store) -> None:
    found = scattered(store)
    seen: list[tuple[int, int]] = []
    told: list[tuple[str, int, int | None]] = []

    def look(what: str, done: int, total: int | None) -> None:
        told.append((what, done, total))
        if what == REWRITTEN:
            (row,) = store.jobs.list()
            progress = store.jobs.get(row.id).progress()
            seen.append((progress.events, progress.row.events))
            assert progress.scanned == (100, 100)

    started: list[str] = []
    done = store.streams.replace(
        "s/x", between=(50, 51), with_=None, window=1, progress=look, started=lambda job: started.append(job.id)
    )
    (row,) = store.jobs.list()
    assert started == [row.id]
    assert (row.verb, row.target, row.sources, row.state.value) == ("replace", "s/x", ("nothing",), "done")
    assert (done.removed, done.rewritten, row.events) == (50, 49, 49)
    assert seen == [(10, 49), (20, 49), (30, 49), (40, 49), (49, 49)]
    assert told[0] == ("events scanned", 100, 100)
    assert told[-1] == (REWRITTEN, 49, 49)
    assert store.jobs.get(row.id).wait() == done
    assert numbers(store) == kept(found)
    assert streams_of(store) == ["s/x"]
    healthy(store)


def test_where_events_lie_in_order_no_job_is_made(store: Store) -> None:
    make(store)
    write(store, rows(*(("k", n, n) for n in range(100))))
    assert store.streams.replace("s/x", between=(40, 60), with_=rows(("k", 50, -1))).method == "metadata"
    assert store.jobs.list() == []


def test_asked_for_as_a_job_it_is_one_even_where_events_lie_in_order(store: Store) -> None:
    make(store)
    make(store, "s/new")
    write(store, rows(*(("k", n, n) for n in range(10))))
    write(store, rows(("k", 5, -5)), "s/new")
    job = store.jobs.replace("s/x", between=(4, 6), with_="s/new")
    done = job.wait()
    assert (done.method, done.removed, done.added) == ("metadata", 2, 1)
    assert numbers(store) == [0, 1, 2, 3, -5, 6, 7, 8, 9]
    (origin,) = store.lineage.origins("s/x")
    assert [part.name for part in origin.parts] == ["s/new"]
    new = store.streams.get("s/new").id
    assert {each.source for each in done.moves or ()} == {store.streams.get("s/x").id, new}
    healthy(store)


def test_paused_it_goes_on_where_it_was(store: Store) -> None:
    found = scattered(store)
    before = rows_of(store, "s/x")

    job = paused(store, "s/x", between=(50, 51), with_=None)
    (row,) = store.jobs.list()
    assert (row.id, row.state.value) == (job, "paused")
    assert store.jobs.get(row.id).progress().events == 10
    assert rows_of(store, "s/x") == before
    healthy(store)
    store.compact(force=True)
    for _ in range(2):
        store.collect(horizon_us=0)
    told: list[int] = []
    assert store.jobs.resume(job, window=1, progress=during(told.append)).wait().rewritten == 49
    assert len(told) == 4  # of five portions, one was there
    assert numbers(store) == kept(found)
    healthy(store)


def test_the_portions_of_a_paused_job_outlive_upkeep(store: Store) -> None:
    """Their internal stream is not flattened, which would give their events other logs."""
    found = scattered(store)
    with pytest.raises(JobStopped):
        store.streams.replace(
            "s/x",
            between=(50, 51),
            with_=None,
            window=1,
            progress=during(lambda number: pause(store) if number == 3 else None),
        )
    store.compact(force=True)
    for _ in range(2):
        store.collect(horizon_us=0)
    healthy(store)
    told: list[int] = []
    store.jobs.resume(store.jobs.list()[-1].id, progress=during(told.append)).wait()
    assert len(told) == 1  # of five portions, four were there
    assert numbers(store) == kept(found)
    healthy(store)


def test_scattered_events_are_read_once_an_extent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    scattered(store)
    decoded: list[int] = []
    usual = ExtentRows.rows

    def rows_of_extent(self: ExtentRows, *arguments: Any) -> Any:
        decoded.append(1)
        return usual(self, *arguments)

    monkeypatch.setattr(ExtentRows, "rows", rows_of_extent)
    done = store.streams.replace("s/x", between=(50, 51), with_=None)
    assert done.rewritten == 49
    assert len(decoded) == 5  # one extent, five portions


def test_the_same_call_goes_on_with_the_job_and_another_call_does_not(store: Store) -> None:
    scattered(store)
    new = rows(("k", 50, -1), ("k", 80, -2))
    job = paused(store, "s/x", between=(50, 51), with_=new)
    done = store.streams.replace("s/x", between=(50, 51), with_=new)
    assert [row.id for row in store.jobs.list()] == [job]
    assert (done.removed, done.added) == (50, 2)
    other = store.streams.replace("s/x", between=(50, 52), with_=None)
    assert (other.removed, store.jobs.get(job).row().state.value) == (1, "done")


def test_a_job_that_ends_while_the_same_call_looks_for_it_loses_no_data(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scattered(store)
    new = rows(("k", 50, -1), ("k", 80, -2))
    job = paused(store, "s/x", between=(50, 51), with_=new)

    def found_it(_info: StreamInfo) -> None:
        store.jobs.resume(job).wait()

    monkeypatch.setattr(at_once, "reject_replacement", found_it)
    again = store.streams.replace("s/x", between=(50, 51), with_=new)
    assert (again.removed, again.added) == (1, 2)
    assert sorted(numbers(store)) == sorted([*kept(found), -1, -2, -2])
    healthy(store)


def test_cancelled_it_leaves_nothing(store: Store) -> None:
    scattered(store)
    before = rows_of(store, "s/x")
    job = paused(store, "s/x", between=(50, 51), with_=rows(("k", 50, -1)))
    assert len(streams_of(store)) == 3
    assert store.jobs.get(job).cancel().state.value == "cancelled"
    assert streams_of(store) == ["s/x"]
    assert rows_of(store, "s/x") == before
    with pytest.raises(JobStopped):
        store.jobs.resume(job)
    with store.catalog.reading() as reading:
        assert reading.states(REPLACING) == reading.states(REPLACING_PORTION) == []
    healthy(store)
    done = store.streams.replace("s/x", between=(50, 51), with_=None)  # a new one
    assert done.removed == 50


def test_asked_again_with_its_request_it_is_the_same_replacement(store: Store) -> None:
    found = scattered(store)
    make(store, "s/new")
    write(store, rows(("k", 50, -1)), "s/new")
    first = store.streams.replace("s/x", between=(50, 51), with_="s/new", request="once")
    store.streams.delete("s/new")
    assert store.streams.replace("s/x", between=(50, 51), with_="s/new", request="once") == first
    with pytest.raises(RequestMismatch):
        store.streams.replace("s/x", between=(50, 51), with_=None, request="once")
    assert len(numbers(store)) == len(kept(found)) + 1


def test_a_carrier_is_refused(store: Store) -> None:
    scattered(store)
    job = paused(store, "s/x", between=(50, 51), with_=None)
    with pytest.raises(InvalidArgument, match="carrier"):
        store.jobs.resume(job, carrier=lambda _bundles: None).wait()
    assert store.jobs.resume(job).wait().removed == 50


# other processes


def test_another_process_goes_on_with_the_data_that_was_given(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        found = scattered(store)
        job = paused(store, "s/x", between=(50, 51), with_=rows(("k", 50, -1)))
    with ab.connect(tmp_path / "store", create=True) as store:
        assert store.jobs.resume(job).wait().added == 1
        assert sorted(numbers(store)) == sorted([*kept(found), -1])
        healthy(store)


def test_what_another_process_runs_is_not_run_twice(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store, ab.connect(tmp_path / "store", create=True) as other:
        store.scopes.create("s")
        scattered(store)
        refused: list[BaseException] = []

        def ask() -> None:
            try:
                other.streams.replace("s/x", between=(50, 51), with_=None)
            except JobRunning as exc:
                refused.append(exc)

        store.streams.replace("s/x", between=(50, 51), with_=None, progress=at_first(ask))
        assert len(refused) == 1


# what happens to the source meanwhile


@pytest.mark.parametrize("what", ["appended to", "truncated", "deleted"])
def test_the_replacement_is_the_source_as_it_was(store: Store, what: str) -> None:
    found = scattered(store)
    make(store, "s/new")
    write(store, rows(("k", 50, -1), ("k", 50, -2)), "s/new")

    def change() -> None:
        match what:
            case "appended to":
                write(store, rows(("k", 50, -3)), "s/new")
            case "truncated":
                store.streams.truncate("s/new", store.cuts.tail("s/new"))
            case _:
                store.streams.delete("s/new")
        store.compact(force=True)
        store.collect(horizon_us=0)

    done = store.streams.replace("s/x", between=(50, 51), with_="s/new", progress=at_first(change))
    assert done.added == 2
    assert sorted(numbers(store)) == sorted([*kept(found), -1, -2])
    healthy(store)


# what happens to the stream meanwhile


def test_its_stream_deleted_meanwhile_the_job_fails_and_can_be_cancelled(store: Store) -> None:
    scattered(store)
    with pytest.raises(StreamNotFound):
        store.streams.replace(
            "s/x",
            between=(50, 51),
            with_=rows(("k", 50, -1)),
            progress=at_first(lambda: store.streams.delete("s/x")),
        )
    (row,) = store.jobs.list()
    assert row.state.value == "failed"
    assert "StreamNotFound" in str(row.error)
    scattered(store)  # another stream of that name is none of its business
    with pytest.raises(StreamNotFound):
        store.jobs.resume(row.id).wait()
    store.jobs.get(row.id).cancel()
    assert streams_of(store) == ["s/x"]
    assert len(numbers(store)) == 100
    healthy(store)


def test_renamed_meanwhile_it_is_the_same_stream(store: Store) -> None:
    found = scattered(store)
    done = store.streams.replace(
        "s/x", between=(50, 51), with_=None, progress=at_first(lambda: store.streams.rename("s/x", "s/y"))
    )
    assert (done.removed, numbers(store, "s/y")) == (50, kept(found))


def test_truncated_meanwhile_it_replaces_what_is_left(store: Store) -> None:
    found = scattered(store)

    calls: list[int] = []

    def truncate(number: int) -> None:
        calls.append(number)
        store.streams.truncate("s/x", store.cuts.after("s/x", events=7))
        store.collect(horizon_us=0)

    done = store.streams.replace("s/x", between=(50, 51), with_=None, window=1, progress=during(truncate))
    left = found[7 * len(calls) :]
    assert numbers(store) == kept(left)
    assert done.removed == len(left) - len(kept(left))
    healthy(store)


def test_replaced_meanwhile_both_are_done_one_after_the_other(store: Store) -> None:
    found = scattered(store)

    def other() -> None:
        store.streams.replace("s/x", between=(10, 11), with_=rows(*(("k", n % 60, -n) for n in range(1, 61))))

    done = store.streams.replace("s/x", between=(50, 51), with_=None, progress=at_first(other))
    assert sorted(numbers(store)) == sorted(-n for n in range(1, 61) if n % 60 != 50)
    assert done.removed == len(found) - len(kept(found)) + 1
    healthy(store)


times = st.one_of(st.none(), st.integers(0, 12), st.integers(0, 12))
batch = st.lists(st.tuples(st.sampled_from("abcd"), times), min_size=1, max_size=25)
meanwhile = st.one_of(
    st.tuples(st.just("append"), batch),
    st.tuples(st.just("append"), batch),
    st.tuples(st.just("truncate"), st.integers(0, 15)),
    st.tuples(st.just("scale"), st.integers(1, 4)),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("collect"), st.none()),
    st.tuples(st.just("replace"), st.tuples(st.integers(0, 12), st.integers(1, 4))),
    st.tuples(st.just("pause"), st.none()),
)
_names = count()


class Model:
    """A stream, and the list of the rows that it holds."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.rows: list[Row] = []
        self._numbers = count()
        make(store, name, segments=2)

    def numbered(self, found: Sequence[tuple[str, int | None]]) -> list[Row]:
        return [(key, time, next(self._numbers)) for key, time in found]

    def append(self, found: Sequence[tuple[str, int | None]]) -> None:
        new = self.numbered(found)
        write(self.store, rows(*new), self.name)
        self.rows += new

    def truncate(self, events: int) -> None:
        cut = self.store.cuts.after(self.name, events=events)
        with self.store.reader(self.name, end=cut) as reader:
            gone = {event.body["n"] for event in reader}
        self.store.streams.truncate(self.name, cut)
        self.rows = [row for row in self.rows if row[2] not in gone]

    def removed(self, low: int, high: int) -> None:
        self.rows = [row for row in self.rows if row[1] is None or not low <= row[1] < high]

    def act(self, verb: str, what: Any) -> None:
        match verb:
            case "append":
                self.append(what)
            case "truncate":
                self.truncate(what)
            case "scale":
                self.store.streams.scale(self.name, what)
            case "compact":
                self.store.compact(force=True)
            case "collect":
                self.store.collect(horizon_us=0)
            case "replace":
                self.store.streams.replace(self.name, between=(what[0], sum(what)), with_=None)
                self.removed(what[0], sum(what))

    def check(self) -> None:
        """The stream holds the rows of the list, and those of each key in the order of their numbers."""
        found = rows_of(self.store, self.name)
        assert Counter(found) == Counter(self.rows)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.lists(batch, min_size=1, max_size=5),
    acts=st.lists(meanwhile, max_size=6),
    low=st.integers(0, 12),
    width=st.integers(1, 6),
    new=st.one_of(st.none(), st.lists(st.tuples(st.sampled_from("abcd"), times), max_size=5)),
)
def test_whatever_happens_meanwhile_nothing_is_lost_or_doubled(
    store: Store,
    before: list[list[tuple[str, int | None]]],
    acts: list[tuple[str, Any]],
    low: int,
    width: int,
    new: list[tuple[str, int | None]] | None,
) -> None:
    model = Model(store, f"s/life{next(_names)}")
    for each in before:
        model.append(each)
    left = iter(acts)

    def act() -> None:
        verb, what = next(left, ("nothing", None))
        if verb == "pause":
            pause(store)
        else:
            model.act(verb, what)

    wanted = None if new is None else model.numbered(new)
    options: dict[str, Any] = {
        "between": (low, low + width),
        "with_": None if wanted is None else rows(*wanted),
        "window": 1,
        "progress": lambda *_: act(),
    }
    while True:
        try:
            done = store.streams.replace(model.name, **options)
            break
        except JobStopped:
            continue
    model.removed(low, low + width)
    model.rows += wanted or []
    model.check()
    assert done.added == len(wanted or [])
    kept_rows = [row for row in model.rows if row not in (wanted or [])]
    for key, of_key in by_key(rows_of(store, model.name)).items():
        in_order = [row[2] for row in of_key if row not in (wanted or [])]
        assert in_order == [row[2] for row in kept_rows if row[0] == key]
    assert all(not name.startswith("s/_job") for name in streams_of(store))
    healthy(store)


def test_the_schema_of_the_data_is_checked_before_anything_is_stored(store: Store) -> None:
    scattered(store)
    store.streams.create("s/raw")
    with pytest.raises(ab.errors.SchemaMismatch):
        store.jobs.replace("s/x", between=(50, 51), with_="s/raw")
    with pytest.raises(InvalidArgument, match="between="):
        store.jobs.replace("s/x", between=(51, 50), with_=None)
    with pytest.raises(InvalidArgument, match="expected by="):
        store.jobs.replace("s/x", between=(50, 51), with_=None, by="both")
    assert store.jobs.list() == []
