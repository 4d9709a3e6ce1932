"""Copies of copies of copies come to be read like the first: short spans are flattened, once for all who view them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.core import cuts
from anabranch.core.flatten import FlattenPolicy
from anabranch.errors import CorruptStore, LeaseExpired, StreamNotFound, Truncated
from anabranch.log.checking.check import check
from anabranch.log.read import LogReader
from anabranch.log.time_index import append_time, approximate_cut, cut_at
from anabranch.log.upkeep.extent_rows import ExtentRows
from anabranch.log.upkeep.flatten import flatten
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.reading.bounds import fetch, to_cut
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.retention.apply import retain
from anabranch.testing.clock import ManualClock
from anabranch.testing.faults import SimulatedCrash
from tests.clocks import runtime_by
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import events_of, sound
from tests.store.log.upkeep.test_upkeep_crashes import Doomed

TWO = FlattenPolicy(spans_min=2)


@pytest.fixture(params=["memory", "postgres+memory", "sqlite+folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = fresh_url() if request.param == "postgres+memory" else None
    place = url or ("memory://" if request.param == "memory" else tmp_path)
    clock = ManualClock()
    runtime = runtime_by(clock, settings=Settings(inline_bytes_max=200))
    with ab.connect(place, blobs="memory://" if url else None, runtime=runtime, create=True) as opened:
        opened.scopes.create("s")
        yield opened
        assert sound(opened)
    if url:
        drop(url)


def write(store: Store, stream: str, generation: int) -> None:
    with store.writer(stream) as writer:
        for i in range(4):
            writer.write(f"{generation}.{i}".encode() + b" " * 20 * (generation % 3), key="abc"[i % 3])
    store.runtime.clock.pass_time(1_000_000)  # type: ignore[attr-defined]


def chain(store: Store, generations: int, *, segments: int = 2) -> list[str]:
    """A stream, its copy, the copy of that, and so on, each written to before it is copied."""
    names = [f"s/{n:02}" for n in range(generations)]
    store.streams.create(names[0], scaling=segments)
    write(store, names[0], 0)
    for n in range(1, generations):
        store.streams.copy(names[n - 1], names[n])
        write(store, names[n], n)
    return names


def contents(store: Store, names: list[str]) -> dict[str, list[tuple[object, ...]]]:
    found = {name: [(e.pointer, e.key, e.body, e.appended_us) for e in events_of(store, name)] for name in names}
    return {name: sorted(events, key=lambda event: str(event[0])) for name, events in found.items()}


def spans(view: StreamView) -> int:
    return max(map(len, view.spans.values()))


def flatten_and_collect(store: Store, names: list[str]) -> None:
    """Only the last of a chain stays, in other logs than before, which are all that is left."""
    assert store.compact().spans
    for name in names[:-1]:  # whose open spans still view the old logs
        store.streams.delete(name)
    for _ in range(3):
        store.runtime.clock.pass_time(1_000_000)  # type: ignore[attr-defined]
        store.collect(horizon_us=0)


def test_generations_of_copies_are_flattened_once(store: Store) -> None:
    names = chain(store, 24)
    before = contents(store, names)
    tail = store.cuts.tail(names[-1])
    weight = store.cuts.distance(names[-1])
    cut = store.cuts.at(names[-1], before[names[-1]][30][3])  # type: ignore[arg-type]
    assert spans(store.streams.view(names[-1])) == 24
    report = store.compact()
    assert (report.spans, report.files, report.skipped, report.lost) == (2 * 23, 2, (), 0)
    assert [spans(store.streams.view(name)) for name in names] == [1, *[2] * 23]
    for _ in range(3):
        store.runtime.clock.pass_time(1_000_000)  # type: ignore[attr-defined]
        store.collect(horizon_us=0)
    assert contents(store, names) == before
    assert store.cuts.tail(names[-1]) == tail
    assert store.cuts.distance(names[-1]) == weight
    assert store.cuts.at(names[-1], before[names[-1]][30][3]) == cut  # type: ignore[arg-type]
    views = [store.streams.view(name) for name in names]
    with store.catalog.reading() as reading:
        kept = {log.id for log in reading.logs_after(0, 1_000) if log.length}  # type: ignore[arg-type]
        viewed = {span.log for view in views for of_segment in view.spans.values() for span in of_segment}
    assert kept == viewed
    assert store.compact().spans == 0
    store.streams.delete(names[12])  # each still stands by itself
    store.streams.truncate(names[3], store.cuts.tail(names[3]))
    write(store, names[23], 99)
    for name in (names[11], names[22]):
        assert contents(store, [name])[name] == before[name]


def test_a_reader_with_a_stale_plan_continues(store: Store) -> None:
    names = chain(store, 20, segments=1)
    with store.reader(names[-1], batch_rows=4) as reader, store.reader(names[-1]) as opened_before:
        first = reader.read()
        assert first is not None
        flatten_and_collect(store, names)
        rest = list(reader.batches())
        assert [event.offset for event in opened_before] == list(range(80))
    table = pa.Table.from_batches([first, *rest])
    assert table.column("_offset").to_pylist() == list(range(80))


def test_a_stale_view_finds_positions_after_flattening(store: Store) -> None:
    names = chain(store, 20)
    name = names[-1]
    view, events = store.streams.view(name), events_of(store, name)
    times = sorted({Micros(event.appended_us or 0) for event in events})
    logs = LogReader(store.catalog, store.blobs, store.runtime)

    def told() -> list[object]:
        return [
            *(fetch(logs, view, event.pointer).body for event in events),
            *(append_time(logs, view, e.pointer.segment, e.offset) for e in events),
            *(
                cut_at(logs, view, Micros(time + late), by_event_time=by_event)
                for time in times
                for late in (0, 1)
                for by_event in (False, True)
            ),
            *(to_cut(logs, view, event.pointer) for event in events),
        ]

    before = told()
    flatten_and_collect(store, names)
    assert told() == before
    for time in times:  # the extents are larger by now, so these cuts lie where they lay or before
        cut = approximate_cut(store.catalog, view, time)
        assert cuts.is_before(view, cut, cut_at(logs, view, time))
    store.streams.truncate(name, store.cuts.at(name, times[10]))
    gone = events[0].pointer
    with pytest.raises(Truncated):
        fetch(logs, view, gone)
    with pytest.raises(Truncated):
        append_time(logs, view, gone.segment, gone.offset)
    assert cut_at(logs, view, Micros(0)) == store.cuts.head(name)
    store.streams.delete(name)
    with pytest.raises(StreamNotFound):
        cut_at(logs, view, times[10])


@pytest.mark.parametrize("by", ["age", "bytes"])
def test_retention_of_a_stream_that_is_flattened_concurrently(store: Store, by: str) -> None:
    names = chain(store, 20)  # one a second
    size = store.cuts.distance(names[-1]).bytes // 2
    store.policies.retention(
        names[-1], ab.RetainFor("8s") if by == "age" else ab.RetainBytes(size) | ab.RetainFor("1d")
    )
    asked: list[Micros] = []

    def flattened_first(view: StreamView, at: Micros, by_event_time: bool) -> ab.StreamCut:
        if not asked:
            flatten_and_collect(store, names)
        asked.append(at)
        return store._cut_at(view, at, by_event_time)

    assert retain(store.catalog, store.runtime, flattened_first).truncated == 1
    assert asked
    if by == "age":
        assert len(events_of(store, names[-1])) == 8 * 4
    else:
        assert size <= store.cuts.distance(names[-1]).bytes < 1.2 * size


def test_ranges_truncated_copies_and_evolved_columns_follow(store: Store) -> None:
    streams = store.streams
    streams.create("s/a", schema=[("k", pa.string()), ("n", pa.int32())], key="k")

    def write_typed(name: str, **values: object) -> None:
        with store.writer(name) as writer:
            for i in range(3):
                writer.write({"k": f"{i}", "n": i, **values})

    write_typed("s/a")
    names = ["s/a"]
    for n in range(1, 8):
        names.append(f"s/{n}")
        streams.copy(names[-2], names[-1])
        if n == 4:
            streams.evolve(names[-1], [("k", pa.string()), ("n", pa.int32()), ("x", pa.list_(pa.int64()))])
        write_typed(names[-1], **({"x": [n]} if n >= 4 else {}))
    streams.evolve(
        "s/2", [("k", pa.string()), ("n", pa.int32()), ("x", pa.string())]
    )  # what others mean by x is theirs
    part = ab.StreamRange("s/7", store.cuts.after("s/7", events=4), store.cuts.after("s/7", events=17))
    streams.copy(part, "s/part")
    streams.truncate("s/5", store.cuts.after("s/5", events=7))
    names.append("s/part")
    before = contents(store, names)
    report = store.compact(force=True)
    assert report.spans and not report.skipped
    assert contents(store, names) == before
    assert {spans(streams.view(name)) for name in names} <= {1, 2, 3}


def test_only_short_spans_are_flattened(store: Store) -> None:
    names = chain(store, 9, segments=1)
    weight = store.cuts.distance(names[-1]).bytes
    policy = FlattenPolicy(spans_min=3, span_bytes_max=weight, bytes_max=weight // 2)
    report = flatten(store.catalog, store.blobs, store.runtime, policy=policy)
    assert report.files >= 2
    assert report.spans <= 8
    before = contents(store, names)
    none = FlattenPolicy(spans_min=2, span_bytes_max=0)
    assert flatten(store.catalog, store.blobs, store.runtime, policy=none).files == 0
    assert contents(store, names) == before


def test_concurrently_changed_spans_are_left_to_the_next_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = chain(store, 6, segments=1)
    inner = store.blobs.put

    def put(key: str, chunks: Any) -> None:
        inner(key, chunks)
        store.streams.truncate(names[-1], store.cuts.after(names[-1], events=6))
        monkeypatch.setattr(store.blobs, "put", inner)

    monkeypatch.setattr(store.blobs, "put", put)
    one = store.streams.get(names[-1]).id
    report = flatten(store.catalog, store.blobs, store.runtime, stream=one, policy=TWO)
    assert (report.files, report.lost) == (0, 1)
    assert len(events_of(store, names[-1])) == 18
    again = flatten(store.catalog, store.blobs, store.runtime, stream=one, policy=TWO)
    assert (again.files, again.lost) == (1, 0)
    assert len(events_of(store, names[-1])) == 18


@pytest.mark.parametrize("truncated", [True, False])
def test_events_that_are_gone_are_damage_only_while_the_stream_has_them(
    store: Store, monkeypatch: pytest.MonkeyPatch, truncated: bool
) -> None:
    names = chain(store, 6, segments=1)

    def rows(*_: Any) -> Any:
        if truncated:
            store.streams.truncate(names[-1], store.cuts.after(names[-1], events=6))
        raise CorruptStore("the events are gone")

    one = store.streams.get(names[-1]).id
    with monkeypatch.context() as patched:
        patched.setattr(ExtentRows, "rows", rows)
        report = flatten(store.catalog, store.blobs, store.runtime, stream=one, policy=TWO)
    assert (report.files, report.lost, len(report.skipped)) == (0, truncated, not truncated)
    assert flatten(store.catalog, store.blobs, store.runtime, stream=one, policy=TWO).files == 1


def test_spans_that_begin_inside_an_extent_are_sliced(store: Store) -> None:
    streams = store.streams
    streams.create("s/0")
    for n in range(4):
        if n:
            streams.copy(f"s/{n - 1}", f"s/{n}")
        with store.writer(f"s/{n}") as writer:
            rows = {"key": ["k"] * 5, "payload": [b"%d.%d" % (n, i) + b" " * 20 * n for i in range(5)]}
            writer.write_batch(pa.table(rows), atomic=True).result()
        if n == 1:
            store.compact(force=True)  # one of the extents is part of a file
    first, last = store.cuts.after("s/3", events=3), store.cuts.after("s/3", events=14)
    streams.copy(ab.StreamRange("s/3", first, last), "s/part")
    before = contents(store, ["s/part"])
    assert spans(streams.view("s/part")) == 4
    one = streams.get("s/part").id
    assert flatten(store.catalog, store.blobs, store.runtime, stream=one, policy=TWO).spans == 3
    assert contents(store, ["s/part"]) == before
    assert [event[2][:3] for event in before["s/part"]][:3] == [b"0.3", b"0.4", b"1.0"]  # type: ignore[index]


def test_a_publication_stalled_beyond_the_horizon_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = chain(store, 4, segments=1)
    before = contents(store, names)
    inner = store.blobs.put

    def put(key: str, chunks: Any) -> None:
        inner(key, chunks)
        store.runtime.clock.pass_time(2 * limits.HORIZON_US)  # type: ignore[attr-defined]
        store.collect()
        monkeypatch.setattr(store.blobs, "put", inner)

    monkeypatch.setattr(store.blobs, "put", put)
    with pytest.raises(LeaseExpired):
        flatten(store.catalog, store.blobs, store.runtime, policy=TWO)
    assert contents(store, names) == before
    assert flatten(store.catalog, store.blobs, store.runtime, policy=TWO).files == 1
    assert contents(store, names) == before


# crashes


@contextmanager
def opened(clock: ManualClock) -> Iterator[Store]:
    runtime = runtime_by(clock, settings=Settings(inline_bytes_max=200))
    with ab.connect("memory://", runtime=runtime) as store:
        store.scopes.create("s")
        yield store


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_crash_at_any_port_call_is_harmless(stride: int) -> None:
    number, crashed = 0, True
    while crashed:
        number += stride
        assert number < 300
        clock = ManualClock()
        with opened(clock) as store:
            names = chain(store, 4, segments=1)
            before = contents(store, names)
            doomed = Doomed(store, number)
            try:
                flatten(doomed.catalog, doomed.blobs, store.runtime, policy=TWO)
                crashed = False
            except SimulatedCrash:
                pass
            assert list(check(store.catalog, store.blobs, now=clock.now())) == [], f"crash at call {number}"
            assert contents(store, names) == before, f"crash at call {number}"
            clock.pass_time(2 * limits.HORIZON_US)
            flatten(store.catalog, store.blobs, store.runtime, policy=TWO)
            for _ in range(3):
                store.collect()
                clock.pass_time(2 * limits.HORIZON_US)
            assert contents(store, names) == before, f"crash at call {number}"
            assert list(store.check()) == [], f"crash at call {number}"
            with store.catalog.reading() as snapshot:
                logs = snapshot.logs_after(0, 1_000)  # type: ignore[arg-type]
                listed = {row.key for row in snapshot.blobs_after(0, 1_000)}  # type: ignore[arg-type]
                assert all(snapshot.spans_of_log(log.id) for log in logs), f"crash at call {number}"
            files = {file.key for prefix in ("commits/", "history/") for file in store.blobs.list(prefix)}
            assert files == listed, f"crash at call {number}"
    assert number > 20


def test_the_settings_of_a_policy_are_those_of_the_limits() -> None:
    assert FlattenPolicy() == replace(TWO, spans_min=limits.FLATTEN_SPANS_MIN)
