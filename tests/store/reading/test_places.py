"""Reading from times and pointers: the same before and after compaction."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import errors
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from tests.store.reading.kit import (
    BOTH_TIERS,
    SCHEMA,
    T0,
    assert_order_of_keys,
    create,
    numbers,
    reader,
    write,
)

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
        assert store.cuts.at("s/a", T0 + late, by="event").offsets == ((ab.SegmentId(0, 0), offset),)


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
        assert some.position == store.cuts.tail("s/a")


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
    planned = SegmentReader(logs, view, ab.SegmentId(0, 0)).plan(0, 1_000, between=(T0 + 120, T0 + 130))
    assert [(piece.start, piece.stop) for piece in planned.extents] == [(100, 150)]
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
