"""Appending streams to streams, and stitching them: all of one, then all of the other, and every key in its order."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    Fenced,
    InvalidArgument,
    InvalidPointer,
    SchemaMismatch,
    StreamExists,
    StreamNotFound,
    StreamSealed,
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
        opened.streams.create("s/b", scaling=3)
        yield opened
        assert sound(opened)


def write(store: Store, stream: str, *numbers: int) -> list[ab.EventPointer]:
    """Events with these bodies, three keys in turn."""
    with store.writer(stream) as writer:
        return [writer.write(str(n).encode(), key="abc"[n % 3]).result() for n in numbers]


def keys(*numbers: int) -> dict[str, list[int]]:
    """What `write` wrote, by key."""
    found: dict[str, list[int]] = {}
    for n in numbers:
        found.setdefault("abc"[n % 3], []).append(n)
    return found


def read(store: Store, stream: str) -> dict[str, list[int]]:
    return {key: [int(body) for body in bodies] for key, bodies in by_key(events_of(store, stream)).items()}


def test_appended_events_follow_the_last_one(store: Store) -> None:
    old = write(store, "s/a", *range(5)), write(store, "s/b", *range(5, 12))
    joined = store.streams.append("s/b", "s/a")
    write(store, "s/a", *range(12, 16))
    write(store, "s/b", 99)
    assert read(store, "s/a") == keys(*range(16))
    assert read(store, "s/b") == keys(*range(5, 12), 99)
    for n, pointer in enumerate(old[1], 5):
        (now,) = joined.pointers(pointer)
        assert store.fetch(now).body == store.fetch(pointer).body == str(n).encode()
        assert now.offset == pointer.offset
    assert [store.fetch(pointer).body for pointer in old[0]] == [str(n).encode() for n in range(5)]
    with pytest.raises(InvalidPointer):
        joined.pointers(old[0][0])


def test_appending_to_an_empty_stream_equals_a_copy(store: Store) -> None:
    store.streams.scale("s/a", 1)
    write(store, "s/a", *range(7))
    store.streams.scale("s/a", 3)
    write(store, "s/a", *range(7, 14))
    store.streams.append("s/a", "s/b")
    store.streams.copy("s/a", "s/c")
    assert read(store, "s/b") == read(store, "s/c") == keys(*range(14))


def test_writers_and_readers_of_the_target_continue(store: Store) -> None:
    write(store, "s/b", *range(3, 6))
    with store.writer("s/a") as writer, store.reader("s/a", follow=True) as reader:
        events = iter(reader)

        def put(*values: int) -> None:
            for n in values:
                writer.write(str(n).encode(), key="abc"[n % 3])
            writer.flush()

        put(0, 1, 2)
        got = [next(events) for _ in range(3)]
        store.streams.append("s/b", "s/a")
        put(6, 7, 8)
        got += [next(events) for _ in range(6)]
    assert {key: [int(body) for body in bodies] for key, bodies in by_key(got).items()} == keys(*range(9))


def test_a_sealed_target_stays_sealed(store: Store) -> None:
    write(store, "s/a", *range(4))
    write(store, "s/b", *range(4, 8))
    store.streams.seal("s/a")
    store.streams.append("s/b", "s/a")
    store.streams.append("s/b", "s/a")
    assert read(store, "s/a") == {
        key: values + keys(*range(4, 8)).get(key, []) * 2 for key, values in keys(*range(4)).items()
    }
    assert store.streams.get("s/a").sealed
    with pytest.raises(StreamSealed):
        write(store, "s/a", 1)


def test_a_sealed_source_can_be_appended(store: Store) -> None:
    write(store, "s/b", *range(4))
    store.streams.seal("s/b")
    store.streams.append("s/b", "s/a")
    write(store, "s/a", *range(4, 8))
    assert read(store, "s/a") == keys(*range(8))


def test_a_stream_can_be_appended_to_itself(store: Store) -> None:
    pointers = write(store, "s/a", *range(3))
    joined = store.streams.append("s/a", "s/a")
    assert read(store, "s/a") == {key: values * 2 for key, values in keys(*range(3)).items()}
    (again,) = joined.pointers(pointers[0])
    assert again != pointers[0] and store.fetch(again).body == b"0"


def test_a_range_is_appended(store: Store) -> None:
    write(store, "s/b", *range(3))
    start = store.cuts.tail("s/b")
    pointers = write(store, "s/b", *range(3, 6))
    end = store.cuts.tail("s/b")
    later = write(store, "s/b", *range(6, 9))
    joined = store.streams.append(ab.StreamRange("s/b", start, end), "s/a")
    assert read(store, "s/a") == keys(*range(3, 6))
    assert [store.fetch(joined.pointers(each)[0]).body for each in pointers] == [b"3", b"4", b"5"]
    assert joined.pointers(later[0]) == ()


def test_a_fenced_writer_stays_fenced_after_an_append(store: Store) -> None:
    store.streams.fence("s/a", 5)
    store.streams.append("s/b", "s/a")
    with pytest.raises(Fenced), store.writer("s/a", fence=4) as writer:
        writer.write(b"x").result()


def test_a_repeated_append_request_is_applied_once(store: Store) -> None:
    write(store, "s/b", *range(3))
    first = store.streams.append("s/b", "s/a", request="r")
    assert store.streams.append("s/b", "s/a", request="r") == first
    assert read(store, "s/a") == keys(*range(3))
    with store.catalog.reading() as reading:
        told = [change for change in reading.changes(0, 100) if change.kind == "appended"]
    assert [(change.stream, change.detail["events"]) for change in told] == [(first.stream, 3)]


def test_columns_widen_or_name_the_conflict(store: Store) -> None:
    more = SCHEMA.append(pa.field("more", pa.string()))
    other = SCHEMA.set(2, pa.field("n", pa.string()))
    for name, schema, key, time in (
        ("s/t", SCHEMA, "device", "at"),
        ("s/more", more, "device", "at"),
        ("s/type", other, "device", "at"),
        ("s/key", SCHEMA, None, "at"),
        ("s/time", SCHEMA, "device", None),
    ):
        store.streams.create(name, schema=schema, key=key, time=time)
        with store.writer(name) as writer:
            writer.write({"device": "x", "at": 1, "n": "1" if name == "s/type" else 1})
    for source, word in (
        ("s/type", "'n'"),
        ("s/key", "key"),
        ("s/time", "time columns are at and none"),
        ("s/a", "raw"),
    ):
        with pytest.raises(SchemaMismatch, match=word):
            store.streams.append(source, "s/t")
        with pytest.raises(SchemaMismatch, match=word):
            store.streams.stitch(["s/t", source], into="s/new")
    store.streams.append("s/more", "s/t")
    assert store.streams.get("s/t").schema.columns.names == ["device", "at", "n", "more"]
    store.streams.append("s/t", "s/more")
    assert [body["more"] for body in bodies_of(store, "s/t")] == [None, None]
    store.compact(force=True)
    assert len(bodies_of(store, "s/more")) == 3
    with store.writer("s/t") as writer:
        writer.write({"device": "x", "at": 2, "n": 2, "more": "m"}).result()
    assert [body["more"] for body in bodies_of(store, "s/t")] == [None, None, "m"]


def test_a_column_of_two_types_gets_the_wider_one(store: Store) -> None:
    wide = SCHEMA.set(2, pa.field("n", pa.int64()))
    for name, schema in (("s/narrow", SCHEMA), ("s/wide", wide)):
        store.streams.create(name, schema=schema, key="device", time="at")
        with store.writer(name) as writer:
            writer.write({"device": "x", "at": 1, "n": 1 if name == "s/narrow" else 1 << 40})
    store.streams.stitch(["s/narrow", "s/wide"], into="s/both")
    with store.writer("s/narrow") as writer, store.reader("s/narrow", follow=True) as reader:
        events = iter(reader)
        assert next(events).body["n"] == 1
        behind = store.reader("s/narrow", follow=True)
        store.streams.append("s/wide", "s/narrow")
        writer.write({"device": "x", "at": 1, "n": 2}).result()  # by a writer that knows the narrow column
        with pytest.raises(SchemaMismatch, match="widened since this was opened"):
            next(events)
    with store.writer("s/narrow") as writer:
        writer.write({"device": "x", "at": 1, "n": 1 << 41}).result()
    store.streams.append("s/narrow", "s/wide")  # which has the wider one already
    for _ in range(2):
        for name, numbers in (
            ("s/narrow", [1, 1 << 40, 2, 1 << 41]),
            ("s/both", [1, 1 << 40]),
            ("s/wide", [1 << 40, 1, 1 << 40, 2, 1 << 41]),
        ):
            assert [body["n"] for body in bodies_of(store, name)] == numbers
            with store.reader(name) as reader:
                assert reader.schema.field("n").type == pa.int64()
                assert [n for batch in reader.batches() for n in batch.column("n").to_pylist()] == numbers
        store.compact(force=True)
    with behind, pytest.raises(SchemaMismatch, match="widened since this was opened"):
        list(behind)


# stitching


def test_a_stitch_has_all_sources_in_order(store: Store) -> None:
    old = write(store, "s/b", *range(5))
    store.streams.scale("s/b", 1)
    old += write(store, "s/b", *range(5, 9))
    old += write(store, "s/a", *range(9, 15))
    joined = store.streams.stitch(["s/b", "s/a"], into="s/c")
    write(store, "s/c", *range(15, 18))
    assert read(store, "s/c") == keys(*range(18))
    assert read(store, "s/a") == keys(*range(9, 15))
    for n, pointer in enumerate(old):
        (now,) = joined.pointers(pointer)
        assert store.fetch(now).body == str(n).encode()
    assert len(store.streams.view("s/c").current) == 1


def test_ranges_of_one_stream_may_be_stitched_and_repeated(store: Store) -> None:
    pointers = write(store, "s/a", *range(3))
    middle = store.cuts.tail("s/a")
    write(store, "s/a", *range(3, 6))
    parts = [ab.StreamRange("s/a", middle), ab.StreamRange("s/a", end=middle), ab.StreamRange("s/a", end=middle)]
    joined = store.streams.stitch(parts, into="s/c")
    assert read(store, "s/c") == keys(*range(3, 6), *range(3), *range(3))
    assert [store.fetch(now).body for now in joined.pointers(pointers[1])] == [b"1", b"1"]


def test_a_stitch_may_delete_its_sources(store: Store, clock: ManualClock) -> None:
    old = write(store, "s/a", *range(4))
    write(store, "s/b", *range(4, 8))
    first = store.streams.get("s/a").id
    joined = store.streams.stitch(["s/a", "s/b"], into="s/a", keep_sources=False, request="r")
    assert read(store, "s/a") == keys(*range(8))
    assert not store.streams.exists("s/b")
    assert store.streams.get("s/a").id != first
    with pytest.raises(StreamNotFound):
        store.fetch(old[0])
    assert store.fetch(joined.pointers(old[0])[0]).body == b"0"
    assert store.streams.stitch(["s/a", "s/b"], into="s/a", keep_sources=False, request="r") == joined
    for _ in range(3):
        clock.pass_time(SECOND)
        store.collect(horizon_us=0)
    assert read(store, "s/a") == keys(*range(8))


def test_a_writer_of_a_deleted_source_gets_an_error(store: Store) -> None:
    writer = store.writer("s/a")
    writer.write(b"0", key="a").result()
    store.streams.stitch(["s/a"], into="s/c", keep_sources=False)
    ack = writer.write(b"1", key="a")
    with pytest.raises(StreamNotFound):
        ack.result()
    writer.close()  # raises no refusal that was raised before
    assert read(store, "s/c") == {"a": [0]}


def test_invalid_stitches_are_refused_and_change_nothing(store: Store) -> None:
    with pytest.raises(StreamExists):
        store.streams.stitch(["s/a", "s/b"], into="s/a")
    store.streams.create("s/c")
    with pytest.raises(StreamExists):
        store.streams.stitch(["s/a", "s/b"], into="s/c", keep_sources=False)
    with pytest.raises(StreamNotFound):
        store.streams.stitch(["s/a", "s/none"], into="s/d", keep_sources=False)
    with pytest.raises(InvalidArgument):
        store.streams.stitch([], into="s/d")
    assert [str(info.name) for info in store.streams.list()] == ["s/a", "s/b", "s/c"]


def test_a_truncated_source_is_stitched_from_its_head(store: Store) -> None:
    write(store, "s/a", *range(6))
    store.streams.truncate("s/a", store.cuts.tail("s/a"))
    write(store, "s/a", *range(6, 12))
    store.streams.stitch(["s/a", "s/a"], into="s/c")
    assert read(store, "s/c") == {key: values * 2 for key, values in keys(*range(6, 12)).items()}
    store.streams.truncate("s/c", store.cuts.tail("s/c"))
    write(store, "s/c", 1)
    assert read(store, "s/c") == keys(1)
