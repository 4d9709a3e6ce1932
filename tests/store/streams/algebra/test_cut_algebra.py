"""Places in real streams: how far they lie apart, in events and bytes, and how they lie to each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.catalog.reading import SqlReading
from anabranch.errors import InvalidArgument, InvalidCut, Truncated
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.store.helpers import events_of, store_at


@pytest.fixture(params=["memory", "postgres+memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as opened:
        yield opened


def write(store: Store, stream: str, *sizes: int) -> None:
    """One commit for each, of one event of so many bytes."""
    with store.writer(stream) as writer:
        for i, size in enumerate(sizes):
            writer.write(b"x" * size, key="abcdef"[i % 6]).result()


def test_bytes_between_cuts_are_those_of_the_events_between_them(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", 100, 200)
    middle = store.cuts.tail("s/a")
    streams.scale("s/a", 3)
    write(store, "s/a", *[50] * 12)
    first, second = store.cuts.distance("s/a", end=middle), store.cuts.distance("s/a", middle)
    whole = store.cuts.distance("s/a")
    assert (first.events, second.events, whole.events) == (2, 12, 14)
    assert first.bytes + second.bytes == whole.bytes
    assert first.bytes >= 300 and second.bytes >= 600
    store.compact(force=True)
    assert (store.cuts.distance("s/a", end=middle), store.cuts.distance("s/a")) == (
        first,
        whole,
    )  # cuts at edges of extents
    between = store.cuts.between("s/a", middle)
    assert between.distance == second
    assert [part.segment.epoch for part in between.ranges] == [1] * len(between.ranges)
    pointers = [event.pointer for event in events_of(store, "s/a")]
    assert [pointer in between for pointer in pointers] == [False] * 2 + [True] * 12
    with pytest.raises(InvalidCut):
        store.cuts.distance("s/a", store.cuts.tail("s/a"), middle)


def test_advancing_a_cut_by_events_or_bytes(store: Store) -> None:
    streams = store.streams
    streams.create("s/a", scaling=2)
    write(store, "s/a", *[100] * 20)
    each = store.cuts.distance("s/a").bytes // 20
    cut = store.cuts.after("s/a", events=7)
    assert store.cuts.distance("s/a", end=cut).events == 7
    assert store.cuts.distance("s/a", cut, store.cuts.after("s/a", cut, events=5)).events == 5
    assert store.cuts.after("s/a", cut, events=100) == store.cuts.tail("s/a")
    assert store.cuts.distance("s/a", end=store.cuts.after("s/a", bytes=each * 6)).events == 6
    assert store.cuts.distance("s/a", end=store.cuts.after("s/a", bytes=each * 6 + 1)).events == 7
    assert store.cuts.distance("s/a", end=store.cuts.after("s/a", bytes=each * 6 + 1, at_most=True)).events == 6
    for wrong in ({}, {"events": 1, "bytes": 1}, {"events": -1}, {"bytes": True}):
        with pytest.raises(InvalidArgument):
            store.cuts.after("s/a", **wrong)


def test_bytes_of_a_partial_extent_are_proportional(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", 70)
    with store.writer("s/a") as writer:
        writer.write_batch(pa.table({"key": ["a"] * 8, "payload": [b"x" * 100] * 8}), atomic=True).result()
    first, whole = (store.cuts.distance("s/a", end=store.cuts.after("s/a", events=n)).bytes for n in (1, 9))
    for n in range(8):
        cut = store.cuts.after("s/a", events=1 + n)
        assert store.cuts.distance("s/a", end=cut).bytes == first + (whole - first) * n // 8
    copied = ab.StreamRange("s/a", store.cuts.after("s/a", events=4), store.cuts.after("s/a", events=6))
    streams.copy(copied, "s/b")
    assert abs(store.cuts.distance("s/b").bytes - (whole - first) * 2 // 8) <= 1


def test_cuts_are_compared_and_ranges_know_what_they_contain(store: Store) -> None:
    streams = store.streams
    streams.create("s/a", scaling=2)
    write(store, "s/a", *[10] * 8)
    first, second = store.cuts.after("s/a", events=2), store.cuts.after("s/a", events=6)
    assert store.cuts.compare("s/a", first, second) is ab.Order.BEFORE
    assert store.cuts.compare("s/a", second, ab.HEAD) is ab.Order.AFTER
    assert store.cuts.compare("s/a", ab.TAIL, store.cuts.tail("s/a")) is ab.Order.SAME
    part = ab.StreamRange("s/a", first, second)
    assert store.cuts.contains(part, first) and store.cuts.contains(part, second)
    assert not store.cuts.contains(part, ab.HEAD) and not store.cuts.contains(part, store.cuts.tail("s/a"))
    inside = [event.pointer for event in events_of(store, "s/a", start=first, end=second)]
    assert [e.pointer for e in events_of(store, "s/a") if store.cuts.contains(part, e.pointer)] == inside
    assert len(inside) == 4
    streams.truncate("s/a", second)
    with pytest.raises(Truncated):
        store.cuts.compare("s/a", first, second)


def test_bytes_are_counted_in_spans_of_copies_and_behind_a_head(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", *[100] * 10)
    each = store.cuts.distance("s/a").bytes // 10
    streams.copy(ab.StreamRange("s/a", store.cuts.after("s/a", events=2)), "s/b")
    write(store, "s/b", *[100] * 3)
    assert store.cuts.distance("s/b") == (11, each * 11)
    streams.truncate("s/b", store.cuts.after("s/b", events=9))
    assert store.cuts.distance("s/b") == (2, each * 2)
    joined = streams.append("s/b", "s/a")
    assert store.cuts.distance("s/a") == (12, each * 12)
    assert joined.stream == streams.get("s/a").id


def test_a_distance_reads_few_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    for name in ("extents", "extent_before"):
        inner = getattr(SqlReading, name)

        def counted(self: SqlReading, *arguments: object, inner: object = inner, name: str = name) -> object:
            looked.append(name)
            return inner(self, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(SqlReading, name, counted)
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        write(store, "s/a", *[10] * 300)
        start, end = (store.cuts.after("s/a", events=n) for n in (10, 290))
        looked.clear()
        assert store.cuts.distance("s/a", start, end).events == 280
        assert set(looked) == {"extent_before"}
        assert len(looked) <= 4


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    commits=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=5), min_size=1, max_size=8),
    scales=st.lists(st.integers(1, 3), max_size=2),
    gone=st.integers(0, 10),
    compacted=st.booleans(),
)
def test_bytes_of_ranges_add_up(commits: list[list[int]], scales: list[int], gone: int, compacted: bool) -> None:
    clock = ManualClock()
    with ab.connect("memory://", runtime=runtime_by(clock, settings=Settings(inline_bytes_max=0))) as store:
        streams = store.streams
        store.scopes.create("s")
        streams.create("s/a")
        for i, sizes in enumerate(commits):
            with store.writer("s/a") as writer:
                for size in sizes:
                    writer.write(b"x" * size, key=str(size))
            if i < len(scales):
                streams.scale("s/a", scales[i])
        streams.truncate("s/a", store.cuts.after("s/a", events=gone))
        if compacted:
            store.compact(force=True)
            clock.pass_time(10)
            store.collect(horizon_us=0)
        whole = store.cuts.distance("s/a")
        assert whole.events == max(0, sum(map(len, commits)) - gone)
        chain = [store.cuts.after("s/a", events=n) for n in range(whole.events + 1)]
        weights = [store.cuts.distance("s/a", end=cut).bytes for cut in chain]
        assert weights == sorted(weights)
        assert weights[-1] == whole.bytes
        for cut, weight in zip(chain, weights, strict=True):
            assert store.cuts.distance("s/a", cut).bytes == whole.bytes - weight
            reached = store.cuts.after("s/a", bytes=weight)
            assert store.cuts.distance("s/a", end=reached).bytes == weight or weight == 0
