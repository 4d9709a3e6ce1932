"""Large events as they are read: in bounded batches, counted whole, and wherever they are taken."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.store import Store
from tests.store.helpers import bodies_of, sound
from tests.store.writing.large_events.kit import LARGE, body, opened

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
    group = store.groups.open("s/group", streams=["s/raw"], start=ab.HEAD)

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
    distance = store.cuts.distance("s/raw")
    assert distance.events == 10
    assert 5 * LARGE <= distance.bytes < 5 * LARGE + 2_000
    store.policies.retention("s/raw", ab.RetainBytes(2 * LARGE + limits.KIB))
    store.retain("s/raw")
    assert [len(each) for each in bodies_of(store, "s/raw")][-4:] == [LARGE, 5, LARGE, 5]
    assert len(bodies_of(store, "s/raw")) <= 6
    assert sound(store)


# elsewhere


def test_archives_imports_copies_and_digests_hold_large_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ARCHIVE_FILE_BYTES_MAX", len(body(0)) * 3 // 2)
    with opened("sqlite+folder", tmp_path / "one") as store, opened("memory", tmp_path / "two") as other:
        with store.writer("s/raw") as writer:
            for number in range(6):
                writer.write(body(number) if number % 2 else b"small", key="k")
        expected, digest = bodies_of(store, "s/raw"), store.archives.digest("s/raw").value
        store.archives.create("s/raw", tmp_path / "archive")
        assert list(ab.verify_archive(tmp_path / "archive")) == []
        (stream,) = ab.read_archive(tmp_path / "archive").archive.streams
        # No more than one large one fits into a file, and all of them into a block of the digest.
        assert [(file.start, file.stop) for file in stream.files] == [(0, 3), (3, 5), (5, 6)]
        assert stream.digest.value == digest
        other.archives.import_(tmp_path / "archive", as_="s/imported")
        store.streams.copy("s/raw", "s/copied", independent=True)
        assert bodies_of(other, "s/imported") == bodies_of(store, "s/copied") == expected
        assert other.archives.digest("s/imported").value == store.archives.digest("s/copied").value == digest
        store.compact(force=True)
        assert store.archives.digest("s/raw").value == digest
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
