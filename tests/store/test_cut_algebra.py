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
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.store.helpers import events_of, store_at
from tests.store.kit import HandClock


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
    middle = streams.tail("s/a")
    streams.scale("s/a", 3)
    write(store, "s/a", *[50] * 12)
    first, second = streams.distance("s/a", end=middle), streams.distance("s/a", middle)
    whole = streams.distance("s/a")
    assert (first.events, second.events, whole.events) == (2, 12, 14)
    assert first.bytes + second.bytes == whole.bytes
    assert first.bytes >= 300 and second.bytes >= 600
    store.compact(force=True)
    assert (streams.distance("s/a", end=middle), streams.distance("s/a")) == (first, whole)  # cuts at edges of extents
    between = streams.between("s/a", middle)
    assert between.distance == second
    assert [part.segment.epoch for part in between.ranges] == [1] * len(between.ranges)
    pointers = [event.pointer for event in events_of(store, "s/a")]
    assert [pointer in between for pointer in pointers] == [False] * 2 + [True] * 12
    with pytest.raises(InvalidCut):
        streams.distance("s/a", streams.tail("s/a"), middle)


def test_going_on_from_a_cut_by_events_or_bytes(store: Store) -> None:
    streams = store.streams
    streams.create("s/a", scaling=2)
    write(store, "s/a", *[100] * 20)
    each = streams.distance("s/a").bytes // 20
    cut = streams.cut_after("s/a", events=7)
    assert streams.distance("s/a", end=cut).events == 7
    assert streams.distance("s/a", cut, streams.cut_after("s/a", cut, events=5)).events == 5
    assert streams.cut_after("s/a", cut, events=100) == streams.tail("s/a")
    assert streams.distance("s/a", end=streams.cut_after("s/a", bytes=each * 6)).events == 6
    assert streams.distance("s/a", end=streams.cut_after("s/a", bytes=each * 6 + 1)).events == 7
    assert streams.distance("s/a", end=streams.cut_after("s/a", bytes=each * 6 + 1, at_most=True)).events == 6
    for wrong in ({}, {"events": 1, "bytes": 1}, {"events": -1}, {"bytes": True}):
        with pytest.raises(InvalidArgument):
            streams.cut_after("s/a", **wrong)


def test_a_cut_inside_what_was_committed_together_is_counted_in_proportion(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", 70)
    with store.writer("s/a") as writer:
        writer.write_batch(pa.table({"key": ["a"] * 8, "payload": [b"x" * 100] * 8}), atomic=True).result()
    first, whole = (streams.distance("s/a", end=streams.cut_after("s/a", events=n)).bytes for n in (1, 9))
    for n in range(8):
        cut = streams.cut_after("s/a", events=1 + n)
        assert streams.distance("s/a", end=cut).bytes == first + (whole - first) * n // 8
    copied = ab.StreamRange("s/a", streams.cut_after("s/a", events=4), streams.cut_after("s/a", events=6))
    streams.copy(copied, "s/b")
    assert abs(streams.distance("s/b").bytes - (whole - first) * 2 // 8) <= 1


def test_cuts_are_compared_and_ranges_know_what_they_contain(store: Store) -> None:
    streams = store.streams
    streams.create("s/a", scaling=2)
    write(store, "s/a", *[10] * 8)
    first, second = streams.cut_after("s/a", events=2), streams.cut_after("s/a", events=6)
    assert streams.compare("s/a", first, second) is ab.Order.BEFORE
    assert streams.compare("s/a", second, ab.HEAD) is ab.Order.AFTER
    assert streams.compare("s/a", ab.TAIL, streams.tail("s/a")) is ab.Order.SAME
    part = ab.StreamRange("s/a", first, second)
    assert streams.contains(part, first) and streams.contains(part, second)
    assert not streams.contains(part, ab.HEAD) and not streams.contains(part, streams.tail("s/a"))
    inside = [event.pointer for event in events_of(store, "s/a", start=first, end=second)]
    assert [e.pointer for e in events_of(store, "s/a") if streams.contains(part, e.pointer)] == inside
    assert len(inside) == 4
    streams.truncate("s/a", second)
    with pytest.raises(Truncated):
        streams.compare("s/a", first, second)


def test_bytes_are_counted_in_spans_of_copies_and_behind_a_head(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", *[100] * 10)
    each = streams.distance("s/a").bytes // 10
    streams.copy(ab.StreamRange("s/a", streams.cut_after("s/a", events=2)), "s/b")
    write(store, "s/b", *[100] * 3)
    assert streams.distance("s/b") == (11, each * 11)
    streams.truncate("s/b", streams.cut_after("s/b", events=9))
    assert streams.distance("s/b") == (2, each * 2)
    joined = streams.append("s/b", "s/a")
    assert streams.distance("s/a") == (12, each * 12)
    assert joined.stream == streams.get("s/a").id


def test_a_distance_looks_up_a_few_extents_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    for name in ("extents", "extent_before"):
        inner = getattr(SqlReading, name)

        def counted(self: SqlReading, *arguments: object, inner: object = inner, name: str = name) -> object:
            looked.append(name)
            return inner(self, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(SqlReading, name, counted)
    with ab.connect("memory://") as store:
        store.streams.create_scope("s")
        store.streams.create("s/a")
        write(store, "s/a", *[10] * 300)
        start, end = (store.streams.cut_after("s/a", events=n) for n in (10, 290))
        looked.clear()
        assert store.streams.distance("s/a", start, end).events == 280
        assert set(looked) == {"extent_before"}
        assert len(looked) <= 4


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    commits=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=5), min_size=1, max_size=8),
    scales=st.lists(st.integers(1, 3), max_size=2),
    gone=st.integers(0, 10),
    compacted=st.booleans(),
)
def test_bytes_add_up_wherever_a_stream_is_cut(
    commits: list[list[int]], scales: list[int], gone: int, compacted: bool
) -> None:
    clock = HandClock()
    with ab.connect("memory://", runtime=Runtime(clock=clock, settings=Settings(inline_bytes_max=0))) as store:
        streams = store.streams
        streams.create_scope("s")
        streams.create("s/a")
        for i, sizes in enumerate(commits):
            with store.writer("s/a") as writer:
                for size in sizes:
                    writer.write(b"x" * size, key=str(size))
            if i < len(scales):
                streams.scale("s/a", scales[i])
        streams.truncate("s/a", streams.cut_after("s/a", events=gone))
        if compacted:
            store.compact(force=True)
            clock.pass_time(10)
            store.collect(horizon_us=0)
        whole = streams.distance("s/a")
        assert whole.events == max(0, sum(map(len, commits)) - gone)
        chain = [streams.cut_after("s/a", events=n) for n in range(whole.events + 1)]
        weights = [streams.distance("s/a", end=cut).bytes for cut in chain]
        assert weights == sorted(weights)
        assert weights[-1] == whole.bytes
        for cut, weight in zip(chain, weights, strict=True):
            assert streams.distance("s/a", cut).bytes == whole.bytes - weight
            reached = streams.cut_after("s/a", bytes=weight)
            assert streams.distance("s/a", end=reached).bytes == weight or weight == 0
