"""Large events: one event like any other to whoever reads, in a blob of its own to the store."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa

import anabranch as ab
from anabranch.store import Store
from anabranch.streams.publish import Publication
from tests.store.helpers import bodies_of, by_key, events_of, sound
from tests.store.writing.large_events.kit import LARGE, body, extents, opened
from tests.waiting import until_ended

# order and identity


def test_a_large_event_is_one_event_between_its_neighbours_before_and_after_compaction(anywhere: Store) -> None:
    store = anywhere
    with store.writer("s/raw") as writer:
        written: list[tuple[bytes, ab.Ack]] = []
        for number in range(9):
            data = body(number) if number % 3 == 1 else f"{number}".encode()
            written.append((data, writer.write(data, key="k", time=number)))
        pointers = [ack.result() for _, ack in written]
    assert [pointer.offset for pointer in pointers] == list(range(9))
    for _ in range(2):
        events = events_of(store, "s/raw")
        assert [(each.key, each.time_us, each.body) for each in events] == [("k", n, written[n][0]) for n in range(9)]
        assert [each.pointer for each in events] == pointers
        assert [store.fetch(pointer).body for pointer in pointers] == [data for data, _ in written]
        assert sound(store)
        store.compact(force=True)


def test_each_large_event_lies_in_a_blob_of_its_own_and_small_ones_in_none_of_those(store: Store) -> None:
    with store.writer("s/raw") as writer:
        for data in (b"a", body(1), b"b", body(2), b"c"):
            writer.write(data)
    found = extents(store)
    large = [each for each in found if each.key is not None]
    assert len(large) == len({each.key for each in large}) == 2
    assert all(each.stop - each.start == 1 and each.location.length > LARGE for each in large)
    assert sum(each.stop - each.start for each in found if each.data is not None) == 3


def test_the_bytes_may_be_changed_as_soon_as_the_call_returns(store: Store) -> None:
    data = bytearray(body(1))
    with store.writer("s/raw") as writer:
        writer.write(data)
        data[:] = bytes(len(data))
        writer.write(memoryview(body(2)))
    assert bodies_of(store, "s/raw") == [body(1), body(2)]


def test_events_of_many_threads_keep_the_order_of_each(tmp_path: Path) -> None:
    with opened("sqlite+folder", tmp_path) as store, store.writer("s/raw") as writer:

        def write(key: str) -> None:
            for number in range(12):
                text = f"{number:03}".encode()
                writer.write(text + body(number)[: -len(text)] if number % 4 == 2 else text, key=key)

        threads = [threading.Thread(target=write, args=(key,)) for key in "abcd"]
        for thread in threads:
            thread.start()
        until_ended(*threads)
        writer.flush()
        found = by_key(events_of(store, "s/raw"))
        assert {key: [int(each[:3]) for each in bodies] for key, bodies in found.items()} == {
            key: list(range(12)) for key in "abcd"
        }
        assert sound(store)


def test_a_large_text_and_a_large_list_are_columns_like_others(store: Store) -> None:
    schema = pa.schema([("device", pa.string()), ("text", pa.string()), ("list", pa.list_(pa.float64()))])
    store.streams.create("s/typed", schema=schema, key="device")
    rows = [
        {"device": "a", "text": "small", "list": [1.0]},
        {"device": "a", "text": "é" * LARGE, "list": None},
        {"device": "a", "text": None, "list": [float(n) for n in range(20_000)]},
        {"device": "a", "text": "small again", "list": []},
    ]
    with store.writer("s/typed") as writer:
        for row in rows:
            writer.write(row)
    for _ in range(2):
        assert bodies_of(store, "s/typed") == rows
        store.compact(force=True)
    assert sum(each.encoding == "arrow" and each.key is not None for each in extents(store, "s/typed")) == 0


# batches


def test_large_rows_of_a_batch_go_alone_and_the_batch_keeps_its_order(anywhere: Store) -> None:
    bodies = [b"0", b"1", body(2), body(3), b"4", body(5)]
    table = pa.table({"key": ["k"] * 6, "payload": pa.array(bodies, pa.binary())})
    with anywhere.writer("s/raw") as writer:
        ack = writer.write_batch(table)
        assert [ack.pointer(row).offset for row in range(6)] == list(range(6))
    assert bodies_of(anywhere, "s/raw") == bodies
    assert sum(each.stop - each.start == 1 and each.location.length > LARGE for each in extents(anywhere)) == 3


def test_an_atomic_batch_with_large_rows_stands_whole(store: Store) -> None:
    store.streams.create("s/wide", scaling=3)
    bodies = [f"{n}".encode() if n % 2 else body(n) for n in range(8)]
    keys = [f"k{n}" for n in range(8)]
    with store.writer("s/wide") as writer:
        writer.write_batch(pa.table({"key": keys, "payload": pa.array(bodies, pa.binary())}), atomic=True).result()
    assert sorted(bodies_of(store, "s/wide")) == sorted(bodies)
    assert len({each.appended.low for each in extents(store, "s/wide")}) == 1


def test_a_transaction_with_large_events_appears_at_once(anywhere: Store) -> None:
    store = anywhere
    with store.transaction() as txn:
        writer = txn.writer("s/raw")
        for data in (b"0", body(1), b"2", body(3)):
            writer.write(data, key="k")
        writer.write_batch(pa.table({"key": ["k"] * 2, "payload": pa.array([body(4), b"5"], pa.binary())}))
        txn.flush()
        assert bodies_of(store, "s/raw") == []
        txn.commit()
    assert bodies_of(store, "s/raw") == [b"0", body(1), b"2", body(3), body(4), b"5"]
    assert (
        len({each.key for each in extents(store) if each.stop - each.start == 1 and each.location.length > LARGE}) == 3
    )
    with store.transaction() as txn:
        txn.writer("s/raw").write(body(6))
        txn.abort()
    assert len(bodies_of(store, "s/raw")) == 6
    assert sound(store)


def test_staged_large_events_are_published_once_across_a_scale(store: Store) -> None:
    keys, bodies = [f"k{n}" for n in range(6)], [body(n) if n % 2 else f"{n}".encode() for n in range(6)]
    with store.hold("test", "me"):
        stager = store.stager("s/raw")
        stager.write(pa.table({"key": keys, "payload": pa.array(bodies, pa.binary())}))
        staged = stager.finish()
        store.streams.scale("s/raw", 3)
        publication = Publication(store.streams.get("s/raw").id, staged)
        assert store.publish([publication], request="once")
        assert not store.publish([publication], request="once")
    assert sorted(bodies_of(store, "s/raw")) == sorted(bodies)
    assert sound(store)
