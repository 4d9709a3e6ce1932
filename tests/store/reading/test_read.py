"""Reading a stream whole: as events and as batches, in order, before and after compaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.log.upkeep.compact import compact
from anabranch.model.ids import LogId
from anabranch.reading.reader import Reader
from tests.store.reading.kit import (
    BOTH_TIERS,
    SCHEMA,
    T0,
    assert_order_of_keys,
    create,
    numbers,
    reader,
    squeeze,
    write,
)
from tests.waiting import PATIENCE_S, until, until_ended

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
    with pytest.raises(errors.SchemaMismatch, match="unknown column 'x'"):
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


def test_a_stream_in_arrows_c_interface_fails_where_its_reader_is_closed_before_its_end(store: ab.Store) -> None:
    create(store)
    write(store, 0, 250)
    with reader(store, batch_rows=10) as some:
        begun = pa.RecordBatchReader.from_stream(some.batches())
        assert begun.read_next_batch().num_rows == 10
    with pytest.raises(pa.ArrowException, match="closed"):
        begun.read_all()
    with reader(store, follow=True) as following:
        endless = pa.RecordBatchReader.from_stream(following.batches())
        found = endless.read_next_batch().num_rows
    assert 0 < found <= 250
    assert endless.read_all().num_rows == 0  # it has no other end


def test_closing_a_reader_waits_for_a_pull_of_arrows_c_interface(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store)
    write(store, 0, 250)
    pulls, go_on, wait = threading.Event(), threading.Event(), Reader._wait

    def slow(self: Reader, *arguments: Any, **options: Any) -> Any:
        pulls.set()
        assert go_on.wait(PATIENCE_S)
        return wait(self, *arguments, **options)

    monkeypatch.setattr(Reader, "_wait", slow)
    some, ended = reader(store), []
    begun = pa.RecordBatchReader.from_stream(some.batches())

    def pull() -> None:
        try:
            begun.read_all()
        except pa.ArrowException as exc:
            ended.append(str(exc))

    pulling, closing = threading.Thread(target=pull), threading.Thread(target=some.close)
    pulling.start()
    assert pulls.wait(PATIENCE_S)
    closing.start()
    until(lambda: some.closed)
    assert closing.is_alive()
    go_on.set()
    until_ended(pulling, closing)
    assert len(ended) == 1


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
        assert some.position == store.cuts.tail("s/a")
    assert sorted(seen) == list(range(1_000))


def test_iterations_of_both_kinds_side_by_side_read_every_row_once(store: ab.Store) -> None:
    create(store)
    write(store, 0, 100)
    with reader(store, batch_rows=10) as mixed:
        events, batches = iter(mixed), iter(mixed.batches())
        seen = [next(events).body["n"] for _ in range(3)]
        seen += numbers([next(batches)])
        seen += [next(events).body["n"] for _ in range(3)]
        seen += numbers([next(batches)])
        seen += numbers([mixed.read()])
        seen += [event.body["n"] for event in events]
        assert next(batches, None) is None
    assert seen == list(range(100))


def test_an_iteration_goes_on_after_a_skip_without_repeating_events(store: ab.Store) -> None:
    create(store)
    write(store, 0, 30)
    with reader(store) as events:
        iteration = iter(events)
        seen = [next(iteration).body["n"] for _ in range(3)]
        assert events.skip_truncated() == 0
        assert [*seen, *(event.body["n"] for event in iteration)] == list(range(30))


async def test_coroutines_of_both_kinds_side_by_side_read_every_row_once(store: ab.Store) -> None:
    create(store)
    write(store, 0, 40)
    async with reader(store, batch_rows=10) as mixed:
        events, batches = aiter(mixed), aiter(mixed.batches())
        seen = [(await anext(events)).body["n"] for _ in range(3)]
        seen += numbers([await anext(batches)])
        seen += [event.body["n"] async for event in events]
    assert seen == list(range(40))


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
        return len(store._logs.fetcher._files)

    assert opened() == 4
    monkeypatch.setattr("anabranch.limits.OPEN_PARQUET_MAX", 2)
    assert opened() == 3  # two, and the one that was in use
    monkeypatch.setattr("anabranch.limits.OPEN_PARQUET_MAX", 4)
    one_and_a_half = store._logs.fetcher._files.popitem()[1].size * 3 // 2
    monkeypatch.setattr("anabranch.limits.OPEN_PARQUET_BYTES_MAX", one_and_a_half)
    assert opened() == 2


def test_an_iteration_that_is_forgotten_may_end_where_the_files_are_being_looked_at(store: ab.Store) -> None:
    create(store)
    write(store, 0, 100)
    squeeze(store)
    fetcher = store._logs.fetcher
    with store.catalog.reading() as snapshot:
        (extent,) = snapshot.extents(LogId(1), 0, 100, 10)
    rows = fetcher.parquet(extent, 0, 100, pa.schema([]))
    next(rows)
    with fetcher._lock:
        ending = threading.Thread(target=rows.close, daemon=True)  # type: ignore[attr-defined]
        ending.start()
        until_ended(ending)


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
    with pytest.raises(errors.InvalidArgument, match="is not a time"):
        reader(store, start="yesterday")
    with pytest.raises(errors.InvalidArgument, match="that follows the stream can't have an end"):
        reader(store, end=ab.TAIL, follow=True)
    with pytest.raises(errors.StreamNotFound):
        reader(store, "s/none")
