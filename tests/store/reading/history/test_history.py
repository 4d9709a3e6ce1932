"""History in ranges: they divide the events exactly, any process reads them, and prefetching keeps order and limits."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import Closed, InvalidArgument, SchemaMismatch, Truncated
from anabranch.model.ids import StreamId
from anabranch.model.pointer import EventPointer
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.history.prefetch import Prefetch
from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.runtime.tasks import Task, ThreadTasks
from anabranch.store import Store
from tests.waiting import until, until_ended

EVENTS = 600
WAIT_S = 60.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A stream of several epochs, of which a part is compacted."""
    with ab.connect(tmp_path_factory.mktemp("history") / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        with store.writer("s/a") as writer:
            for n in range(EVENTS):
                writer.write(f"{n:04}".encode() + b"." * 500, key=f"k{n % 13}")
                if n % 50 == 49:
                    writer.flush()
                if n == 150:
                    store.streams.scale("s/a", 3)
                if n == 300:
                    store.compact(force=True)
                if n == 450:
                    store.streams.scale("s/a", 1)
        yield store


def events(batches: Iterator[pa.RecordBatch]) -> list[tuple[str, int]]:
    return [
        (key, int(payload[:4]))
        for batch in batches
        for key, payload in zip(batch.column("key").to_pylist(), batch.column("payload").to_pylist(), strict=True)
    ]


def assert_complete(found: list[tuple[str, int]]) -> None:
    assert sorted(number for _, number in found) == list(range(EVENTS))
    for key in {key for key, _ in found}:
        mine = [number for each, number in found if each == key]
        assert mine == sorted(mine)


@given(bytes_max=st.integers(1, 400_000))
@settings(max_examples=15)
def test_ranges_of_any_size_cover_each_event_once_in_key_order(store: Store, bytes_max: int) -> None:
    parts = store.history("s/a").ranges(bytes_max=bytes_max)
    assert sum(part.events for part in parts) == EVENTS
    assert_complete([event for part in parts for event in events(part.batches())])


def test_ranges_end_at_the_cuts(store: Store) -> None:
    with store.reader("s/a") as reader:
        for _ in range(200):
            next(iter(reader))
        cut = reader.position
        rest = len(list(reader))
    history = store.history("s/a")
    first, last = history.ranges(ab.HEAD, cut), history.ranges(cut, ab.TAIL)
    assert sum(part.events for part in first) == 200
    assert sum(part.events for part in last) == rest == EVENTS - 200
    assert history.ranges(cut, cut) == []


def test_sizes_of_ranges_are_right_for_events_of_different_sizes(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            for size, count, gathered in ((10, 3_000, 100), (40_000, 20, 1), (10, 3_000, 100), (200_000, 2, 1)):
                for n in range(count):
                    writer.write(os.urandom(size))
                    if n % gathered == gathered - 1:
                        writer.flush()
        parts = store.history("s/a").ranges(bytes_max=100_000)
        held = [sum(sum(map(len, batch.column("payload").to_pylist())) for batch in part.batches()) for part in parts]
    assert sum(held) == 2 * 30_000 + 20 * 40_000 + 2 * 200_000
    for part, weight in zip(parts, held, strict=True):
        assert weight <= part.size <= weight + 50 * part.events  # with keys and times
        assert part.size < 112_500 + 200_050  # an eighth more than was asked for, and one commit


def test_every_row_knows_its_pointer(store: Store) -> None:
    for part in store.history("s/a").ranges(bytes_max=60_000):
        for batch in part.batches(["payload"]):
            assert batch.schema.names == ["payload", "_segment", "_offset", "_appended"]
            offset, payload = batch.column("_offset")[0].as_py(), batch.column("payload")[0].as_py()
            assert batch.column("_segment")[0].as_py() == part.segment.packed
            assert store.fetch(part.pointer(offset)).body == payload


def test_wrong_columns_and_sizes_are_refused(store: Store) -> None:
    history = store.history("s/a")
    with pytest.raises(SchemaMismatch, match="unknown column 'nothing'"):
        list(history.ranges()[0].batches(["nothing"]))
    with pytest.raises(InvalidArgument, match="bytes_max of at least 1"):
        history.ranges(bytes_max=0)
    for wrong in (0, 1.5, "two"):
        with pytest.raises(InvalidArgument, match="at least 1"):
            history.read(fetchers=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"""['"]append['"] or (by=)?['"]event['"]"""):
        history.ranges("2026-01-01T00:00:00Z", by="arrival")  # type: ignore[arg-type]


def test_a_range_is_opened_by_another_process(store: Store, tmp_path: Path) -> None:
    part = store.history("s/a").ranges(bytes_max=100_000)[1]
    (tmp_path / "part").write_bytes(pickle.dumps(part))
    assert len(pickle.dumps(part)) < 1_000
    script = (
        "import pickle, sys; part = pickle.loads(open(sys.argv[1], 'rb').read());"
        "print(sum(batch.num_rows for batch in part.batches()), sum(batch.num_rows for batch in part.batches()))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "part")], capture_output=True, text=True, timeout=120, check=True
    )
    assert completed.stdout.split() == [str(part.events)] * 2


def test_a_stream_of_a_range_that_is_dropped_is_not_kept_by_its_store(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            writer.write("x")
        (part,) = store.history("s/a").ranges()
        for read in (lambda batches: None, pa.RecordBatchReader.read_next_batch, pa.RecordBatchReader.read_all):
            batches = pa.RecordBatchReader.from_stream(part)
            read(batches)
            del batches
            assert not store._open
        store.streams.truncate("s/a", ab.TAIL)
        batches = pa.RecordBatchReader.from_stream(part)
        with pytest.raises(Exception, match="truncated"):
            batches.read_all()
        del batches
        assert not store._open


def test_a_range_of_a_store_in_memory_needs_the_store_when_unpickled() -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            writer.write("x")
        part = store.history("s/a").ranges()[0]
        assert sum(batch.num_rows for batch in part.batches()) == 1
        copy = pickle.loads(pickle.dumps(part))
        assert sum(batch.num_rows for batch in copy.batches(store=store)) == 1
        with pytest.raises(InvalidArgument, match="memory"):
            list(copy.batches())


def test_a_range_that_was_truncated_says_so_and_one_that_was_renamed_or_compacted_is_read(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            for n in range(40):
                writer.write(b"%d" % n + b"." * 900).result()
        parts = store.history("s/a").ranges(bytes_max=10_000)
        assert len(parts) > 2
        store.streams.rename("s/a", "s/b")
        store.compact(force=True)
        store.collect(horizon_us=0)
        assert sum(batch.num_rows for part in parts for batch in part.batches()) == 40
        store.streams.truncate("s/b", ab.StreamCut.of(parts[1].stream, {parts[1].segment: parts[1].start + 1}))
        for part in parts[:2]:
            with pytest.raises(Truncated):
                list(part.batches())
        assert sum(batch.num_rows for batch in parts[2].batches()) == parts[2].events


# reading ahead


@pytest.mark.parametrize("window", [0, 1, 5, 100])
def test_prefetched_batches_come_in_the_order_of_the_ranges(store: Store, window: int) -> None:
    history = store.history("s/a")
    with history.read(history.ranges(bytes_max=20_000), window=window, fetchers=3) as reading:
        assert_complete(events(iter(reading)))
        assert reading.place == len(reading.parts)


def test_a_slow_consumer_keeps_memory_within_the_bound(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=16)
        with store.writer("s/a") as writer:
            rows = {"key": [f"k{n}" for n in range(2_000)], "payload": [os.urandom(4_096) for _ in range(2_000)]}
            writer.write_batch(pa.table(rows))
        store.compact(force=True)  # rows decoded from Parquet are in Arrow's memory, which can be measured
        store.ranges = RangeCache(store.runtime.tasks, 0)
        parts = store.history("s/a").ranges()
        assert len(parts) == 16
        largest = max(part.size for part in parts)
        before, most = pa.total_allocated_bytes(), 0
        with store.history("s/a").read(parts, window=16, fetchers=4, bytes_max=3 * largest) as reading:
            for _ in reading:
                time.sleep(0.03)
                most = max(most, pa.total_allocated_bytes() - before)
        assert most < 6 * largest  # besides the held ranges: the one being consumed, and memory for decoding it


def test_a_coroutine_reads_ahead_too(store: Store) -> None:
    async def collect() -> list[tuple[str, int]]:
        with store.history("s/a").read(fetchers=2) as reading:
            return [event async for batch in reading for event in events(iter([batch]))]

    assert_complete(asyncio.run(collect()))


def test_many_readers_of_one_range_fetch_it_once(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            for n in range(100):
                writer.write(b"%04d" % n + b"." * 900).result()
        parts = store.history("s/a").ranges(bytes_max=10_000)
        counts: list[int] = []

        def consume() -> None:
            with store.history("s/a").read(parts) as reading:
                counts.append(sum(batch.num_rows for batch in reading))

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [100] * 4
        assert store.ranges.fetches == len(parts)
        with store.history("s/a").read(parts) as reading:
            list(reading)
            reading.seek(EventPointer(parts[2].stream, parts[2].segment, parts[2].start))
            assert reading.place == 2
            assert sum(batch.num_rows for batch in reading) == sum(part.events for part in parts[2:])
        assert store.ranges.fetches == len(parts)
        with pytest.raises(InvalidArgument, match="no range 99"):
            reading.seek(99)
        with pytest.raises(InvalidArgument, match="none of the ranges"):
            reading.seek(EventPointer(StreamId(7), parts[2].segment, parts[2].start))


def test_cached_ranges_are_not_used_after_a_new_column_or_a_truncation(tmp_path: Path) -> None:
    columns = pa.schema([("device", pa.string()), ("n", pa.int64())])
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", schema=columns, key="device")
        with store.writer("s/a") as writer:
            for n in range(3):
                writer.write({"device": "d", "n": n}).result()
        history = store.history("s/a")
        parts = history.ranges(bytes_max=1)
        with history.read(parts[:2]) as reading:
            list(reading)
        store.streams.evolve("s/a", columns.append(pa.field("more", pa.int64())))
        with history.read(parts) as reading:
            assert {tuple(batch.schema.names[:3]) for batch in reading} == {("device", "n", "more")}
        store.streams.truncate("s/a", store.cuts.after("s/a", events=2))
        with history.read(parts) as reading:
            with pytest.raises(Truncated):
                list(reading)
            reading.seek(2)
            assert [batch.column("n").to_pylist() for batch in reading] == [[2]]


def test_closing_the_store_ends_prefetching(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            writer.write("x")
        reading = store.history("s/a").read()
    assert list(reading) == []
    with pytest.raises(Closed):
        store.history("s/a")


class Gate:
    """Fetches of ranges that wait until they are let through, and are counted."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun: list[int] = []
        self.free: set[int] = set()
        self.broken: set[int] = set()

    def fetch(self, part: SegmentPartRange) -> list[pa.RecordBatch]:
        with self.changed:
            self.begun.append(part.start)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: part.start in self.free, WAIT_S)
            if part.start in self.broken:
                raise OSError(part.start)
        return [pa.record_batch({"n": [part.start]})]

    def let(self, *numbers: int) -> None:
        with self.changed:
            self.free.update(numbers)
            self.changed.notify_all()

    def wait_for(self, begun: Callable[[list[int]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: begun(self.begun), WAIT_S), self.begun


def parts_of(count: int, size: int = 10) -> list[SegmentPartRange]:
    return [SegmentPartRange(ab_stream, segment, n, n + 1, size) for n in range(count)]


ab_stream = StreamId(7)
segment = ab.SegmentId(0, 0)


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def test_prefetching_respects_window_fetchers_and_bytes_max() -> None:
    gate = Gate()
    with Prefetch(ThreadTasks(), parts_of(20), gate.fetch, window=6, fetchers=2, bytes_max=40) as reading:
        batches = iter(reading)
        consumer = threading.Thread(target=lambda: next(batches))
        consumer.start()
        gate.wait_for(lambda begun: len(begun) == 2)
        assert sorted(gate.begun) == [0, 1]  # two fetchers
        assert reading.held_bytes == 20  # and nothing else is under way
        gate.let(*range(20))
        consumer.join()
        gate.wait_for(lambda begun: len(begun) == 4)
        assert sorted(gate.begun) == [0, 1, 2, 3]  # four ranges of ten bytes
        assert reading.held_bytes == 40
        reading.bytes_max = 1_000
        gate.wait_for(lambda begun: len(begun) == 7)
        assert sorted(gate.begun) == list(range(7))  # the window
        reading.window = 8
        gate.wait_for(lambda begun: len(begun) == 9)
        reading.fetchers = 3
        assert numbers(batches) == list(range(1, 20))
        assert reading.held_bytes == 0


def test_a_range_larger_than_the_bound_is_read_by_itself() -> None:
    gate = Gate()
    gate.let(*range(5))
    with Prefetch(ThreadTasks(), parts_of(5, 100), gate.fetch, window=4, fetchers=4, bytes_max=10) as reading:
        for batch in reading:
            assert batch.column("n")[0].as_py() == reading.place
            assert reading.held_bytes == 100
    assert gate.begun == list(range(5))


def test_an_error_comes_where_its_range_would_and_can_be_passed_over() -> None:
    gate = Gate()
    gate.let(*range(6))
    gate.broken.add(2)
    with Prefetch(ThreadTasks(), parts_of(6), gate.fetch, window=5, fetchers=3, bytes_max=1_000) as reading:
        batches = iter(reading)
        assert [numbers(iter([next(batches)])) for _ in range(2)] == [[0], [1]]
        for _ in range(2):
            with pytest.raises(OSError, match="2"):
                next(iter(reading))
        reading.seek(3)
        assert numbers(iter(reading)) == [3, 4, 5]


@pytest.mark.parametrize("refused", range(5))
def test_a_thread_that_can_not_be_started_is_started_later(refused: int) -> None:
    class Exhausted(ThreadTasks):
        started = 0

        def spawn(self, name: str, work: Callable[[], None]) -> Task:
            self.started += 1
            if self.started == refused + 1:
                raise RuntimeError("can't start new thread")
            return super().spawn(name, work)

    gate = Gate()
    gate.let(*range(4))
    found: list[int] = []

    def consume() -> None:
        while reading.place < 4:
            with suppress(RuntimeError):
                for batch in reading:
                    found.extend(batch.column("n").to_pylist())

    with Prefetch(Exhausted(), parts_of(4), gate.fetch, window=3, fetchers=2, bytes_max=1_000) as reading:
        consumer = threading.Thread(target=consume, daemon=True)
        consumer.start()
        until_ended(consumer)
    assert found == [0, 1, 2, 3]


def test_an_outage_is_reported_once_however_many_ranges_it_hit() -> None:
    gate = Gate()
    gate.let(*range(6))
    gate.broken.update(range(1, 5))
    with Prefetch(ThreadTasks(), parts_of(6), gate.fetch, window=5, fetchers=1, bytes_max=1_000) as reading:
        assert numbers(iter([next(iter(reading))])) == [0]
        gate.wait_for(lambda begun: 5 in begun)  # one at a time, so all that fail have failed
        with pytest.raises(OSError, match="1"):
            next(iter(reading))
        gate.broken.clear()
        assert numbers(iter(reading)) == list(range(1, 6))


def test_what_a_cancelled_coroutine_did_not_get_is_handed_out_next() -> None:
    gate = Gate()

    async def cancelled(reading: Prefetch[SegmentPartRange]) -> None:
        waiting = asyncio.ensure_future(anext(aiter(reading)))
        await asyncio.sleep(0)
        gate.let(0, 1, 2)
        until(lambda: not reading._pump.busy)  # the batch is there, and the event loop does not know it yet
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with Prefetch(ThreadTasks(), parts_of(3), gate.fetch, window=1, fetchers=1, bytes_max=1_000) as reading:
        asyncio.run(cancelled(reading))
        assert numbers(iter(reading)) == [0, 1, 2]


def test_a_moved_or_emptied_window_keeps_nothing_of_the_old_place() -> None:
    gate = Gate()
    gate.let(*range(30))
    with Prefetch(ThreadTasks(), parts_of(30), gate.fetch, window=3, fetchers=2, bytes_max=1_000) as reading:
        assert numbers(iter([next(iter(reading))])) == [0]
        gate.wait_for(lambda begun: len(begun) == 4)
        reading.seek(20)
        assert numbers(iter([next(iter(reading))])) == [20]
        gate.wait_for(lambda begun: set(begun) == {0, 1, 2, 3, 20, 21, 22, 23})
        until(lambda: reading.held_bytes == 40)  # a fetch of the old place may still be under way
        reading.window = 0
        reading.empty()
        assert numbers(iter(reading)) == list(range(21, 30))


def test_closing_waits_for_the_fetches_under_way_and_ends_the_iteration() -> None:
    gate = Gate()
    reading = Prefetch(ThreadTasks(), parts_of(3), gate.fetch, window=2, fetchers=3, bytes_max=1_000)
    seen: list[object] = []
    consumer = threading.Thread(target=lambda: seen.extend(reading))
    consumer.start()
    gate.wait_for(lambda begun: len(begun) == 3)
    closer = threading.Thread(target=reading.close)
    closer.start()
    consumer.join(WAIT_S)
    assert not consumer.is_alive()
    assert closer.is_alive()
    gate.let(0, 1, 2)
    closer.join(WAIT_S)
    assert not closer.is_alive()
    assert seen == []
    reading.close()


def test_the_cache_keeps_what_was_used_last_within_its_bound() -> None:
    one = [pa.record_batch({"n": list(range(100))})]
    size = one[0].nbytes
    cache = RangeCache(ThreadTasks(), 2 * size)
    keys = [(part, None, 1) for part in parts_of(3)]
    for key in (keys[0], keys[1], keys[0], keys[2], keys[0]):
        assert cache.get(key, lambda: one) is one
    assert (cache.fetches, cache.bytes) == (3, 2 * size)
    cache.get(keys[1], lambda: one)
    assert cache.fetches == 4
    cache.get((parts_of(9)[8], None, 1), lambda: one * 3)  # too large to be kept
    assert cache.bytes <= 2 * size
    cache.clear()
    assert cache.bytes == 0
