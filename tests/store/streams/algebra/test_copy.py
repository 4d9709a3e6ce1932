"""Copies: the same events at the same places over the same bytes, and from then on two streams."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    InvalidCut,
    InvalidPointer,
    RequestMismatch,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    Truncated,
)
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.store.helpers import SCHEMA, bodies_of, by_key, events_of, sound
from tests.store.kit import SECOND


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with ab.connect("memory://", runtime=runtime_by(clock)) as opened:
        opened.scopes.create("s")
        opened.streams.create("s/a", scaling=2, tags={"of": "a"})
        yield opened
        assert sound(opened)


def write(store: Store, stream: str, *numbers: int) -> list[ab.EventPointer]:
    """Events with these bodies, three keys in turn."""
    with store.writer(stream) as writer:
        return [writer.write(str(n).encode(), key="abc"[n % 3]).result() for n in numbers]


def numbers(store: Store, stream: str) -> list[int]:
    return sorted(int(body) for body in bodies_of(store, stream))


def places(store: Store, stream: str) -> dict[bytes, tuple[str, int]]:
    return {e.body: (str(e.pointer.segment), e.pointer.offset) for e in events_of(store, stream)}


def rows(store: Store, table: str) -> int:
    with store.catalog.reading() as reading:
        return len(reading.export(table))


def test_a_copy_has_the_same_events_at_the_same_offsets(store: Store) -> None:
    old = write(store, "s/a", *range(9))
    store.streams.scale("s/a", 3)
    old += write(store, "s/a", *range(9, 20))
    copied = store.streams.copy("s/a", "s/b")
    assert places(store, "s/b") == places(store, "s/a")
    info, copy = store.streams.get("s/a"), store.streams.get("s/b")
    assert (copy.epoch, copy.tags, copy.schema, copy.sealed) == (info.epoch, info.tags, info.schema, False)
    assert copied.source == info.id and copied.copy == copy.id
    for n, pointer in enumerate(old):
        assert store.fetch(copied.pointer(pointer)).body == str(n).encode()
    assert copied.cut(store.cuts.tail("s/a")) == store.cuts.tail("s/b")


def test_later_writes_to_either_are_independent(store: Store) -> None:
    write(store, "s/a", *range(6))
    store.streams.copy("s/a", "s/b")
    write(store, "s/a", *range(10, 16))
    write(store, "s/b", *range(20, 26))
    assert numbers(store, "s/a") == [*range(6), *range(10, 16)]
    assert numbers(store, "s/b") == [*range(6), *range(20, 26)]
    store.streams.scale("s/a", 1)
    store.streams.truncate("s/b", store.cuts.tail("s/b"))
    assert numbers(store, "s/a") == [*range(6), *range(10, 16)]
    assert numbers(store, "s/b") == []


def test_a_copy_shares_every_byte_and_costs_rows_by_segments_alone(store: Store) -> None:
    write(store, "s/a", *range(4))
    added = []
    for round_, target in enumerate(("s/b", "s/c")):
        before = {table: rows(store, table) for table in ("segments", "spans", "logs", "extents", "blobs")}
        store.streams.copy("s/a", target)
        added.append({table: rows(store, table) - before[table] for table in before})
        write(store, "s/a", *range(100 * round_, 100 * round_ + 50))
    assert added[0] == added[1] == {"segments": 2, "spans": 4, "logs": 2, "extents": 0, "blobs": 0}


def test_a_range_is_copied_with_its_epochs(store: Store) -> None:
    write(store, "s/a", *range(6))
    start = store.cuts.tail("s/a")
    write(store, "s/a", *range(6, 12))
    store.streams.scale("s/a", 3)
    write(store, "s/a", *range(12, 18))
    end = store.cuts.tail("s/a")
    store.streams.scale("s/a", 1)
    write(store, "s/a", *range(18, 24))
    copied = store.streams.copy(ab.StreamRange("s/a", start, end), "s/b")
    assert (copied.start, copied.end) == (start, end)
    assert numbers(store, "s/b") == [*range(6, 18)]
    assert places(store, "s/b").items() <= places(store, "s/a").items()
    assert store.cuts.distance("s/b").events == 12
    write(store, "s/b", 99)
    assert numbers(store, "s/b") == [*range(6, 18), 99]
    with pytest.raises(Truncated):
        store.fetch(copied.pointer(events_of(store, "s/a")[0].pointer))


def test_a_range_may_end_between_two_epochs(store: Store) -> None:
    store.streams.scale("s/a", split="0.0")
    write(store, "s/a", *range(12))
    halfway = store.cuts.tail("s/a")
    store.streams.scale("s/a", split="0.1")
    write(store, "s/a", *range(12, 24))
    store.streams.copy(ab.StreamRange("s/a", end=halfway), "s/b")
    assert numbers(store, "s/b") == [*range(12)]
    write(store, "s/b", *range(30, 40))
    order = by_key(events_of(store, "s/b"))
    assert all([int(b) for b in bodies] == sorted(int(b) for b in bodies) for bodies in order.values())


def test_a_truncated_head_stays_truncated(store: Store) -> None:
    old = write(store, "s/a", *range(6))
    store.streams.truncate("s/a", store.cuts.tail("s/a"))
    write(store, "s/a", *range(6, 12))
    copied = store.streams.copy("s/a", "s/b")
    assert numbers(store, "s/b") == [*range(6, 12)]
    assert copied.cut(store.cuts.head("s/a")) == store.cuts.head("s/b")
    with pytest.raises(Truncated):
        store.fetch(copied.pointer(old[0]))


def test_a_copy_of_a_sealed_stream_can_be_written(store: Store) -> None:
    write(store, "s/a", 0, 1)
    store.streams.seal("s/a")
    store.streams.copy("s/a", "s/b")
    write(store, "s/b", 2)
    assert numbers(store, "s/b") == [0, 1, 2] and numbers(store, "s/a") == [0, 1]


def test_writers_restart_in_a_copy(store: Store) -> None:
    with store.writer("s/a", writer_id="w") as writer:
        writer.write(b"0", key="a").result()
        store.streams.fence("s/a", 7)
    store.streams.copy("s/a", "s/b")
    with store.writer("s/b", writer_id="w") as writer:
        writer.write(b"1", key="a").result()
    assert numbers(store, "s/b") == [0, 1]


def test_a_repeated_copy_returns_the_first_one(store: Store) -> None:
    write(store, "s/a", 0, 1, 2)
    first = store.streams.copy("s/a", "s/b")
    write(store, "s/a", 3)
    write(store, "s/b", 4)
    count = rows(store, "changes")
    assert store.streams.copy("s/a", "s/b") == first
    assert rows(store, "changes") == count
    assert numbers(store, "s/b") == [0, 1, 2, 4]


def test_an_existing_target_is_refused(store: Store) -> None:
    write(store, "s/a", 0)
    store.streams.create("s/other")
    with pytest.raises(StreamExists):
        store.streams.copy("s/a", "s/other")
    store.streams.copy("s/a", "s/b")
    with pytest.raises(StreamExists):
        store.streams.copy("s/other", "s/b")
    with pytest.raises(StreamExists):
        store.streams.copy(ab.StreamRange("s/a", end=store.cuts.tail("s/a")), "s/b")
    with pytest.raises(StreamExists):
        store.streams.copy("s/a", "s/a")
    store.streams.delete("s/b")
    store.streams.create("s/b")
    with pytest.raises(StreamExists):  # it has the name, but never was a copy
        store.streams.copy("s/a", "s/b")


def test_unknown_streams_and_foreign_cuts_are_refused(store: Store) -> None:
    store.streams.create("s/other", scaling=2)
    with pytest.raises(StreamNotFound):
        store.streams.copy("s/none", "s/b")
    with pytest.raises(ScopeNotFound):
        store.streams.copy("s/a", "none/b")
    tail, other = store.cuts.tail("s/a"), store.cuts.tail("s/other")
    with pytest.raises(InvalidCut):
        store.streams.copy(ab.StreamRange("s/a", end=other), "s/b")
    write(store, "s/a", 0, 1, 2)
    with pytest.raises(InvalidCut):
        store.streams.copy(ab.StreamRange("s/a", store.cuts.tail("s/a"), tail), "s/b")
    store.streams.truncate("s/a", store.cuts.tail("s/a"))
    with pytest.raises(Truncated):
        store.streams.copy(ab.StreamRange("s/a", tail), "s/b")
    assert not store.streams.exists("s/b")
    copied = store.streams.copy("s/a", "s/b")
    with pytest.raises(InvalidPointer):
        copied.pointer(ab.EventPointer(store.streams.get("s/other").id, ab.SegmentId(0, 0), 0))
    with pytest.raises(InvalidCut):
        copied.cut(other)


def test_a_repeated_copy_request_is_applied_and_notified_once(store: Store) -> None:
    write(store, "s/a", 0)
    first = store.streams.copy("s/a", "s/b", request="r")
    store.streams.delete("s/b")
    assert store.streams.copy("s/a", "s/b", request="r") == first
    assert not store.streams.exists("s/b")
    with pytest.raises(RequestMismatch):
        store.streams.copy("s/a", "s/c", request="r")
    with store.catalog.reading() as reading:
        told = [change for change in reading.changes(0, 100) if change.kind == "copied"]
    assert [(change.stream, change.detail["name"]) for change in told] == [(first.copy, "s/b")]


def test_a_typed_stream_is_copied_with_all_its_schemas(store: Store) -> None:
    store.streams.create("s/t", schema=SCHEMA, key="device", time="at")
    row = {"device": "x", "at": 1, "n": 1}
    with store.writer("s/t") as writer:
        writer.write(row).result()
    store.streams.evolve("s/t", SCHEMA.append(pa.field("more", pa.string())))
    store.streams.copy("s/t", "s/u")
    store.streams.evolve("s/u", SCHEMA.append(pa.field("more", pa.string())).append(pa.field("own", pa.int8())))
    with store.writer("s/u") as writer:
        writer.write({**row, "own": 3}).result()
    assert [body["own"] for body in bodies_of(store, "s/u")] == [None, 3]
    assert [body.get("own") for body in bodies_of(store, "s/t")] == [None]
    store.streams.delete("s/t")
    assert [body["own"] for body in bodies_of(store, "s/u")] == [None, 3]


def test_copies_of_copies_read_the_same(store: Store) -> None:
    write(store, "s/a", *range(3))
    name = "s/a"
    for generation in range(8):
        store.streams.copy(name, f"s/c{generation}")
        name = f"s/c{generation}"
        write(store, name, 10 + generation)
    assert numbers(store, name) == [*range(3), *range(10, 18)]


def test_compaction_of_a_shared_log_happens_once_and_serves_both(store: Store, clock: ManualClock) -> None:
    write(store, "s/a", *range(30))
    store.streams.copy("s/a", "s/b")
    first = store.compact(force=True)
    assert first.events == 30
    assert store.compact(force=True).events == 0
    assert numbers(store, "s/a") == numbers(store, "s/b") == [*range(30)]
    assert places(store, "s/a") == places(store, "s/b")


def collect_all(store: Store, clock: ManualClock) -> None:
    for _ in range(3):
        clock.pass_time(SECOND)
        store.collect(horizon_us=0)


def test_a_blob_is_deleted_only_when_no_stream_views_it(store: Store, clock: ManualClock) -> None:
    with store.writer("s/a") as writer:  # above what is inlined
        writer.write(b"1" * 100_000, key="a").result()
        writer.write(b"2" * 100_000, key="b").result()
    store.streams.copy("s/a", "s/b")
    store.streams.copy("s/b", "s/c")
    store.compact(force=True)
    for gone, left in (("s/a", ("s/b", "s/c")), ("s/c", ("s/b",))):
        store.streams.delete(gone)
        collect_all(store, clock)
        for stream in left:
            assert sorted(body[:1] for body in bodies_of(store, stream)) == [b"1", b"2"]
    store.streams.truncate("s/b", store.cuts.tail("s/b"))
    collect_all(store, clock)
    assert rows(store, "blobs") == 0
    assert not list(store.blobs.list("commits/")) + list(store.blobs.list("history/"))


def test_a_reader_and_a_writer_of_the_source_continue_during_copies(store: Store) -> None:
    with store.writer("s/a") as writer, store.reader("s/a", follow=True) as reader:
        events = iter(reader)
        for n in range(6):
            writer.write(str(n).encode(), key="a").result()
            store.streams.copy("s/a", f"s/copy{n}")
            assert int(next(events).body) == n
    for n in range(6):
        assert numbers(store, f"s/copy{n}") == [*range(n + 1)]


def test_a_copy_of_an_empty_stream_is_an_empty_stream(store: Store) -> None:
    store.streams.copy("s/a", "s/b")
    assert numbers(store, "s/b") == []
    write(store, "s/b", 1)
    assert numbers(store, "s/b") == [1]


@pytest.mark.parametrize("by", ["append", "event"])
def test_times_are_found_after_copied_events(store: Store, clock: ManualClock, by: str) -> None:
    """What is written to a copy lies in a log that begins at 0, at offsets that do not."""
    store.streams.create("s/t", schema=SCHEMA, key="device", time="at")
    for name in ("s/t", "s/u"):
        if name == "s/u":
            store.streams.copy("s/t", name)
        with store.writer(name) as writer:
            for _ in range(4):
                clock.pass_time(SECOND)
                writer.write({"device": "a", "at": clock.now()}).result()
    for _ in range(2):
        for event in events_of(store, "s/u"):
            time = event.time_us if by == "event" else event.appended_us
            assert time is not None
            cut = store.cuts.at("s/u", time, by=by)
            assert dict(cut.offsets) == {event.segment: event.offset}
        store.compact(force=True)
