"""A cut at an event time reports how many events are on the wrong side of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.log.read import LogReader
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, store_at

COLUMNS = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])

Row = tuple[str, int | None]


def make(store: Store, name: str = "s/x", *, segments: int = 1) -> None:
    store.streams.create(name, schema=COLUMNS, key="key", time="at", scaling=segments)


def write(store: Store, found: Sequence[Row], name: str = "s/x") -> None:
    keys, times = [key for key, _ in found], [time for _, time in found]
    at = pa.array(times, pa.int64()).cast(COLUMNS.field("at").type)
    table = pa.table([pa.array(keys, pa.string()), at, pa.array(range(len(found)), pa.int64())], schema=COLUMNS)
    with store.writer(name) as writer:
        writer.write_batch(table).result()


def times_between(store: Store, name: str, start: Any, end: Any) -> list[int | None]:
    with store.reader(name, start=start, end=end) as reader:
        return [time for batch in reader.batches() for time in batch.column("at").cast(pa.int64()).to_pylist()]


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        yield made


def warned(store: Store, time: int, name: str = "s/x", **options: Any) -> list[ab.MisplacedEventsWarning]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.cuts.at(name, time, **options)
    found = [each.message for each in caught]
    assert all(isinstance(each, ab.MisplacedEventsWarning) for each in found)
    return [each for each in found if isinstance(each, ab.MisplacedEventsWarning)]


def test_a_cut_at_an_event_time_warns_of_earlier_events_after_it(store: Store) -> None:
    make(store)
    write(store, [("k", time) for time in [1, 2, 9, 3, None, 4, 8, 12]])
    with pytest.warns(ab.MisplacedEventsWarning, match=r"'s/x' .* 2 events after the cut .*streams\.replace") as caught:
        cut = store.cuts.at("s/x", 5, by="event")
    (found,) = caught
    assert found.filename == __file__
    assert isinstance(found.message, ab.MisplacedEventsWarning)
    assert found.message.misplaced == store.streams.misplaced("s/x", 5)
    assert (found.message.misplaced.cut, found.message.misplaced.after_cut) == (cut, 2)
    assert found.message.stream == "s/x"


def test_a_cut_that_is_a_filter_does_not_warn_nor_does_one_that_is_not_counted(store: Store) -> None:
    make(store)
    write(store, [("k", time) for time in [1, 2, 9, 3]])
    assert warned(store, 1, by="event") == warned(store, 2, by="event") == []
    assert warned(store, 5, by="append") == []
    assert warned(store, 5, by="event", count_misplaced=False) == []
    assert [each.misplaced.after_cut for each in warned(store, 5, by="event")] == [1]


def in_blobs(store: Store, blocks: Sequence[Sequence[int]]) -> None:
    """One extent for each block of times."""
    make(store)
    for block in blocks:
        write(store, [("k", time) for time in block])


def test_nothing_is_read_to_count_where_bounds_prove_that_all_are_on_their_side(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blobs(store, [[0, 9], [10, 19], [20, 29], [30, 39], [40, 41]])
    read = pieces_read(monkeypatch)
    cut = store.cuts.at("s/x", 20, by="event", count_misplaced=False)
    searched = len(read)
    assert store.cuts.at("s/x", 20, by="event") == cut
    assert len(read) == 2 * searched
    assert not store.streams.misplaced("s/x", 20, cut=cut)
    assert len(read) == 2 * searched


def test_only_extents_on_both_sides_of_the_time_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    in_blobs(store, [[0, 9], [10, 30], [11, 12], [31, 39], [40, 49], [18, 50], [60, 69]])
    read = pieces_read(monkeypatch)
    cut = store.cuts.at("s/x", 20, by="event", count_misplaced=False)
    searched = len(read)
    found = store.streams.misplaced("s/x", 20)
    assert (found.cut, found.before_cut, found.after_cut) == (cut, 0, 3)
    assert len(read) == 2 * searched + 3  # that of 30, where the cut is, that of 11 and 12, and that of 18


def pieces_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fills with the extents that are read from now on."""
    found: list[Any] = []
    usual = LogReader.rows

    def rows(self: LogReader, pieces: Sequence[Any], selection: Any) -> Any:
        found.extend(pieces)
        return usual(self, pieces, selection)

    monkeypatch.setattr(LogReader, "rows", rows)
    return found


def test_a_time_is_read_by_the_rules_of_the_store(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", settings=Settings(time_zone="Europe/Zurich"), create=True) as store:
        store.scopes.create("s")
        make(store)
        moment = int(datetime(2026, 1, 31, 11, tzinfo=UTC).timestamp()) * 1_000_000
        write(store, [("k", moment), ("k", moment - 1)])
        assert store.streams.misplaced("s/x", "2026-01-31T12:00:00").after_cut == 1
        done = store.streams.replace("s/x", between=("2026-01-31T12:00:00", "2026-01-31T12:00:01"), with_=None)
        assert done.removed == 1
        assert times_between(store, "s/x", ab.HEAD, ab.TAIL) == [moment - 1]


times = st.one_of(st.none(), st.integers(0, 30), st.integers(0, 30))
batches = st.lists(st.tuples(st.sampled_from("abcdef"), times), min_size=1, max_size=10)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), batches),
        st.tuples(st.just("write"), batches),
        st.tuples(st.just("scale"), st.integers(1, 4)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("collect"), st.none()),
        st.tuples(st.just("truncate"), st.integers(0, 5)),
    ),
    min_size=2,
    max_size=9,
)
_names = count()


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(life=steps, time=st.integers(-1, 31), events=st.integers(0, 60))
def test_the_counts_are_those_of_a_list(store: Store, life: Sequence[tuple[str, Any]], time: int, events: int) -> None:
    name = f"s/life{next(_names)}"
    make(store, name, segments=2)
    for verb, what in life:
        match verb:
            case "write":
                write(store, what, name)
            case "scale":
                store.streams.scale(name, what)
            case "compact":
                store.compact(force=True)
            case "collect":
                store.collect(horizon_us=0)
            case "truncate":
                store.streams.truncate(name, store.cuts.after(name, events=what))
    at = store.cuts.at(name, time, by="event", count_misplaced=False)
    for cut in (at, store.cuts.after(name, events=events)):
        front = [each for each in times_between(store, name, ab.HEAD, cut) if each is not None]
        behind = [each for each in times_between(store, name, cut, ab.TAIL) if each is not None]
        found = store.streams.misplaced(name, time, cut=cut)
        assert found.before_cut == sum(each >= time for each in front)
        assert found.after_cut == sum(each < time for each in behind)
    counted = store.streams.misplaced(name, time)
    assert [each.misplaced for each in warned(store, time, name, by="event")] == [counted][: bool(counted)]
