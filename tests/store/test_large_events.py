"""Large events: one event like any other to whoever reads, in a blob of its own to the store."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import AppendUncertain, Closed, ConditionFailed, DiskFull, StreamSealed, TooLarge
from anabranch.log.parquet import ParquetReader
from anabranch.model.append import Commit, Refusal, Refused, Verdict
from anabranch.model.ids import Micros
from anabranch.model.stream import Extent
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import MasterKeys
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.publish import Publication
from tests import s3_server
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import Once, Rig, bodies_of, by_key, events_of, sound
from tests.waiting import PATIENCE_S, until, until_ended

SETTINGS = Settings(event_bytes_max=64 * limits.KIB, large_event_bytes_max=limits.MIB)
LARGE = 100 * limits.KIB
KEYS = MasterKeys({"one": bytes(range(32))}, SystemIds())
PLACES = ["memory", "sqlite+folder", "postgres+folder", "sqlite+s3", "encrypted"]


def body(number: int, size: int = LARGE) -> bytes:
    """Bytes that tell themselves apart everywhere."""
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8).tobytes()


@contextmanager
def opened(place: str, folder: Path, **options: Any) -> Iterator[Store]:
    url = fresh_url() if place.startswith("postgres") else None
    options = {"settings": SETTINGS, **options}
    if place == "sqlite+s3":
        options["blobs"] = s3_server.fresh_url()
    if place == "encrypted":
        options["keys"] = KEYS
    if url:
        options["blobs"] = folder / "blobs"
    where = url or ("memory://" if place == "memory" else folder / "store")
    with ab.connect(where, **options) as store:
        store.streams.create_scope("s")
        store.streams.create("s/raw")
        yield store
    if url:
        drop(url)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened("memory", tmp_path) as made:
        yield made


@pytest.fixture(params=PLACES)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


def extents(store: Store, stream: str = "s/raw") -> list[Extent]:
    view = store.streams.view(stream)
    with store.catalog.reading() as reading:
        logs = [span.log for segment in view.ordered for span in view.spans[segment.id]]
        return [each for log in logs for each in reading.extents(log, 0, 1 << 60, 10_000)]


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
    assert all(each.stop - each.start == 1 and each.place.length > LARGE for each in large)
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
    assert sum(each.stop - each.start == 1 and each.place.length > LARGE for each in extents(anywhere)) == 3


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
    assert len({each.key for each in extents(store) if each.stop - each.start == 1 and each.place.length > LARGE}) == 3
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


# seals, conditions, lost answers, failures


def test_large_events_in_flight_at_a_scale_are_routed_anew_in_order(tmp_path: Path) -> None:
    with opened("sqlite+folder", tmp_path) as store, store.writer("s/raw") as writer:
        for number in range(4):
            writer.write(f"{number}".encode() + body(number), key="k")
            store.streams.scale("s/raw", 1 + (number + 1) % 3)
            writer.write(f"{number}".encode(), key="k")
        writer.flush()
        assert [int(each[:1]) for each in bodies_of(store, "s/raw")] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert sound(store)


def test_a_seal_refuses_a_large_event_as_any_other(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.write(b"x").result()
    store.streams.seal("s/raw")
    with pytest.raises(StreamSealed):
        writer.write(body(1)).result()
    with pytest.raises(StreamSealed):
        writer.close()


def test_a_large_event_may_depend_on_a_condition(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.write(b"0")
    assert writer.write(body(1), expected=1).result().offset == 1
    with pytest.raises(ConditionFailed):
        writer.write(body(2), expected=1).result()
    batch = pa.table({"payload": pa.array([body(3)], pa.binary())})
    assert writer.write_batch(batch, expected=2).result()[0].stop == 3
    assert bodies_of(store, "s/raw") == [b"0", body(1), body(3)]
    with pytest.raises(ConditionFailed):
        writer.flush()


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_doubles_no_large_event_and_loses_none(landed: bool) -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        once = Once(AppendUncertain("lost"))
        if landed:
            rig.catalog.after = once
        else:
            rig.catalog.before = once
        acks = [writer.write(body(number), key="k") for number in range(3)]
        assert [ack.result().offset for ack in acks] == [0, 1, 2]
        assert bodies_of(rig.store, "s/raw") == [body(number) for number in range(3)]


def test_behind_the_collectors_horizon_a_large_event_is_written_again() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        real = rig.catalog.commit
        asked: list[Commit] = []

        def expired(commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
            asked.append(commit)
            if len(asked) == 1:
                now = rig.runtime.clock.now()
                return tuple(tuple(Refused(Refusal.EXPIRED, now) for _ in unit.parts) for unit in commit.units)
            return real(commit)

        rig.catalog.commit = expired  # type: ignore[method-assign]
        assert writer.write(body(1)).result().offset == 0
        (first,), (second,) = (each.blobs for each in asked)
        assert first.key != second.key
        assert first.begun_at <= second.begun_at
        assert [each.key for each in extents(rig.store)] == [second.key]
        assert bodies_of(rig.store, "s/raw") == [body(1)]


def test_what_stands_beside_an_event_that_can_not_be_written_again_keeps_its_answer() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw", writer_id="w")
        real, full = rig.catalog.commit, DiskFull("no space is left")

        def expired(commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
            """The store's horizon has passed the large event's blob, and there is no room for another."""
            with rig.catalog.writing() as txn:
                txn.set_horizon(Micros(max(blob.begun_at for blob in commit.blobs) + 1))
            rig.catalog.commit = real  # type: ignore[method-assign]
            rig.blobs.before_put = Once(full)
            return real(commit)

        committing, late = threading.Event(), threading.Event()

        def held(commit: Commit) -> None:
            committing.set()
            assert late.wait(PATIENCE_S)

        rig.catalog.before = held
        begun = writer.write(b"0", key="k")
        thread = threading.Thread(target=begun.result)
        thread.start()
        assert committing.wait(PATIENCE_S)
        # These two make up the next commit.
        landed, refused = writer.write(b"1", key="k"), writer.write(body(2), key="k")
        rig.catalog.before = lambda commit: None
        rig.catalog.commit = expired  # type: ignore[method-assign]
        late.set()
        thread.join()
        assert landed.result().offset == 1
        with pytest.raises(DiskFull):
            refused.result()
        assert writer.write(b"3", key="k").result().offset == 2
        assert bodies_of(rig.store, "s/raw") == [b"0", b"1", b"3"]
        with pytest.raises(DiskFull):
            writer.close()


def test_an_event_for_which_there_is_no_room_is_refused_alone_and_its_ack_says_so() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        first = writer.write(b"first")
        rig.blobs.before_put = Once(DiskFull("no space is left"))
        refused, last = writer.write(body(1)), writer.write(b"last")
        assert [first.result().offset, last.result().offset] == [0, 1]
        with pytest.raises(DiskFull):
            refused.result()
        with pytest.raises(DiskFull):
            writer.flush()
        rig.blobs.before_put = lambda: None
        table = pa.table({"payload": pa.array([b"2", body(3), b"4"], pa.binary())})
        failing = Once(DiskFull("no space is left"))
        rig.blobs.before_put = failing
        ack = writer.write_batch(table)
        assert ack.pointer(0).offset == 2
        assert ack.pointer(2).offset == 3
        with pytest.raises(DiskFull):
            ack.pointer(1)
        assert bodies_of(rig.store, "s/raw") == [b"first", b"last", b"2", b"4"]
        with pytest.raises(DiskFull):
            writer.close()


def test_small_events_of_others_do_not_wait_for_a_large_one_that_is_being_written() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer, other = rig.store.writer("s/raw"), rig.store.writer("s/raw")
        gate = threading.Event()
        rig.blobs.before_put = lambda: gate.wait(PATIENCE_S)  # type: ignore[assignment,return-value]
        thread = threading.Thread(target=lambda: writer.write(body(1)).result())
        thread.start()
        until(lambda: rig.blobs.puts == 1)
        assert other.write(b"meanwhile").result().offset == 0
        assert writer.write(b"of the same writer").result().offset == 1
        gate.set()
        until_ended(thread)
        assert bodies_of(rig.store, "s/raw") == [b"meanwhile", b"of the same writer", body(1)]


def test_a_writer_has_one_large_event_on_its_way_at_a_time() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        inside, most = [0], [0]
        put = rig.blobs.put

        def slow(key: str, chunks: Any) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)  # in which another would come in
            put(key, chunks)
            inside[0] -= 1

        rig.blobs.put = slow  # type: ignore[method-assign]
        threads = [threading.Thread(target=writer.write, args=(body(n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        until_ended(*threads)
        writer.flush()
        assert most == [1]
        assert len(bodies_of(rig.store, "s/raw")) == 4


def test_a_closed_writer_takes_no_large_event(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.close()
    with pytest.raises(Closed):
        writer.write(body(1))
    with pytest.raises(Closed):
        writer.write_batch(pa.table({"payload": pa.array([body(1)], pa.binary())}))


def test_beyond_the_limit_one_error_names_both_sizes(store: Store) -> None:
    size, limit = limits.MIB + 1, limits.MIB
    writer = store.writer("s/raw")
    batch = pa.table({"payload": pa.array([b"x", bytes(size)], pa.binary())})

    def in_a_transaction() -> None:
        with store.transaction() as txn:
            txn.writer("s/raw").write(bytes(size))

    for write in (
        lambda: writer.write(bytes(size)),
        lambda: writer.write(memoryview(bytes(size))),
        lambda: writer.write_batch(batch),
        lambda: writer.write_batch(batch, atomic=True),
        lambda: store.stager("s/raw").write(batch),
        in_a_transaction,
    ):
        with pytest.raises(TooLarge, match=r"is 1,048,577 bytes, over the limit of 1,048,576") as caught:
            write()
        assert (caught.value.size, caught.value.limit) == (size, limit)
    writer.write(b"fine").result()
    assert bodies_of(store, "s/raw") == [b"fine"]


def test_entries_of_shared_state_stay_below_the_usual_limit(store: Store) -> None:
    shared = store.synchronizer("s/state", initial="")
    with pytest.raises(TooLarge, match="an entry of a revisioned stream"):
        shared.update(lambda _: "x" * LARGE)
    assert shared.fetch() == ""


def test_a_file_of_bytes_is_written_in_chunks_as_ever(store: Store) -> None:
    with store.bytes("s/file", "xb") as file:
        file.write(body(1, 300_000))
    with store.bytes("s/file") as file:
        assert file.read() == body(1, 300_000)
    assert all(each.stop - each.start >= 1 for each in extents(store, "s/file"))


# reading


@pytest.fixture
def batches_of_200_kib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_BYTES_MAX", 200 * limits.KIB)


@pytest.mark.usefixtures("batches_of_200_kib")
def test_batches_are_bounded_by_bytes_everywhere(store: Store) -> None:
    """One large event fits a batch, two do not; small ones join it."""
    with store.writer("s/raw") as writer:
        for number in range(24):
            writer.write(body(number, 150 * limits.KIB) if number % 4 == 1 else f"{number}".encode())
        whole = pa.table({"payload": pa.array([body(n, 60_000) for n in range(8)], pa.binary())})
        writer.write_batch(whole, atomic=True)
    group = store.reader_group("s/group", streams=["s/raw"], start=ab.HEAD)

    def of_a_group(name: str) -> list[pa.RecordBatch]:
        with group.reader(name) as reader:
            batches = []
            while (batch := reader.read(timeout_s=0.05)) is not None:
                batches.append(batch)
            return batches

    def of_ranges() -> list[pa.RecordBatch]:
        return [b for part in store.history("s/raw").ranges(bytes_max=100_000) for b in part.batches()]

    def of_a_reader() -> list[pa.RecordBatch]:
        with store.reader("s/raw") as reader:
            return list(reader.batches())

    def of_read_ahead() -> list[pa.RecordBatch]:
        with store.history("s/raw").read(window=2, bytes_max=200 * limits.KIB) as reading:
            return list(reading)

    expected = bodies_of(store, "s/raw")
    for read in (of_a_reader, of_ranges, of_read_ahead, lambda: of_a_group("one")):
        batches = read()
        assert [each for batch in batches for each in batch.column("payload").to_pylist()] == expected
        assert all(batch.num_rows == 1 or batch.nbytes < 250 * limits.KIB for batch in batches)
        assert len(batches) >= 8


@pytest.mark.usefixtures("batches_of_200_kib")
def test_a_reader_that_follows_gets_large_events_as_they_come(tmp_path: Path) -> None:
    with (
        opened("sqlite+folder", tmp_path) as store,
        store.writer("s/raw") as writer,
        store.reader("s/raw", start=ab.TAIL, follow=True) as reader,
    ):
        events = iter(reader)
        for data in (b"a", body(1), b"b", body(2)):
            writer.write(data)
            assert next(events).body == data


def test_columns_without_the_large_one_are_read_too(store: Store) -> None:
    with store.writer("s/raw") as writer:
        for number in range(3):
            writer.write(body(number), key=f"k{number}")
    for _ in range(2):
        with store.reader("s/raw", columns=["key"]) as reader:
            assert [k for batch in reader.batches() for k in batch.column("key").to_pylist()] == ["k0", "k1", "k2"]
        store.compact(force=True)


def test_sizes_distances_and_retention_count_large_events_whole(store: Store) -> None:
    with store.writer("s/raw") as writer:
        for number in range(5):
            writer.write(body(number))
            writer.write(b"small")
    streams = store.streams
    distance = streams.distance("s/raw")
    assert distance.events == 10
    assert 5 * LARGE <= distance.bytes < 5 * LARGE + 2_000
    streams.retention("s/raw", ab.RetainBytes(2 * LARGE + limits.KIB))
    store.retain("s/raw")
    assert [len(each) for each in bodies_of(store, "s/raw")][-4:] == [LARGE, 5, LARGE, 5]
    assert len(bodies_of(store, "s/raw")) <= 6
    assert sound(store)


def test_the_collector_removes_what_was_written_ahead_and_never_committed() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        writer.write(body(1)).result()
        rig.store.streams.seal("s/raw")
        with pytest.raises(StreamSealed):
            writer.write(body(2)).result()
        with pytest.raises(StreamSealed):
            writer.close()
        blobs = [each.key for each in rig.blobs.list("commits/")] or [each.key for each in rig.blobs.list()]
        rig.store.collect(horizon_us=0)
        left = [each.key for each in rig.blobs.list()]
        assert len([key for key in blobs if key in left]) == 1
        assert bodies_of(rig.store, "s/raw") == [body(1)]


# elsewhere


def test_archives_imports_copies_and_digests_hold_large_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ARCHIVE_FILE_BYTES_MAX", len(body(0)) * 3 // 2)
    with opened("sqlite+folder", tmp_path / "one") as store, opened("memory", tmp_path / "two") as other:
        with store.writer("s/raw") as writer:
            for number in range(6):
                writer.write(body(number) if number % 2 else b"small", key="k")
        expected, digest = bodies_of(store, "s/raw"), store.streams.digest("s/raw").value
        store.streams.archive("s/raw", tmp_path / "archive")
        assert list(ab.verify_archive(tmp_path / "archive")) == []
        (stream,) = ab.read_archive(tmp_path / "archive").archive.streams
        # No more than one large one fits into a file, and all of them into a block of the digest.
        assert [(file.start, file.stop) for file in stream.files] == [(0, 3), (3, 5), (5, 6)]
        assert stream.digest.value == digest
        other.streams.import_archive(tmp_path / "archive", as_="s/imported")
        store.streams.copy("s/raw", "s/copied", independent=True)
        assert bodies_of(other, "s/imported") == bodies_of(store, "s/copied") == expected
        assert other.streams.digest("s/imported").value == store.streams.digest("s/copied").value == digest
        store.compact(force=True)
        assert store.streams.digest("s/raw").value == digest
        assert sound(store)
        assert sound(other)


def test_a_rebuild_says_of_a_large_event_that_it_may_not_be_committed(tmp_path: Path) -> None:
    with opened("sqlite+folder", tmp_path) as store:
        store.export_manifest()
        with store.writer("s/raw", writer_id="me") as writer:
            writer.write(body(1))
    (tmp_path / "store" / "catalog.db").unlink()
    report = ab.rebuild(tmp_path / "store")
    (newer,) = report.newer
    assert newer.events == 1
    assert newer.writers == ("me",)
    assert "large event" in newer.note


def test_ranges_of_history_with_large_events_travel(tmp_path: Path) -> None:
    with opened("sqlite+folder", tmp_path) as store:
        with store.writer("s/raw") as writer:
            for number in range(4):
                writer.write(body(number))
        ranges = store.history("s/raw").ranges(bytes_max=LARGE)
        assert len(ranges) == 4
        again = pickle.loads(pickle.dumps(ranges))
        found = [
            b for part in again for batch in part.batches(store=store) for b in batch.column("payload").to_pylist()
        ]
        assert found == [body(number) for number in range(4)]


# the real size


def test_in_a_file_each_large_event_has_a_row_group_of_its_own(tmp_path: Path) -> None:
    large = limits.EVENT_BYTES_MAX + 1
    with ab.connect(tmp_path / "store") as store:
        store.streams.create_scope("s")
        store.streams.create("s/raw")
        with store.writer("s/raw") as writer:
            for number in range(6):
                writer.write(body(number, large) if number in (2, 3) else b"x" * number)
        store.compact(force=True)
        (extent,) = extents(store)
        assert extent.key is not None
        file = ParquetReader(extent.key, store.blobs.get(extent.key))
        rows = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        assert rows == [2, 1, 1, 2]
        assert [len(each) for each in bodies_of(store, "s/raw")] == [0, 1, large, large, 4, 5]


def test_an_event_of_100_mib_goes_in_and_out_within_its_bound_of_memory(tmp_path: Path) -> None:
    """In a process of its own, since Arrow tells only the most that one ever held."""
    script = f"from tests.store.test_large_events import carry; carry({str(tmp_path / 'store')!r})"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def carry(folder: str) -> None:
    """Written with one copy of it in memory and read from a map; a compaction has about four and a half, and leaves a file
    of which the reader has one."""
    size = 100 * limits.MIB
    data = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    pool = pa.default_memory_pool()

    @contextmanager
    def within(arrow: float, python: float) -> Iterator[None]:
        held, traced = pool.bytes_allocated(), tracemalloc.get_traced_memory()[0]
        most = max(pool.max_memory(), held + int(arrow * size))  # an earlier step may have had more
        tracemalloc.reset_peak()
        yield
        assert pool.max_memory() <= most, (pool.max_memory(), most)
        assert tracemalloc.get_traced_memory()[1] - traced <= python * size

    def sizes(store: Store) -> list[int]:
        with store.reader("s/raw") as reader:
            return [n for b in reader.batches() for n in pc.binary_length(b.column("payload")).to_pylist()]

    tracemalloc.start()
    with ab.connect(folder) as store:
        store.streams.create_scope("s")
        store.streams.create("s/raw")
        with within(1.1, 0.3), store.writer("s/raw") as writer:
            writer.write(b"before")
            pointer = writer.write(memoryview(data.data), key="k").result()
            writer.write(b"after")
        for _ in range(2):
            with within(1.1, 0.3):
                assert sizes(store) == [6, size, 5]
            with within(1.1, 1.3):
                assert store.fetch(pointer).body == data.data
            with within(4.6, 0.3):
                store.compact(force=True)
        assert sound(store)
