"""Stitching without repeats: what stays is what a Python set would have let stay, and what is known to be a repeat is
never fetched."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.errors import Conflict, DiskFull, InvalidArgument, Truncated
from anabranch.runtime.tasks import ThreadTasks
from anabranch.store import Store
from anabranch.transfer.jobs import repeat_sort as seen
from anabranch.transfer.jobs.record import JobState
from anabranch.transfer.jobs.remote_tasks import Bundle, carry
from anabranch.transfer.jobs.row_digest import row_digests
from tests.store.helpers import HookedBlobs, bodies_of, sound
from tests.store.transfer.jobs.kit import SCHEMA, Gate, fill, live, opened, stop_at

pytestmark = pytest.mark.usefixtures("many_ranges")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened("folder", tmp_path / "a") as found:
        found.scopes.create("s")
        yield found


Row = tuple[str | None, int | None]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, None])), max_size=12)


def write(store: Store, name: str, rows: list[Row]) -> None:
    store.streams.create(name, schema=SCHEMA, key="device")
    with store.writer(name) as writer:
        for first in range(0, len(rows), 5):
            part = rows[first : first + 5]
            table = pa.table(
                {"device": [d for d, _ in part], "n": [n for _, n in part]},
                schema=SCHEMA.empty_table().select(["device", "n"]).schema,
            )
            writer.write_batch(table).result()


def kept(sources: list[list[Row]], columns: list[str], prefer: list[int]) -> list[Row]:
    """What stays of the sources, in their order."""
    order = [*prefer, *(n for n in range(len(sources)) if n not in prefer)]
    seen: set[Any] = set()
    stays: set[tuple[int, int]] = set()
    for number in order:
        for index, row in enumerate(sources[number]):
            value = tuple(dict(zip(("device", "n"), row, strict=True))[name] for name in columns)
            if value not in seen:
                seen.add(value)
                stays.add((number, index))
    return [row for n, rows in enumerate(sources) for i, row in enumerate(rows) if (n, i) in stays]


@settings(max_examples=25, deadline=None)
@given(
    sources=st.lists(ROWS, min_size=1, max_size=3),
    columns=st.sampled_from([["device"], ["n"], ["device", "n"]]),
    backwards=st.booleans(),
    compacted=st.booleans(),
)
def test_of_equal_events_the_preferred_one_stays(
    sources: list[list[Row]], columns: list[str], backwards: bool, compacted: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, opened("memory", Path(folder)) as store:
        store.scopes.create("s")
        names = [f"s/{n}" for n in range(len(sources))]
        for name, rows in zip(names, sources, strict=True):
            write(store, name, rows)
        if compacted:
            store.compact(force=True)
        prefer = [len(names) - 1] if backwards else []
        joined = store.streams.stitch(names, into="s/all", deduplicate=columns, prefer=prefer)
        expected = kept(sources, columns, prefer)
        assert [(body["device"], body["n"]) for body in bodies_of(store, "s/all")] == expected
        assert joined.repeats == sum(map(len, sources)) - len(expected)
        assert sound(store)


def test_what_is_compacted_and_collected_while_it_is_compared_is_planned_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.streams.create("s/x", schema=SCHEMA, key="device", time="at")
    fill(store, "s/x", 0, 200)
    fill(store, "s/x", 100, 300)
    inner, fetched = store.blobs.get, []

    def get(key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        fetched.append(key)
        if len(fetched) == 3:
            assert store.compact(force=True).events == 400
            for _ in range(3):
                store.collect(horizon_us=0)
        return inner(key, offset, length)

    with opened("folder", tmp_path / "b") as other:
        other.scopes.create("s")
        monkeypatch.setattr(store.blobs, "get", get)
        joined = store.streams.stitch(["s/x"], into="s/y", to=other, deduplicate=["n"])
        assert joined.repeats == 100
        assert [body["n"] for body in bodies_of(other, "s/y")] == [*range(300)]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.array([5, 6], pa.int32()), pa.array([5.0, 6.5], pa.float64())),
        (pa.array([0.5, 0.25], pa.float32()), pa.array([0.5, 0.75], pa.float64())),
        (pa.array([5, 6], pa.int8()), pa.array([Decimal("5.00"), Decimal("6.01")])),
        (pa.array([Decimal("1.5"), Decimal("2.5")]), pa.array([Decimal("1.500"), Decimal("2.501")])),
        (pa.array([[1], [2]], pa.list_(pa.int32())), pa.array([[1.0], [2.5]])),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("compacted", [False, True])
def test_values_are_equal_that_are_equal_in_the_column_that_holds_them_all(
    store: Store, narrow: pa.Array, wide: pa.Array, compacted: bool
) -> None:
    for name, values in (("s/narrow", narrow), ("s/wide", wide)):
        store.streams.create(name, schema=pa.schema([("v", values.type)]))
        with store.writer(name) as writer:
            writer.write_batch(pa.table({"v": values})).result()
    store.streams.stitch(["s/narrow", "s/wide"], into="s/both")
    if compacted:
        store.compact(force=True)
    expected = [*narrow.to_pylist(), *wide.to_pylist()[1:]]
    for n, sources in enumerate((["s/narrow", "s/wide"], ["s/both"])):
        assert store.streams.stitch(sources, into=f"s/{n}", deduplicate=["v"]).repeats == 1
        assert [body["v"] for body in bodies_of(store, f"s/{n}")] == expected
    assert store.streams.append("s/narrow", "s/wide", deduplicate=["v"]).repeats == 1
    assert sound(store)


def test_a_stream_of_all_tiers_is_left_once(tmp_path: Path) -> None:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        target.scopes.create("t")
        source.streams.create("s/more", schema=SCHEMA, key="device", time="at")
        fill(source, "s/more", 430, 480)
        joined = source.streams.stitch(
            ["s/a", "s/more"], into="t/all", to=target, deduplicate=["device", "n"], window=3
        )
        assert joined.repeats == 10
        assert sorted(body["n"] for body in bodies_of(target, "t/all")) == [*range(60, 480)]
        assert sound(target)
        preferred = source.streams.stitch(["s/a", "s/more"], into="t/other", to=target, deduplicate=["n"], prefer=[1])
        assert preferred.repeats == 10
        assert [body["n"] for body in bodies_of(target, "t/other")][-50:] == [*range(430, 480)]


def test_what_is_known_to_be_a_repeat_is_not_fetched(store: Store) -> None:
    store.streams.create("s/a", schema=SCHEMA, key="device", time="at")
    fill(store, "s/a", 0, 300)
    store.streams.copy("s/a", "s/view")  # sees the same positions
    store.streams.copy("s/a", "s/bytes", independent=True)  # holds the same messages
    fetched: list[str] = []

    class Counting(HookedBlobs):
        def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
            fetched.append(f"{key}@{offset}")
            return super().get(key, offset, length)

    store.blobs = Counting(store.blobs)
    store.jobs._job_store = store.job_store
    joined = store.streams.stitch(["s/a", "s/view", "s/bytes"], into="s/all", deduplicate=["n"])
    assert joined.repeats == 600
    assert sorted(body["n"] for body in bodies_of(store, "s/all")) == [*range(300)]
    own = store.streams.view("s/bytes")
    with store.catalog.reading() as reading:
        theirs = {f"{e.key}@" for log in own.logs for e in reading.extents(log, 0, 1 << 40, 10_000) if e.key}
    assert theirs
    assert not [each for each in fetched if any(each.startswith(key) for key in theirs)]


def test_ranges_of_what_is_preferred_are_read_first(store: Store) -> None:
    places: dict[str, str] = {}
    for name, first in (("s/a", 0), ("s/b", 300)):
        store.streams.create(name, schema=SCHEMA, key="device", time="at")
        fill(store, name, first, first + 150)
        with store.catalog.reading() as reading:
            for log in store.streams.view(name).logs:
                places |= {e.key: name for e in reading.extents(log, 0, 1 << 40, 10_000) if e.key}
    fetched: list[str] = []

    class Noting(HookedBlobs):
        def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
            if key in places and places[key] not in fetched[-1:]:
                fetched.append(places[key])
            return super().get(key, offset, length)

    store.blobs = Noting(store.blobs)
    store.jobs._job_store = store.job_store
    store.streams.stitch(["s/a", "s/b"], into="s/all", deduplicate=["n"], prefer=[1], window=1)
    assert fetched == ["s/b", "s/a"] * 2  # to be compared, and to be moved
    fetched.clear()

    def in_turn(bundles: Sequence[Bundle]) -> None:
        for bundle in bundles:
            carry(bundle, store.job_store, store.job_store)

    store.jobs.stitch(store, ["s/a", "s/b"], "s/too", prefer=[1], carrier=in_turn).wait()
    assert fetched == ["s/b", "s/a"]


def test_a_stitch_that_was_paused_leaves_out_the_same(tmp_path: Path) -> None:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        source.streams.copy("s/a", "s/b")
        fill(source, "s/b", 440, 500, note="x")
        target.scopes.create("t")
        gate = Gate(target, 4)
        job = target.jobs.stitch(source, ["s/a", "s/b"], "t/all", deduplicate=["n"], window=1)
        stop_at(gate, job, job.pause)
        assert job.row().state is JobState.PAUSED
        source.compact(force=True)  # what is left lies in other extents now
        joined = target.jobs.resume(job.id, source=source).wait()
        assert joined.repeats == 380
        assert sorted(body["n"] for body in bodies_of(target, "t/all")) == [*range(60, 500)]
        assert sound(target)


def test_columns_that_no_stream_has_are_refused(store: Store) -> None:
    write(store, "s/a", [("a", 1)])
    with pytest.raises(InvalidArgument, match="none of them has 'x'"):
        store.streams.stitch(["s/a"], into="s/b", deduplicate=["x"])
    with pytest.raises(InvalidArgument, match="from 0 to 0"):
        store.streams.stitch(["s/a"], into="s/b", deduplicate=["n"], prefer=[1])
    with pytest.raises(InvalidArgument, match="a list of columns"):
        store.streams.stitch(["s/a"], into="s/b", deduplicate="n")
    with pytest.raises(InvalidArgument, match="as deduplicate="):
        store.streams.stitch(["s/a"], into="s/b", prefer=[0])
    assert store.jobs.list() == []


def test_digests_tell_rows_apart_by_every_value() -> None:
    columns: dict[str, Any] = {
        "i": pa.array([1, 1, 2, None, 1], pa.int32()),
        "f": pa.array([0.5, 0.5, 0.5, 0.5, None], pa.float64()),
        "s": ["x", "x", "x", "x", "x"],
        "b": pa.array([True, True, True, True, True]),
        "l": [[1], [1], [1], [1], [1]],
        "t": pa.array([5, 5, 5, 5, 5], pa.timestamp("us", "UTC")),
    }
    low, high = row_digests(pa.record_batch(columns))
    rows = list(zip(low.tolist(), high.tolist(), strict=True))
    assert rows[0] == rows[1]
    assert len(set(rows)) == 4
    wider = {**columns, "i": columns["i"].cast(pa.int64())}
    assert list(zip(*(words.tolist() for words in row_digests(pa.record_batch(wider))), strict=True)) == rows
    for name in columns:
        changed = {**columns, name: pa.nulls(5, columns[name].type if isinstance(columns[name], pa.Array) else None)}
        low, high = row_digests(pa.record_batch(changed))
        assert list(zip(low.tolist(), high.tolist(), strict=True))[2] != rows[2]


@pytest.mark.parametrize("kind", [pa.time64("ns"), pa.duration("ns"), pa.timestamp("us"), pa.duration("s")])
@pytest.mark.parametrize("first", [1, 2**62])
def test_nested_times_are_told_apart_by_every_digit_in_any_year(kind: pa.DataType, first: int) -> None:
    times = pa.array([first, first, first + 1, None], pa.int64()).cast(kind)
    nested = {
        "struct": pa.StructArray.from_arrays([times], ["t"]),
        "list": pa.ListArray.from_arrays([0, 1, 2, 3, 4], times),
        "map": pa.MapArray.from_arrays([0, 1, 2, 3, 4], pa.array([1, 1, 1, 1], pa.date32()), times),
    }
    for name, column in nested.items():
        low, high = row_digests(pa.record_batch({name: pa.ListArray.from_arrays([0, 1, 2, 3, 4], column)}))
        rows = list(zip(low.tolist(), high.tolist(), strict=True))
        assert rows[0] == rows[1]
        assert len(set(rows)) == 3


def test_one_nan_is_as_good_as_another() -> None:
    several = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    low, high = row_digests(pa.record_batch({"f": several}))
    assert len(set(low.tolist())) == len(set(high.tolist())) == 1
    assert row_digests(pa.record_batch({"f": pa.array([0.5])}))[0][0] not in low


@settings(max_examples=15, deadline=None)
@given(there=ROWS, source=ROWS, columns=st.sampled_from([["device"], ["device", "n"]]), within=st.booleans())
def test_an_append_leaves_out_what_is_there_and_what_the_source_repeats(
    there: list[Row], source: list[Row], columns: list[str], within: bool
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        opened("memory", Path(folder)) as store,
        opened("memory", Path(folder)) as other,
    ):
        target = store if within else other
        for each in (store, other):
            each.scopes.create("s")
        write(target, "s/all", there)
        write(store, "s/a", source)
        if within:  # views what the target has, and is known to repeat it
            store.streams.append("s/all", "s/a")
            source = [*source, *there]
        joined = store.streams.append("s/a", "s/all", to=None if within else other, deduplicate=columns)
        first = list(
            dict.fromkeys(tuple(dict(zip(("device", "n"), r, strict=True))[c] for c in columns) for r in there)
        )
        expected, seen = list(there), set(first)
        for row in source:
            value = tuple(dict(zip(("device", "n"), row, strict=True))[name] for name in columns)
            if value not in seen:
                seen.add(value)
                expected.append(row)
        assert [(body["device"], body["n"]) for body in bodies_of(target, "s/all")] == expected
        assert joined.repeats == len(source) + len(there) - len(expected)
        assert sound(target)


def test_an_append_that_was_paused_is_compared_with_what_was_there_when_it_was_made(tmp_path: Path) -> None:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        target.scopes.create("t")
        target.streams.create("t/all", schema=SCHEMA, key="device", time="at")
        fill(target, "t/all", 60, 100)
        gate = Gate(target, 3)
        job = target.jobs.append(source, "s/a", "t/all", deduplicate=["n"], window=1)
        stop_at(gate, job, job.pause)
        assert job.row().state is JobState.PAUSED
        fill(target, "t/all", 430, 450)  # behind it: not compared
        target.compact(force=True)
        joined = target.jobs.resume(job.id, source=source).wait()
        assert joined.repeats == 40
        found = sorted(body["n"] for body in bodies_of(target, "t/all"))
        assert found == sorted([*range(60, 440), *range(430, 450)])
        assert sound(target)
        assert target.streams.append("t/all", "t/all", deduplicate=["n"]).repeats == len(found)


def test_an_append_is_refused_where_what_it_was_compared_with_is_gone(tmp_path: Path) -> None:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        target.scopes.create("t")
        for name in ("t/all", "t/other"):
            target.streams.create(name, schema=SCHEMA, key="device", time="at")
            fill(target, name, 60, 100)
        gate = Gate(target, 3)
        job = target.jobs.append(source, "s/a", "t/all", deduplicate=["n"], window=1)
        stop_at(gate, job, job.pause)
        target.streams.truncate("t/all", target.cuts.tail("t/all"))
        with pytest.raises(Truncated):
            target.jobs.resume(job.id, source=source).wait()
        gate = Gate(target, 3)
        job = target.jobs.append(source, "s/a", "t/other", deduplicate=["n"], window=1)
        assert gate.reached.wait(60)
        target.streams.rename("t/other", "t/former")
        target.streams.create("t/other", schema=SCHEMA, key="device", time="at")
        gate.open.set()
        with pytest.raises(Conflict, match="is not the stream with which"):
            job.wait()
        assert bodies_of(target, "t/other") == []
        assert sound(target)


def test_sources_are_deleted_with_what_replaces_them(store: Store) -> None:
    write(store, "s/a", [("a", 1), ("b", 2), ("a", 1)])
    write(store, "s/b", [("b", 2), ("c", 3)])
    joined = store.streams.stitch(["s/a", "s/b"], into="s/a", keep_sources=False, deduplicate=["device"])
    assert joined.repeats == 2
    assert [body["device"] for body in bodies_of(store, "s/a")] == ["a", "b", "c"]
    assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/a"]
    assert sound(store)


def test_many_digests_are_sorted_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them weigh several times what the database may hold."""
    monkeypatch.setattr(seen, "_CACHE_KIB", 1024)
    numbers = np.arange(400_000, dtype=np.uint64) % np.uint64(399_990)
    before = apsw.memory_used()
    apsw.memory_high_water(True)
    found = seen.RepeatSort(ThreadTasks())
    for first in range(0, len(numbers), 8_000):
        words = numbers[first : first + 8_000]
        found.add((words, words), first)
    assert found.settle() == 10
    assert found.repeats(0, len(numbers)).tolist() == [*range(399_990, 400_000)]
    assert apsw.memory_high_water() - before < 6 * limits.MIB
    found.close()


def test_a_full_disk_is_reported_as_one() -> None:
    found = seen.RepeatSort(ThreadTasks())
    found._database.pragma("max_page_count", 4)
    words = np.arange(10_000, dtype=np.uint64)
    with pytest.raises(DiskFull, match="SQLITE_TMPDIR"):
        found.add((words, words), 0)
    found.close()
