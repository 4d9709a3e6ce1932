"""Reading a store: from anywhere to anywhere, as events and as batches, before and after compaction."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.catalog.port import Reading
from anabranch.log.compact import compact
from anabranch.log.read import LogReader
from anabranch.model.ids import LogId
from anabranch.readers.flow import Delivery
from anabranch.readers.reader import Reader
from tests.waiting import PATIENCE_S, until, until_ended

SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
T0 = 1_700_000_000_000_000


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect("memory://" if request.param == "memory" else tmp_path / "river") as opened:
        opened.streams.create_scope("s")
        yield opened


def reader(store: ab.Store, name: str = "s/a", **options: Any) -> Reader:
    return store.reader(name, **options)


def create(store: ab.Store, segments: int = 1, name: str = "s/a") -> None:
    store.streams.create(name, schema=SCHEMA, key="device", time="at", scaling=ab.Fixed(segments))


def table(first: int, count: int, keys: int = 5) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"device": [f"d{i % keys}" for i in numbers], "at": [T0 + i for i in numbers], "n": list(numbers)},
        schema=pa.schema([("device", pa.string()), ("at", pa.int64()), ("n", pa.int64())]),
    ).cast(SCHEMA)


def write(store: ab.Store, first: int, count: int, name: str = "s/a", size: int = 100) -> None:
    """Events numbered from `first`, in appends of `size`, so that there are several extents."""
    with store.writer(name) as writer:
        for start in range(first, first + count, size):
            writer.write_batch(table(start, min(size, first + count - start))).result()


def squeeze(store: ab.Store) -> None:
    report = compact(store.catalog, store.blobs, store.runtime, force=True)
    assert report.files


def numbers(source: Any) -> list[int]:
    """The column `n` of what a reader yields, in reading order."""
    if isinstance(source, Reader):
        return [event.body["n"] for event in source]
    return [n for batch in source for n in batch.column("n").to_pylist()]


def assert_order_of_keys(read: list[int], keys: int = 5) -> None:
    for key in range(keys):
        mine = [n for n in read if n % keys == key]
        assert mine == sorted(mine)


def no_change(store: ab.Store) -> None:
    """The store as it was written."""


BOTH_TIERS = pytest.mark.parametrize("tier", [no_change, squeeze], ids=["fresh", "compacted"])


# what is yielded


@BOTH_TIERS
def test_events_and_batches_hold_what_was_written(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store, segments=3)
    write(store, 0, 1_000)
    tier(store)
    with reader(store) as events:
        seen = list(events)
    assert sorted(e.body["n"] for e in seen) == list(range(1_000))
    for event in seen:
        n = event.body["n"]
        assert (event.key, event.time_us) == (f"d{n % 5}", T0 + n)
        assert event.body == {"device": event.key, "at": event.time, "n": n}
    with reader(store) as batches:
        rows = [row for batch in batches.batches() for row in batch.to_pylist()]
    assert [(r["n"], r["_segment"], r["_offset"], int(r["_appended"].timestamp() * 1e6)) for r in rows] == [
        (e.body["n"], e.segment.packed, e.offset, e.appended_us) for e in seen
    ]
    assert list(rows[0]) == ["device", "at", "n", "_segment", "_offset", "_appended"]


def test_a_raw_event_is_bytes(store: ab.Store) -> None:
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        writer.write(b"one", key="a", time=T0)
        writer.write(b"two")
    with reader(store, "s/raw") as events:
        first, second = events
    assert (first.key, first.time, first.body) == ("a", datetime.fromtimestamp(T0 / 1e6, UTC), b"one")
    assert (second.key, second.body) == (None, b"two")
    with reader(store, "s/raw", columns=["key"]) as events:
        assert [(e.key, e.body) for e in events] == [("a", b"one"), (None, b"two")]


@BOTH_TIERS
def test_columns_are_chosen_and_ordered(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store)
    write(store, 0, 10)
    tier(store)
    with reader(store, columns=["n", "device"]) as some:
        (batch,) = some.batches()
        assert batch.schema.names == ["n", "device", "_segment", "_offset", "_appended"]
        assert batch.schema == some.schema
    with reader(store, columns=["n"]) as some:
        event = next(iter(some))
        assert (event.body, event.key, event.time_us) == ({"n": 0}, "d0", T0)
    with reader(store, columns=[]) as none:
        (batch,) = none.batches()
        assert batch.num_rows == 10
    with pytest.raises(errors.SchemaMismatch, match="no column 'x'"):
        reader(store, columns=["x"])


def test_batches_hold_at_most_the_rows_asked_for(store: ab.Store) -> None:
    create(store)
    write(store, 0, 3_000, size=1_500)
    with reader(store, batch_rows=400) as some:
        sizes = [batch.num_rows for batch in some.batches()]
    assert max(sizes) <= 400
    assert sum(sizes) == 3_000


def test_many_small_appends_come_as_few_batches(store: ab.Store) -> None:
    create(store)
    write(store, 0, 200, size=2)
    with reader(store) as some:
        batches = list(some.batches())
    assert len(batches) == 1
    assert batches[0].column("_offset").to_pylist() == list(range(200))
    assert len(set(batches[0].column("_appended").to_pylist())) > 1


def test_a_stream_in_arrows_c_interface(store: ab.Store) -> None:
    create(store)
    write(store, 0, 250)
    with reader(store) as some:
        whole = pa.RecordBatchReader.from_stream(some.batches()).read_all()
    assert whole.column("n").to_pylist() == list(range(250))


@BOTH_TIERS
def test_events_of_older_schemas_have_nulls_in_new_columns(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store)
    write(store, 0, 10)
    old = reader(store, follow=True)
    store.streams.evolve("s/a", SCHEMA.append(pa.field("unit", pa.string())))
    with store.writer("s/a") as writer:
        writer.write({"device": "x", "n": 10, "unit": "K"}).result()
    tier(store)
    with reader(store) as some:
        assert [(e.body["n"], e.body["unit"]) for e in some] == [(i, None) for i in range(10)] + [(10, "K")]
    # A reader keeps the columns of its opening.
    batches = [old.read() for _ in range(3)]
    assert [n for b in batches if b is not None for n in b.column("n").to_pylist()] == list(range(11))
    assert {tuple(b.schema.names) for b in batches if b is not None} == {tuple(old.schema.names)}
    old.close()


# order and ends


@BOTH_TIERS
def test_order_of_every_key_holds_across_splits_and_merges(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store)
    at = 0
    for segments in (3, 1, 4, 2, 5):
        write(store, at, 300, size=50)
        at += 300
        store.streams.scale("s/a", segments=segments)
    write(store, at, 300, size=50)
    tier(store)
    for as_events in (True, False):
        with reader(store) as some:
            read = numbers(some if as_events else some.batches())
        assert sorted(read) == list(range(at + 300))
        assert_order_of_keys(read)


def test_segments_take_turns(store: ab.Store) -> None:
    create(store, segments=2)
    write(store, 0, 20_000, size=5_000)
    with reader(store, batch_rows=1_000) as some:
        segments = [batch.column("_segment")[0].as_py() for batch in some.batches()]
    assert segments[:4] == [0, 1, 0, 1]


@BOTH_TIERS
def test_two_readers_that_meet_at_a_cut_read_everything_once(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store, segments=2)
    write(store, 0, 500)
    store.streams.scale("s/a", segments=3)
    write(store, 500, 500)
    tier(store)
    with reader(store) as first:
        events = iter(first)
        for count in range(1, 1_000):
            next(events)
            if count % 37:
                continue
            cut = first.position
            with reader(store, end=cut) as before, reader(store, start=cut) as behind:
                earlier, later = numbers(before.batches()), numbers(behind.batches())
            assert len(earlier) == count
            assert sorted(earlier + later) == list(range(1_000))
            assert_order_of_keys(earlier + later)


def test_the_position_goes_with_batches_and_survives_a_change_of_kind(store: ab.Store) -> None:
    create(store, segments=2)
    write(store, 0, 1_000)
    with reader(store, batch_rows=64) as some:
        seen = []
        for event in some:
            seen.append(event.body["n"])
            if len(seen) == 100:
                break
        for batch in some.batches():
            seen += batch.column("n").to_pylist()
            if len(seen) > 300:
                break
        seen += numbers(some)
        assert some.position == store.streams.tail("s/a")
    assert sorted(seen) == list(range(1_000))


@pytest.mark.parametrize("kind", ["events", "batches"])
def test_who_reads_on_behind_ctrl_c_misses_nothing_and_gets_nothing_twice(store: ab.Store, kind: str) -> None:
    create(store)
    write(store, 0, 100)

    def pulled() -> Delivery | None:
        found = real()
        if found is not None and found.rows.first:
            r._flow.pull = real  # type: ignore[method-assign]
            raise KeyboardInterrupt
        return found

    with reader(store, batch_rows=10) as r:
        found = r.read() if kind == "batches" else next(iter(r))  # from now on it is of this kind
        assert found is not None
        real, r._flow.pull = r._flow.pull, pulled  # type: ignore[method-assign]
        seen = [0] if kind == "events" else list(range(10))

        def go_on() -> None:
            for each in r if kind == "events" else r.batches():
                seen.extend([each.body["n"]] if isinstance(each, ab.Event) else each.column("n").to_pylist())

        with pytest.raises(KeyboardInterrupt):
            go_on()
        assert seen == list(range(10))
        assert [at for _, at in r.position] == [10]
        go_on()
        assert seen == list(range(100))
        assert [at for _, at in r.position] == [100]


def test_opened_files_are_kept_up_to_their_number_and_their_bytes(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s/{letter}" for letter in "abcd"]
    for name in names:
        create(store, name=name)
        write(store, 0, 100, name=name)
        compact(store.catalog, store.blobs, store.runtime, force=True, stream=store.streams.get(name).id)

    def opened() -> int:
        for name in names:
            assert numbers(reader(store, name)) == list(range(100))
        return len(store._logs._fetcher._files)

    assert opened() == 4
    monkeypatch.setattr("anabranch.limits.OPEN_PARQUET_MAX", 2)
    assert opened() == 3  # two, and the one that was in use
    monkeypatch.setattr("anabranch.limits.OPEN_PARQUET_MAX", 4)
    one_and_a_half = store._logs._fetcher._files.popitem()[1].size * 3 // 2
    monkeypatch.setattr("anabranch.limits.OPEN_PARQUET_BYTES_MAX", one_and_a_half)
    assert opened() == 2


def test_an_iteration_that_is_forgotten_may_end_where_the_files_are_being_looked_at(store: ab.Store) -> None:
    create(store)
    write(store, 0, 100)
    squeeze(store)
    fetcher = store._logs._fetcher
    with store.catalog.reading() as snapshot:
        (extent,) = snapshot.extents(LogId(1), 0, 100, 10)
    rows = fetcher.parquet(extent, 0, 100, pa.schema([]))
    next(rows)
    with fetcher._lock:
        ending = threading.Thread(target=rows.close, daemon=True)  # type: ignore[attr-defined]
        ending.start()
        until_ended(ending)


def test_who_reads_on_behind_an_error_of_the_catalog_misses_nothing(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store)
    write(store, 0, 40, size=1)
    monkeypatch.setattr("anabranch.limits.EXTENTS_PER_PLAN_MAX", 16)
    with reader(store) as r:
        first = r.read()
        assert first is not None and first.num_rows == 16
        store.streams.scale("s/a", 2)  # so the next page is of a stream that must be looked at anew
        real, calls = store.catalog.reading, iter(range(10))

        def reading() -> contextlib.AbstractContextManager[Reading]:
            if next(calls) == 1:
                raise errors.StoreBusy("another program holds the catalog")
            return real()

        monkeypatch.setattr(store.catalog, "reading", reading)
        with pytest.raises(errors.StoreBusy):
            r.read()
        assert numbers(r.batches()) == list(range(16, 40))


def test_an_end_is_exclusive_and_bounds_are_fixed_at_opening(store: ab.Store) -> None:
    create(store)
    write(store, 0, 100)
    with reader(store) as bounded, reader(store, start=ab.TAIL) as late:
        write(store, 100, 100)
        assert numbers(bounded.batches()) == list(range(100))
        assert numbers(late.batches()) == []
    pointer = ab.EventPointer(store.streams.get("s/a").id, ab.SegmentId(0, 0), 42)
    with reader(store, end=pointer) as before, reader(store, start=str(pointer)) as behind:
        assert numbers(before.batches()) + numbers(behind.batches()) == list(range(200))
        assert before.position.offsets == ((ab.SegmentId(0, 0), 42),)


def test_places_that_do_not_exist_are_refused(store: ab.Store) -> None:
    create(store)
    write(store, 0, 10)
    stream = store.streams.get("s/a").id
    with pytest.raises(errors.InvalidCut, match="before the start"):
        reader(store, start=ab.TAIL, end=ab.HEAD)
    with pytest.raises(errors.InvalidCut):
        reader(store, start=ab.StreamCut.of(stream, {ab.SegmentId(0, 0): 11}))
    with pytest.raises(errors.EventNotFound):
        reader(store, start=ab.EventPointer(stream, ab.SegmentId(0, 0), 10))
    with pytest.raises(errors.InvalidPointer):
        reader(store, start=ab.EventPointer(ab.EventPointer.parse("0" * 48).stream, ab.SegmentId(0, 0), 1))
    with pytest.raises(errors.InvalidArgument, match="no time"):
        reader(store, start="yesterday")
    with pytest.raises(errors.InvalidArgument, match="either follows"):
        reader(store, end=ab.TAIL, follow=True)
    with pytest.raises(errors.StreamNotFound):
        reader(store, "s/none")


# times


@BOTH_TIERS
@pytest.mark.parametrize("by", ["append", "event"])
def test_a_reader_starts_at_a_time_and_compaction_changes_nothing(
    store: ab.Store, tier: Callable[[ab.Store], None], by: str
) -> None:
    create(store, segments=2)
    write(store, 0, 300, size=30)
    store.streams.scale("s/a", segments=1)
    write(store, 300, 300, size=30)
    with reader(store) as some:
        times = {e.body["n"]: (e.appended_us if by == "append" else e.time_us) or 0 for e in some}
    tier(store)
    for wanted in (0, 1, 29, 30, 299, 300, 450, 599):
        time_us = times[wanted]
        with reader(store, start=time_us, by=by) as behind, reader(store, end=time_us, by=by) as before:
            later, earlier = numbers(behind.batches()), numbers(before.batches())
        assert all(times[n] < time_us for n in earlier)
        assert all(times[n] >= time_us for n in later)
        assert sorted(earlier + later) == list(range(600))
    with reader(store, start=max(times.values()) + 1, by=by) as nothing:
        assert list(nothing) == []


@BOTH_TIERS
def test_the_cut_at_an_event_time_stands_before_the_first_late_event(
    store: ab.Store, tier: Callable[[ab.Store], None]
) -> None:
    create(store)
    with store.writer("s/a") as writer:
        for n in (5, 1, 9, 2, 9, 7, 3):
            writer.write({"device": "d", "at": T0 + n, "n": n}).result()
        writer.write({"device": "d", "n": 0}).result()  # without a time
    tier(store)
    for late, offset in ((0, 0), (5, 0), (6, 2), (9, 2), (10, 8)):
        assert store.streams.cut_at("s/a", T0 + late, by="event").offsets == ((ab.SegmentId(0, 0), offset),)


@BOTH_TIERS
def test_a_range_of_event_times_yields_exactly_its_events(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store, segments=2)
    write(store, 0, 1_000, size=50)
    with store.writer("s/a") as writer:
        writer.write({"device": "d", "n": 1_000}).result()  # without a time: in no range
    tier(store)
    for columns in (None, ["n"]):
        with reader(store, between=(T0 + 333, T0 + 777), columns=columns) as some:
            batches = list(some.batches())
        assert sorted(numbers(batches)) == list(range(333, 777))
        with reader(store) as whole:
            places = {e.body["n"]: (e.segment.packed, e.offset) for e in whole}
        for batch in batches:
            assert batch.schema.names[: len(columns or SCHEMA)] == (columns or SCHEMA.names)
            for row in batch.to_pylist():
                assert places[row["n"]] == (row["_segment"], row["_offset"])
    with reader(store, between=(T0 + 333, T0 + 777)) as some:
        for event in some:
            assert places[event.body["n"]] == (event.segment.packed, event.offset)
        assert some.position == store.streams.tail("s/a")


def test_the_position_of_a_reader_that_leaves_events_out_is_sound_across_a_scaling(store: ab.Store) -> None:
    create(store, segments=2)
    write(store, 0, 300, size=10)
    store.streams.scale("s/a", segments=3)
    write(store, 300, 300, size=10)
    between = (T0 + 350, T0 + 360)
    with reader(store, between=between) as some:
        events = iter(some)
        seen = []
        for _ in range(10):
            seen.append(next(events).body["n"])
            with reader(store, start=some.position, between=between) as rest:
                assert sorted(seen + numbers(rest)) == list(range(350, 360))


def test_a_range_of_event_times_reads_only_extents_that_can_hold_it(store: ab.Store) -> None:
    create(store)
    write(store, 0, 1_000, size=50)
    view = store.streams.view("s/a")
    logs = LogReader(store.catalog, store.blobs, store.runtime)
    with store.catalog.reading() as reading:
        planned = logs.plan(reading, view, ab.SegmentId(0, 0), 0, 1_000, between=(T0 + 120, T0 + 130))
    assert [(piece.start, piece.stop) for piece in planned.pieces] == [(100, 150)]
    assert planned.stop == 1_000


# pointers


@BOTH_TIERS
def test_every_pointer_fetches_its_event(store: ab.Store, tier: Callable[[ab.Store], None]) -> None:
    create(store, segments=2)
    write(store, 0, 300)
    with reader(store) as some:
        pointers = {e.body["n"]: e.pointer for e in some}
    tier(store)
    for n, pointer in pointers.items():
        event = store.fetch(pointer)
        assert (event.body["n"], event.pointer) == (n, pointer)
        assert store.fetch(str(pointer)).body == event.body
    lost = pointers[0]._replace(offset=10_000)
    with pytest.raises(errors.EventNotFound):
        store.fetch(lost)
    with pytest.raises(errors.EventNotFound):
        store.fetch(pointers[0]._replace(segment=ab.SegmentId(9, 9)))


def test_reading_from_a_pointer_begins_with_its_event_and_holds_all_that_was_appended_later(store: ab.Store) -> None:
    create(store, segments=3)
    write(store, 0, 300, size=10)
    store.streams.scale("s/a", segments=2)
    write(store, 300, 300, size=10)
    with reader(store) as some:
        events = {e.body["n"]: e for e in some}
    for n in (0, 7, 299, 300, 455, 599):
        with reader(store, start=events[n].pointer) as some:
            read = numbers(some.batches())
        assert n in read
        assert_order_of_keys(read)
        later = {m for m, e in events.items() if (e.appended_us or 0) > (events[n].appended_us or 0)}
        assert later <= set(read)
        mine = [m for m in read if events[m].segment == events[n].segment]
        assert min(events[m].offset for m in mine) == events[n].offset


# following


def test_a_follower_is_woken_and_discovers_new_segments(store: ab.Store) -> None:
    create(store)
    seen: list[int] = []
    with reader(store, follow=True) as follower:

        def follow() -> None:
            seen.extend(event.body["n"] for event in follower)

        thread = threading.Thread(target=follow)
        thread.start()
        at = 0
        for segments in (2, 1, 3):
            write(store, at, 100, size=10)
            at += 100
            store.streams.scale("s/a", segments=segments)
        write(store, at, 100, size=10)
        until(lambda: len(seen) >= at + 100)
        follower.close()
        until_ended(thread)
    assert sorted(seen) == list(range(at + 100))
    assert_order_of_keys(seen)


def test_closing_wakes_a_blocked_follower(store: ab.Store) -> None:
    create(store)
    follower = reader(store, follow=True)
    thread = threading.Thread(target=lambda: list(follower.batches()))
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    follower.close()
    follower.close()
    until_ended(thread)
    for use in (lambda: iter(follower), follower.batches, follower.read, follower.__aiter__):
        with pytest.raises(errors.Closed):
            use()


def test_a_follower_ends_when_the_stream_is_sealed(store: ab.Store) -> None:
    create(store)
    write(store, 0, 10)
    with reader(store, follow=True) as follower:
        thread = threading.Timer(0.1, lambda: store.streams.seal("s/a"))
        thread.start()
        assert numbers(follower.batches()) == list(range(10))
        thread.join()


def test_read_waits_as_long_as_it_is_told(store: ab.Store) -> None:
    create(store)
    with reader(store, follow=True) as follower:
        assert follower.read() is None
        began = time.monotonic()
        assert follower.read(0.1) is None  # and comes back, as nothing is ever written here
        assert time.monotonic() - began > 0.09
        write(store, 0, 10)
        batch = follower.read(60)
        assert batch is not None
        assert batch.num_rows == 10


@pytest.mark.process
def test_a_follower_in_another_process_is_aware_of_each_commit(tmp_path: Path) -> None:
    """How soon depends on the machine, and is a figure of the bench."""
    with ab.connect(tmp_path) as store:
        store.streams.create_scope("s")
        create(store)
        script = (
            "import anabranch as ab, sys\n"
            f"with ab.connect({str(tmp_path)!r}) as store, store.reader('s/a', follow=True) as reader:\n"
            "    print('open', flush=True)\n"
            "    for event in reader: print(event.body['n'], flush=True)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            for n in range(20):
                time.sleep(0.02)  # it may rest between its looks by then
                write(store, n, 1)
                assert other.stdout.readline() == f"{n}\n"
            other.kill()


# coroutines


async def test_events_and_batches_come_to_coroutines(store: ab.Store) -> None:
    create(store, segments=2)
    write(store, 0, 500)
    async with reader(store) as some:
        assert sorted([event.body["n"] async for event in some]) == list(range(500))
    async with reader(store) as some:
        assert sorted(numbers([batch async for batch in some.batches()])) == list(range(500))


async def test_a_waiting_coroutine_leaves_the_loop_free_and_its_cancelling_loses_nothing(store: ab.Store) -> None:
    create(store)
    async with reader(store, follow=True) as some:
        seen: list[int] = []

        async def consume() -> None:
            async for event in some:
                seen.append(event.body["n"])  # noqa: PERF401  (a cancelled comprehension would lose what it has)

        for round_ in range(5):
            task = asyncio.create_task(consume())
            ticks = 0
            for _ in range(5):
                await asyncio.sleep(0.01)
                ticks += 1
            assert ticks == 5
            if round_ % 2:
                await asyncio.to_thread(write, store, round_ * 10, 10)
                while len(seen) < (round_ // 2 + 1) * 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    assert seen == [*range(10, 20), *range(30, 40)]


async def test_a_cancelled_coroutine_leaves_nobody_waiting_in_its_place(store: ab.Store) -> None:
    create(store)
    async with reader(store, follow=True) as some:
        task = asyncio.ensure_future(anext(aiter(some)))
        await asyncio.sleep(0.05)
        with pytest.raises(errors.InvalidArgument, match="one consumer"):
            some.batches()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert some.read() is None
        write(store, 0, 10)
        assert numbers([some.read(60)]) == list(range(10))


async def test_closing_ends_a_waiting_coroutine(store: ab.Store) -> None:
    create(store)
    some = reader(store, follow=True)

    async def consume() -> list[int]:
        return [event.body["n"] async for event in some]

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.05)
    some.close()
    assert await asyncio.wait_for(task, PATIENCE_S) == []


async def test_an_error_reaches_the_coroutine(store: ab.Store) -> None:
    create(store)
    async with reader(store, follow=True) as some:
        store.streams.delete("s/a")
        with pytest.raises(errors.StreamNotFound):
            async for _ in some:
                pass


# bad days


def test_a_reader_below_a_truncation_is_told_the_new_head(store: ab.Store) -> None:
    create(store)
    write(store, 0, 100)
    with reader(store, follow=True) as follower, reader(store) as ahead:
        cut = ab.StreamCut.of(store.streams.get("s/a").id, {ab.SegmentId(0, 0): 60})
        assert len(numbers(ahead.batches())) == 100
        store.streams.truncate("s/a", cut)
        with pytest.raises(errors.Truncated) as error:
            list(follower.batches())
        assert error.value.head == {"0.0": 60}
        assert ahead.read() is None
    with reader(store) as some:
        assert numbers(some.batches()) == list(range(60, 100))
    gone = ab.EventPointer(cut.stream, ab.SegmentId(0, 0), 59)
    with pytest.raises(errors.Truncated):
        store.fetch(gone)
    with pytest.raises(errors.Truncated):
        reader(store, start=ab.StreamCut.of(cut.stream, {ab.SegmentId(0, 0): 59}))


def test_a_reader_of_a_deleted_stream_is_told(store: ab.Store) -> None:
    create(store)
    write(store, 0, 10)
    with reader(store, follow=True) as follower:
        assert follower.read() is not None
        store.streams.delete("s/a")
        with pytest.raises(errors.StreamNotFound, match="s/a"):
            follower.read(60)


def big(store: ab.Store) -> list[str]:
    """Two appends that are too large to be inlined; returns the keys of their blobs."""
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        for start in (0, 1):
            writer.write_batch(pa.table({"payload": [bytes([start]) * 1_000] * 200})).result()
    return [blob.key for blob in store.blobs.list()]


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


@BOTH_TIERS
def test_a_flipped_bit_is_reported_and_no_row_of_its_batch_is_handed_out(
    tmp_path: Path, tier: Callable[[ab.Store], None]
) -> None:
    with ab.connect(tmp_path) as store:
        store.streams.create_scope("s")
        big(store)
        tier(store)
        with store.catalog.reading() as reading:
            (log,) = reading.logs_after(LogId(0), 9)
            extent = reading.extents(log.id, 0, log.length, 9)[-1]
    assert extent.key is not None
    damage(tmp_path / "blobs" / extent.key, (tmp_path / "blobs" / extent.key).stat().st_size // 3)
    with ab.connect(tmp_path) as store, reader(store, "s/raw") as some:
        if tier is no_change:
            batch = some.read()
            assert batch is not None
            assert batch.num_rows == 200
        for _ in range(2):  # who goes on does not skip it
            with pytest.raises(errors.CorruptBlob, match=extent.key):
                some.read()


def test_a_missing_blob_is_reported(tmp_path: Path) -> None:
    with ab.connect(tmp_path) as store:
        store.streams.create_scope("s")
        _, second = big(store)
    (tmp_path / "blobs" / second).unlink()
    with ab.connect(tmp_path) as store, reader(store, "s/raw") as some:
        assert some.read() is not None
        with pytest.raises(errors.BlobMissing, match=second):
            some.read()


def test_a_plan_that_compaction_made_stale_is_made_again(tmp_path: Path) -> None:
    with ab.connect(tmp_path) as store:
        store.streams.create_scope("s")
        keys = big(store)
        with reader(store, "s/raw", batch_rows=64) as some:
            rows = [some.read()]
            squeeze(store)
            for key in keys:  # as the collector will, once they are old enough
                store.blobs.delete(key)
            while (batch := some.read()) is not None:
                rows.append(batch)
        offsets = [n for b in rows if b is not None for n in b.column("_offset").to_pylist()]
        assert offsets == list(range(400))
