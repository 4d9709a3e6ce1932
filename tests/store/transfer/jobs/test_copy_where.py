"""Copies by a filter: the copy is what a filtered list would be, in the same segments, and only what lies scattered is
stored again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.job import JobState
from anabranch.catalog.state.job_plan import COPY_PORTION
from anabranch.core import cuts
from anabranch.core.stream_slice import plan_slice
from anabranch.errors import (
    InvalidArgument,
    InvalidCut,
    InvalidPointer,
    InvalidSql,
    JobStopped,
    RequestMismatch,
    StreamExists,
    StreamNotFound,
)
from anabranch.log.segment_reader import SegmentReader
from anabranch.model.event import Event
from anabranch.store import Store
from tests.parameters import rest_is_slow
from tests.store.helpers import ANYWHERE, store_at
from tests.store.streams.algebra.test_replace import healthy, make, numbers, rows, write


@pytest.fixture(autouse=True)
def tiny_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLACE_VIEW_EVENTS", 4)
    monkeypatch.setattr(limits, "REPLACE_RUNS_MIN", 2)
    monkeypatch.setattr(limits, "REPLACE_EVENTS_MAX", 10)
    monkeypatch.setattr(limits, "JOB_RANGE_BYTES", 400)


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        yield made


class Chosen(NamedTuple):
    """A condition in SQL, and what it is in Python, where null is false."""

    where: str
    matches: Callable[[Any], bool]


def at(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


def timed(test: Callable[[int], bool]) -> Callable[[Any], bool]:
    """A test of the time, which is false for events without one."""
    return lambda event: event.time is not None and test(event.time)


CONDITIONS = [
    Chosen("n % 2 = 0", lambda e: e.body["n"] % 2 == 0),
    Chosen("n % 7 = 0 AND n > 20", lambda e: e.body["n"] % 7 == 0 and e.body["n"] > 20),
    Chosen("n < 50", lambda e: e.body["n"] < 50),
    Chosen("n >= 30 AND n < 60 OR key = 'b'", lambda e: 30 <= e.body["n"] < 60 or e.key == "b"),
    Chosen("key = 'a'", lambda e: e.key == "a"),
    Chosen("key IN ('b', 'c')", lambda e: e.key in ("b", "c")),
    Chosen("NOT key IN ('b', 'c')", lambda e: e.key is not None and e.key not in ("b", "c")),
    Chosen("key IS NULL", lambda e: e.key is None),
    Chosen(f"\"at\" < '{at(40)}'", timed(lambda t: t < 40)),
    Chosen(f"NOT \"at\" < '{at(40)}'", timed(lambda t: t >= 40)),
    Chosen(f"\"at\" BETWEEN '{at(20)}' AND '{at(60)}'", timed(lambda t: 20 <= t <= 60)),
    Chosen('"at" IS NULL OR n % 3 = 1', lambda e: e.time is None or e.body["n"] % 3 == 1),
    Chosen("_offset % 3 = 0", lambda e: e.pointer.offset % 3 == 0),
    Chosen("true", lambda _e: True),
    Chosen("n < 0", lambda _e: False),
    Chosen("_appended >= '1990-01-01'", lambda _e: True),
    Chosen("_appended < '1990-01-01' OR key = 'd'", lambda e: e.key == "d"),
]


def events(store: Store, name: str) -> list[Event]:
    return events_from(store, name, ab.HEAD)


def events_from(store: Store, name: str, start: Any) -> list[Event]:
    with store.reader(name, start=start) as reader:
        return list(reader)


def numbers_from(store: Store, name: str, start: Any) -> list[int]:
    return sorted(event.body["n"] for event in events_from(store, name, start))


def by_key(found: list[Event]) -> dict[str | None, list[int]]:
    held: dict[str | None, list[int]] = defaultdict(list)
    for event in found:
        held[event.key].append(event.body["n"])
    held.pop(None, None)  # null keys are spread, and have no order
    return dict(held)


def by_segment(found: list[Event]) -> dict[int, list[int]]:
    held: dict[int, list[int]] = defaultdict(list)
    for event in found:
        held[event.pointer.segment.packed].append(event.body["n"])
    return dict(held)


def grow(store: Store, rng: random.Random, name: str = "s/x") -> None:
    """A stream with a history of appends, scales, truncations and compactions."""
    make(store, name, segments=2)
    numbered = count()
    for _ in range(rng.randrange(3, 8)):
        table = [
            (rng.choice([*"abcd", None]), rng.choice([None, rng.randrange(100)]), next(numbered))
            for _ in range(rng.randrange(1, 30))
        ]
        write(store, rows(*table), name)  # type: ignore[arg-type]
        match rng.randrange(6):
            case 0:
                store.streams.scale(name, rng.randrange(1, 4))
            case 1:
                store.compact(name, force=True)
            case 2:
                view = store.streams.view(name)
                cut = {s.id: rng.randrange(s.head, view.length(s.id) + 1) for s in view.current}
                if rng.randrange(3) == 0:
                    store.streams.truncate(name, ab.StreamCut.of(view.info.id, cut))
            case 3:
                store.streams.copy(name, f"s/other-{next(numbered)}")


@pytest.mark.parametrize("seed", rest_is_slow(range(60)))
def test_a_copy_holds_what_a_filtered_list_holds_in_the_same_segments(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    grow(store, rng)
    found = events(store, "s/x")
    for number, (where, matches) in enumerate(rng.sample(CONDITIONS, 4)):
        name = f"s/copy-{number}"
        copied = store.streams.copy("s/x", name, where=where, window=2)
        expected = [event for event in found if matches(event)]
        made = events(store, name)
        assert by_key(made) == by_key(expected), (seed, where)
        assert by_segment(made) == by_segment(expected), (seed, where)
        assert copied.filtered is not None
        assert copied.filtered.events == len(expected)
        source, view = store.streams.view("s/x"), store.streams.view(name)
        assert [(s.id, s.range, s.retired, s.head) for s in view.ordered] == [
            (s.id, s.range, s.retired, s.head) for s in source.ordered
        ]
        there = {event.body["n"]: event.pointer for event in made}
        for event in found:  # pointers and cuts
            if event.body["n"] in there:
                assert copied.pointer(event.pointer) == there[event.body["n"]]
            else:
                with pytest.raises(InvalidPointer, match="left out"):
                    copied.pointer(event.pointer)
        with store.reader("s/x") as reader:
            for _ in zip(range(rng.randrange(len(found) + 1)), reader, strict=False):
                pass
            place = reader.position
        assert numbers_from(store, name, copied.cut(place)) == sorted(
            event.body["n"] for event in events_from(store, "s/x", place) if matches(event)
        )
    write(store, rows(("a", 5, 1_000)), "s/copy-0")
    assert 1_000 in numbers(store, "s/copy-0")
    store.compact(force=True)
    for _ in range(3):
        store.collect(horizon_us=0)
    assert by_key(events(store, "s/x")) == by_key(found)
    healthy(store)


# where the catalog alone decides


def key_of(n: int) -> str:
    return "abcd"[n // 2 % 4]


def pages(store: Store) -> None:
    """Two commits for each of two segments."""
    make(store, segments=2)
    for first in (0, 40):
        write(store, rows(*[(key_of(n), n, n) for n in range(first, first + 40)]))


def blobs_of(store: Store) -> set[str]:
    return {info.key for info in store.blobs.list()}


def test_by_the_append_time_of_commits_only_the_catalog_changes(store: Store) -> None:
    pages(store)
    with store.reader("s/x") as reader:
        times = sorted({row for batch in reader.batches() for row in batch.column("_appended").to_pylist()})
    before = blobs_of(store)
    copied = store.streams.copy("s/x", "s/y", where=f"_appended >= TIMESTAMPTZ '{times[-1].isoformat()}'")
    assert copied.filtered is not None
    assert (copied.filtered.events, copied.filtered.rewritten) == (40, 0)
    assert sorted(numbers(store, "s/y")) == list(range(40, 80))
    assert store.jobs.list() == []
    assert blobs_of(store) == before
    healthy(store)


def test_segments_whose_key_range_holds_no_wanted_key_are_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages(store)
    (low, high) = store.streams.view("s/x").current
    present = {event.key: event.pointer.segment for event in events(store, "s/x")}
    wanted = next(key for key, segment in present.items() if segment == low.id)
    planned: list[Any] = []
    from anabranch.transfer.filters import scan

    class Watched(SegmentReader):
        def plan(self, *args: Any, **kwargs: Any) -> Any:
            planned.append(self.segment)
            return super().plan(*args, **kwargs)

    monkeypatch.setattr(scan, "SegmentReader", Watched)
    store.streams.copy("s/x", "s/y", keys=[wanted])
    assert set(planned) == {low.id}
    assert {event.key for event in events(store, "s/y")} == {wanted}
    assert high.id in {segment.id for segment in store.streams.view("s/y").current}


def test_keys_and_a_condition_both_hold(store: Store) -> None:
    pages(store)
    store.streams.copy("s/x", "s/y", keys=["a", "b"], where="n < 20 -- a remark")
    assert sorted(numbers(store, "s/y")) == [n for n in range(20) if key_of(n) in "ab"]
    with pytest.raises(InvalidArgument, match="takes a list of routing keys, got b'ab'"):
        store.streams.copy("s/x", "s/z", keys=b"ab")
    with pytest.raises(InvalidArgument, match="takes a list of routing keys, got 'ab'"):
        store.streams.copy("s/x", "s/z", keys="ab")


def test_long_runs_are_viewed_in_place_and_scattered_events_stored_again(store: Store) -> None:
    make(store)
    write(store, rows(*[("k", n, n) for n in range(100)]))
    long = store.streams.copy("s/x", "s/long", where="n < 30 OR n >= 70").filtered
    mixed = store.streams.copy("s/x", "s/mixed", where="n < 30 OR n % 2 = 0").filtered
    assert long is not None
    assert mixed is not None
    assert (long.events, long.rewritten) == (60, 0)
    assert mixed.events == 30 + 35
    assert 0 < mixed.rewritten <= 35
    assert numbers(store, "s/mixed") == [n for n in range(100) if n < 30 or n % 2 == 0]
    healthy(store)


def test_a_range_of_a_raw_stream_is_filtered_by_key_time_and_payload(store: Store) -> None:
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        for n in range(40):
            writer.write(b"%d" % n, key="ab"[n % 2], time=n).result()
    view = store.streams.view("s/raw")
    part = ab.StreamRange("s/raw", ab.StreamCut.of(view.info.id, {view.current[0].id: 10}))
    store.streams.copy(part, "s/y", where="key = 'a' AND payload::VARCHAR LIKE '%2'")
    assert [event.body for event in events(store, "s/y")] == [b"12", b"22", b"32"]
    assert store.streams.view("s/y").ordered[0].head == 10


# what happens meanwhile


def meanwhile(act: Callable[[], object]) -> Callable[[str, int, int | None], None]:
    """A progress callback that acts once."""
    acts = iter([act])

    def progress(_what: str, _done: int, _total: int | None) -> None:
        for each in acts:
            each()

    return progress


@pytest.mark.parametrize("what", ["append", "truncate", "delete", "compact", "replace", "scale"])
def test_the_source_is_copied_as_it_was_when_the_call_began(store: Store, what: str) -> None:
    pages(store)

    def act() -> None:
        if what == "append":
            write(store, rows(*[("a", n, n) for n in range(80, 120)]))
        elif what == "truncate":
            store.streams.truncate("s/x", cuts.tail_cut(store.streams.view("s/x")))
        elif what == "delete":
            store.streams.delete("s/x")
        elif what == "replace":
            store.streams.replace("s/x", between=(0, 40), with_=None)
        elif what == "scale":
            store.streams.scale("s/x", 3)
        store.compact(force=True)
        for _ in range(2):
            store.collect(horizon_us=0)

    store.streams.copy("s/x", "s/y", where="n % 2 = 0", window=1, progress=meanwhile(act))
    assert sorted(numbers(store, "s/y")) == list(range(0, 80, 2))
    for _ in range(3):
        store.collect(horizon_us=0)
    assert sorted(numbers(store, "s/y")) == list(range(0, 80, 2))
    healthy(store)


def pause(store: Store) -> None:
    for row in store.jobs.list():
        run = store.jobs.get(row.id)._run
        if run is not None and row.state is JobState.RUNNING:
            run.control.stop(JobState.PAUSED)


def paused(store: Store, **options: Any) -> str:
    """A job that was paused behind its first portion."""
    with pytest.raises(JobStopped):
        store.streams.copy(
            "s/x", "s/y", where="n % 2 = 0", window=1, progress=meanwhile(lambda: pause(store)), **options
        )
    return store.jobs.list()[-1].id


def test_a_paused_job_continues_with_the_portions_that_are_missing(store: Store) -> None:
    pages(store)
    job = paused(store)
    with store.catalog.reading() as reading:
        portions = [portion for _, portion in reading.states(COPY_PORTION)]
    done = sum(portion.kept is not None for portion in portions)
    assert 0 < done < len(portions)
    progress = store.jobs.get(job).progress()
    assert 0 < progress.events < progress.row.events == 80
    write(store, rows(("a", 100, 100)))
    seen: list[int] = []
    copied = store.streams.copy(
        "s/x", "s/y", where="n % 2 = 0", window=1, progress=lambda _what, done, _total: seen.append(done)
    )
    assert len(seen) == len(portions) - done
    assert sorted(numbers(store, "s/y")) == list(range(0, 80, 2))
    (row,) = store.jobs.list()
    assert (row.id, row.verb, row.state) == (job, "copy where", JobState.DONE)
    assert store.jobs.get(job).wait() == copied
    with store.catalog.reading() as reading:
        assert reading.states(COPY_PORTION) == []
    assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/x", "s/y"]
    healthy(store)


def test_a_cancelled_job_leaves_nothing_and_the_source_goes_on(store: Store) -> None:
    pages(store)
    job = paused(store)
    store.jobs.get(job).cancel()
    assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/x"]
    with store.catalog.reading() as reading:
        assert reading.states(COPY_PORTION) == []
    write(store, rows(("a", 100, 100)))
    assert 100 in numbers(store)
    assert not store.streams.exists("s/y")
    healthy(store)


def test_the_same_call_again_changes_nothing(store: Store) -> None:
    pages(store)
    first = store.streams.copy("s/x", "s/y", where="n % 2 = 0")
    write(store, rows(("a", 100, 100)))
    assert store.streams.copy("s/x", "s/y", where="n % 2 = 0") == first
    assert 100 not in numbers(store, "s/y")
    with pytest.raises(StreamExists):
        store.streams.copy("s/x", "s/y", where="n % 2 = 1")
    with pytest.raises(StreamExists):
        store.streams.copy("s/x", "s/y")


@pytest.mark.parametrize("condition", ["n % 2 = 0", "_appended > '1990-01-01'"])
def test_a_condition_is_the_same_with_space_around_it(store: Store, condition: str) -> None:
    pages(store)
    first = store.streams.copy("s/x", "s/y", where=f"\n  {condition}\n")
    assert store.streams.copy("s/x", "s/y", where=f"\n  {condition}\n") == first
    assert store.streams.copy("s/x", "s/y", where=condition) == first
    assert store.jobs.copy_where("s/x", "s/y", f" {condition}").wait() == first


def test_a_copy_that_is_deleted_while_it_is_asked_for_again_is_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages(store)
    store.streams.copy("s/x", "s/y", where="_appended > '1990-01-01'")
    from anabranch.transfer.filters import at_once

    act = meanwhile(lambda: store.streams.delete("s/y"))

    def deleting(*args: Any) -> Any:
        act("", 0, None)
        return plan_slice(*args)

    monkeypatch.setattr(at_once, "plan_slice", deleting)
    store.streams.copy("s/x", "s/y", where="_appended > '1990-01-01'")
    assert sorted(numbers(store, "s/y")) == list(range(80))


def test_a_key_with_a_nul_is_found(store: Store) -> None:
    make(store, segments=4)
    write(store, rows(*[(f"{letter}\0", n, n) for n, letter in enumerate("abc")]))
    for n, letter in enumerate("abc"):
        store.streams.copy("s/x", f"s/y{n}", keys=[f"{letter}\0"])
        assert numbers(store, f"s/y{n}") == [n]


@pytest.mark.parametrize("where", ["n % 2 = 0", "_appended > '1990-01-01'"])
def test_a_request_is_answered_once_also_when_the_source_is_gone(store: Store, where: str) -> None:
    pages(store)
    first = store.streams.copy("s/x", "s/y", where=where, keys=["a", "b"], request="r")
    store.streams.delete("s/x")
    store.streams.delete("s/y")
    assert store.streams.copy("s/x", "s/y", where=where, keys=["a", "b"], request="r") == first
    assert not store.streams.exists("s/y")
    with pytest.raises(RequestMismatch):
        store.streams.copy("s/x", "s/y", where="true", request="r")


def test_the_lineage_of_the_copy_names_the_source_and_the_number_of_events(store: Store) -> None:
    pages(store)
    for number, where in enumerate(("n % 2 = 0", "_appended > '1990-01-01'")):
        copied = store.streams.copy("s/x", f"s/y{number}", where=where)
        (origin,) = store.lineage.origins(f"s/y{number}")
        assert copied.filtered is not None
        assert (origin.how, origin.parts[0].name, origin.parts[0].events) == (
            "copied",
            "s/x",
            copied.filtered.events,
        )


def test_columns_that_were_added_later_are_null_in_older_events(store: Store) -> None:
    import pyarrow as pa

    from tests.store.streams.algebra.test_replace import COLUMNS

    pages(store)
    wider = COLUMNS.append(pa.field("site", pa.string()))
    store.streams.evolve("s/x", wider)
    with store.writer("s/x") as writer:
        for n in range(80, 100):
            writer.write({"key": "a", "n": n, "site": "north" if n % 2 else None}).result()
    store.streams.copy("s/x", "s/y", where="site = 'north'")
    assert [event.body["n"] for event in events(store, "s/y")] == list(range(81, 100, 2))
    store.streams.copy("s/x", "s/z", where="site IS NULL AND n % 3 = 0")
    assert sorted(e.body["n"] for e in events(store, "s/z")) == [
        n for n in range(100) if n % 3 == 0 and not (n > 80 and n % 2)
    ]
    assert store.streams.get("s/z").schema_version == store.streams.get("s/x").schema_version
    healthy(store)


# what is refused


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("n = = 1", "syntax error"),
        ("nosuch = 1", 'Referenced column "nosuch" not found'),
        ("at > 5", 'write a column of that name as "at"'),
        ("n = 'x'", "Could not convert string 'x'"),
        ("n IN (SELECT 1)", "not on a subquery"),
        ("row_number() OVER () = 1", "not on a window"),
        ("sum(n) > 1", "cannot contain aggregates"),
        ("random() < 0.5", "the result of random changes"),
        ('"at" > now()', "the result of now changes"),
        ('"at" > current_timestamp', "the result of current_timestamp changes"),
        ('"at" > ago(INTERVAL 1 DAY)', "the result of ago changes"),
        ('age("at") > INTERVAL 1 DAY', "the result of age changes"),
        ("n = 1) ORDER BY (n", "expected one condition"),
        ("n = 1; DROP TABLE x", "syntax error"),
        ("n = ?", "not on a parameter"),
        (" ", "expected a condition"),
        (5, "expected a condition"),
    ],
)
def test_a_condition_that_can_not_be_used_is_refused_at_once_in_one_line(tmp_path: Path, where: Any, says: str) -> None:
    with store_at("memory", tmp_path) as store:
        pages(store)
        with pytest.raises(InvalidArgument) as caught:
            store.streams.copy("s/x", "s/y", where=where)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
        with pytest.raises(InvalidArgument):
            store.jobs.copy_where("s/x", "s/y", where)
        assert store.jobs.list() == []
        assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/x"]


def test_a_condition_that_fails_for_an_event_fails_the_job_and_makes_nothing(store: Store) -> None:
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        for text in (b"1", b"x"):
            writer.write(text).result()
    with pytest.raises(InvalidSql, match="Could not convert string 'x'"):
        store.streams.copy("s/raw", "s/y", where="payload::VARCHAR::BIGINT = 1")
    assert [row.state for row in store.jobs.list()] == [JobState.FAILED]
    assert not store.streams.exists("s/y")


def test_what_a_filter_does_not_go_with_is_said(store: Store) -> None:
    pages(store)
    for options in ({"to": store}, {"independent": True}, {"follow": True}):
        with pytest.raises(InvalidArgument, match="copy with where= first"):
            store.streams.copy("s/x", "s/y", where="true", **options)
    with pytest.raises(StreamNotFound):
        store.streams.copy("s/nosuch", "s/y", where="true")
    store.bytes("s/bytes", "xb").close()
    with pytest.raises(InvalidArgument, match="byte stream"):
        store.streams.copy("s/bytes", "s/y", where="true")


def test_pointers_into_a_copy_that_is_too_scattered_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLACE_MOVES_MAX", 3)
    pages(store)
    copied = store.streams.copy("s/x", "s/y", where="n % 2 = 0")
    assert copied.filtered is not None
    assert copied.filtered.ranges is None
    with pytest.raises(InvalidPointer, match="too scattered"):
        copied.pointer(events(store, "s/x")[0].pointer)
    with pytest.raises(InvalidCut, match="too scattered"):
        copied.cut(cuts.tail_cut(store.streams.view("s/x")))
    with pytest.raises(InvalidPointer, match="belongs to stream"):
        copied.pointer(events(store, "s/y")[0].pointer)
