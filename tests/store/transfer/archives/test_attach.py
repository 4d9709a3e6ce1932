"""Files of other places as streams: attached, read, appended to, copied, checked; never touched."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.blobs.local import LocalBlobs
from anabranch.errors import (
    BlobMissing,
    CorruptArchive,
    CorruptBlob,
    InvalidArgument,
    NotFound,
    ReadOnlyStore,
    RequestMismatch,
    SchemaMismatch,
    ScopeNotFound,
    StreamExists,
)
from anabranch.store import Store
from anabranch.transfer.archives.format import METADATA
from tests.store.helpers import sound
from tests.store.transfer.archives.kit import SCHEMA, assert_same, files_of, fill, rows, signing_keys, table

DAY = 86_400 * 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "store", create=True) as opened:
        opened.scopes.create("iot")
        yield opened


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Three files of somebody else's, whose columns differ in ways that do not matter."""
    folder = tmp_path / "plain"
    (folder / "2026").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    (folder / "_temporary.parquet").touch()
    one = pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "when": times([1, 2], "ns"), "n": [1, 2]})
    two = pa.table({"k": pa.array(["a"], pa.large_string()), "when": times([4], "ms"), "n": [3], "more": [0.5]})
    three = pa.table({"n": [4, None], "when": times([3, None], "us"), "k": ["c", None], "_appended": [1, 2]})
    pq.write_table(one, folder / "2026" / "01.parquet")
    pq.write_table(two, folder / "2026" / "02.parquet", compression="snappy")
    pq.write_table(three, folder / "2026" / "10 last.parquet", write_statistics=False)
    return folder


def times(days: list[int | None], unit: str) -> pa.Array:
    whole = pa.array([None if day is None else day * DAY for day in days], pa.timestamp("us"))
    return whole.cast(pa.timestamp(unit))


def test_any_parquet_files_become_a_stream_in_the_order_of_their_names(store: Store, plain: Path) -> None:
    before = {name: (plain / name).read_bytes() for name in files_of(plain)}
    began = store.runtime.clock.now()
    store.archives.attach(plain, "iot/plain", key="k", time="when")
    assert store.streams.get("iot/plain").schema.columns == pa.schema(
        [("k", pa.string()), ("when", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("more", pa.float64())]
    )
    with store.reader("iot/plain") as reader:
        events = list(reader)
    assert [event.body["n"] for event in events] == [1, 2, 3, 4, None]
    assert [event.key for event in events] == ["a", "b", "a", "c", None]
    days = [dt.datetime(1970, 1, day, tzinfo=dt.UTC) for day in (2, 3, 5, 4)]
    assert [event.time for event in events] == [*days, None]
    assert [event.body["more"] for event in events] == [None, None, 0.5, None, None]
    whole = table(store, "iot/plain")
    (at,) = set(whole.column("_appended").to_pylist())
    assert at.timestamp() * 1e6 >= began
    assert whole.column("_offset").to_pylist() == [0, 1, 2, 3, 4]

    # By event time, with and without statistics in a footer; filters leave files out.
    with store.reader("iot/plain", between=(days[3], days[2])) as reader:
        assert [event.body["n"] for event in reader] == [4]
    cut = store.cuts.at("iot/plain", dt.datetime(1970, 1, 4, tzinfo=dt.UTC), by="event")
    assert dict(cut.offsets).popitem()[1] == 2
    assert sound(store)
    assert not [*store.blobs.list("history/"), *store.blobs.list("attached/"), *store.blobs.list("footers/")]

    # It lives as any stream, and the files stay what they are.
    assert store.compact(force=True).files == 0
    with store.writer("iot/plain") as writer:
        writer.write({"k": "a", "when": 9, "n": 6}).result()
    store.streams.scale("iot/plain", 2)
    store.streams.copy("iot/plain", "iot/copy")
    store.streams.delete("iot/plain")
    for _ in range(3):
        store.compact(force=True)
        store.collect(horizon_us=0)
    with store.reader("iot/copy") as reader:
        assert sorted(event.body["n"] or 0 for event in reader) == [0, 1, 2, 3, 4, 6]
    assert sound(store)
    assert {name: (plain / name).read_bytes() for name in files_of(plain)} == before


def test_an_independent_copy_has_bytes_of_its_own(store: Store, plain: Path, tmp_path: Path) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    store.archives.attach(tmp_path / "archive", "iot/old")
    store.archives.attach(plain, "iot/plain", key="k", time="when")
    expected = {name: table(store, name) for name in ("iot/old", "iot/plain")}
    for name in expected:
        store.streams.copy(name, f"{name}-own", independent=True)
    shutil.rmtree(plain)
    shutil.rmtree(tmp_path / "archive")
    for name, whole in expected.items():
        assert table(store, f"{name}-own").equals(whole)
        store.streams.delete(name)
    store.collect()
    assert sound(store)


def test_what_nobody_views_any_more_is_forgotten_and_its_files_stay(store: Store, plain: Path) -> None:
    from anabranch.catalog.state.store import ATTACHMENT

    store.archives.attach(plain, "iot/plain")
    names = files_of(plain)
    store.streams.delete("iot/plain")
    freed = [store.collect(horizon_us=0).bytes_freed for _ in range(4)]
    assert freed == [0, 0, 0, 0]
    with store.catalog.reading() as txn:
        assert txn.states(ATTACHMENT) == []
        assert txn.export("blobs") == []
    assert files_of(plain) == names


def test_one_file_can_be_attached_alone(store: Store, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plain / "2026")
    store.archives.attach("02.parquet", "iot/two", key="k")
    store.archives.attach(plain / "2026" / "01.parquet", "iot/one")
    monkeypatch.chdir("/")
    assert table(store, "iot/two").column("n").to_pylist() == [3]
    assert table(store, "iot/one").column("n").to_pylist() == [1, 2]
    with pytest.raises(NotFound, match=rf"found no file 03\.parquet in {plain / '2026'}"):
        store.archives.attach(plain / "2026" / "03.parquet", "iot/three")
    pq.write_table(
        pa.table({"n": [8]}), plain / "_SUMMARY.parquet"
    )  # passed over in its folder, but not where it is named
    store.archives.attach(plain / "_SUMMARY.parquet", "iot/summary")
    assert table(store, "iot/summary").column("n").to_pylist() == [8]


def test_other_processes_learn_of_attachments_at_once(store: Store, plain: Path) -> None:
    with ab.connect(store.url, create=True) as other:
        assert list(other.streams.list()) == []
        store.archives.attach(plain, "iot/plain")
        assert table(other, "iot/plain").equals(table(store, "iot/plain"))
        with other.reader("iot/plain", follow=True) as reader, store.writer("iot/plain") as writer:
            writer.write({"n": 7}).result()
            found = [event.body["n"] for _, event in zip(range(6), reader, strict=False)]
    assert found == [1, 2, 3, 4, None, 7]


def test_an_archive_is_attached_with_its_segments_without_reading_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    read: list[str] = []
    real = LocalBlobs.get

    def get(self: LocalBlobs, key: str, offset: int = 0, length: int | None = None) -> Any:
        read.append(key)
        return real(self, key, offset, length)

    monkeypatch.setattr(LocalBlobs, "get", get)
    made = store.archives.attach(tmp_path / "archive", "iot/old")
    assert read == ["archive.json"]
    assert_same(store, "iot/x", store, "iot/old")
    assert store.archives.attach(tmp_path / "archive", "iot/old") == made
    with pytest.raises(StreamExists):
        store.archives.import_(tmp_path / "archive", as_="iot/old")
    with pytest.raises(InvalidArgument, match="defines its keys, times and streams itself"):
        store.archives.attach(tmp_path / "archive", "iot/other", key="device")
    (tmp_path / "archive" / "stray").touch()
    with pytest.raises(CorruptArchive, match="stray"):
        store.archives.attach(tmp_path / "archive", "iot/other")


def test_a_replicated_folder_of_compacted_files_becomes_a_stream_again(store: Store, tmp_path: Path) -> None:
    store.streams.create("iot/x", schema=SCHEMA, key="device", time="at")
    store.streams.create("iot/raw")
    for start, segments in ((0, 2), (50, 1)):
        with store.writer("iot/x") as writer:
            writer.write_batch(rows(start, 30)).result()
            store.compact(force=True)
            writer.write_batch(rows(start + 30, 20)).result()
        with store.writer("iot/raw") as writer:
            writer.write(str(start).encode(), key="k", time=start).result()
        store.compact(force=True)  # merges what the first one wrote: both lie there
        store.streams.scale("iot/x", segments)
    shutil.copytree(tmp_path / "store" / "blobs" / "history", tmp_path / "replica")
    with pytest.raises(InvalidArgument, match="choose one"):
        store.archives.attach(tmp_path / "replica", "iot/again", key="device", time="at")
    ids = {name: f"{store.streams.get(name).id:016x}" for name in ("iot/x", "iot/raw")}
    # Files of one stream have columns of their own.
    raw = tmp_path / "raw"
    raw.mkdir()
    for file in (tmp_path / "replica").iterdir():
        if "payload" in pq.read_schema(file).names:
            file.rename(raw / file.name)
    store.archives.attach(raw, "iot/raw-again", stream=ids["iot/raw"])
    assert store.streams.get("iot/raw-again").schema.raw
    store.archives.attach(tmp_path / "replica", "iot/again", key="device", time="at")
    for name, twin in (("iot/x", "iot/again"), ("iot/raw", "iot/raw-again")):
        with store.reader(name) as mine, store.reader(twin) as theirs:
            found = [list(mine), list(theirs)]
        for key in {event.key for event in found[0]}:
            bodies = [[event.body for event in events if event.key == key] for events in found]
            assert bodies[0] == bodies[1]
    assert sound(store)


def test_a_file_that_vanished_or_changed_is_named(store: Store, plain: Path) -> None:
    store.archives.attach(plain, "iot/plain")
    store.archives.attach(plain, "iot/summed", checksums=True)
    first = plain / "2026" / "01.parquet"
    whole = first.read_bytes()
    flipped = bytearray(whole)
    flipped[6] ^= 1  # a page, which no footer sums up
    first.write_bytes(flipped)
    with (
        ab.connect(store.url, create=True) as fresh,
        pytest.raises(CorruptBlob, match=f"the attached file {first} is corrupt"),
    ):
        table(fresh, "iot/summed")
    first.write_bytes(whole + whole[-4:])
    with (
        ab.connect(store.url, create=True) as fresh,
        pytest.raises(CorruptBlob, match=f"the attached file {first} is corrupt"),
    ):
        table(fresh, "iot/plain")
    first.unlink()
    with ab.connect(store.url, create=True) as fresh:
        with pytest.raises(BlobMissing, match=f"the attached file {first} is missing"):
            table(fresh, "iot/plain")
        assert any(f"the attached file {first} is missing" in str(each) for each in fresh.check())
    shutil.rmtree(plain)
    with ab.connect(store.url, create=True) as fresh:
        with pytest.raises(BlobMissing, match="the attached file"):
            table(fresh, "iot/plain")
        assert any(f"the attached file {first} is missing" in str(each) for each in fresh.check())


def test_what_makes_no_stream_is_refused_with_the_file_that_is_to_blame(
    store: Store, plain: Path, tmp_path: Path
) -> None:
    def attach(**options: Any) -> None:
        store.archives.attach(plain, "iot/plain", **options)

    with pytest.raises(InvalidArgument, match="is not a column"):
        attach(key="nothing")
    with pytest.raises(InvalidArgument, match="no store has written them"):
        attach(stream="0123456789abcdef")
    with pytest.raises(ScopeNotFound):
        store.archives.attach(plain, "nowhere/plain")
    with pytest.raises(InvalidArgument, match="'first' is not a stream id"):
        attach(stream="first")
    for place in (tmp_path / "nothing", plain / "_SUCCESS"):  # the second is a file
        with pytest.raises(NotFound, match=f"folder {place} not found"):
            store.archives.attach(place, "iot/plain")
    with pytest.raises(InvalidArgument, match="scope/name"):
        store.archives.attach(plain)
    with pytest.raises(InvalidArgument, match="memory"):
        store.archives.attach("memory://", "iot/plain")
    odd = plain / "2026" / "03.parquet"
    pq.write_table(pa.table({"n": ["text"]}), odd)
    with pytest.raises(SchemaMismatch, match=r"'n' is int64 in 2026/01\.parquet, but string in 2026/03\.parquet"):
        attach()
    pq.write_table(pa.table({"lost": pa.nulls(2)}), odd)
    with pytest.raises(InvalidArgument, match="column 'lost': type null is not supported"):
        attach()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["twice", "twice"]), odd)
    with pytest.raises(SchemaMismatch, match=r"03\.parquet has several columns 'twice'"):
        attach()
    for broken in (b"", b"PAR1", (plain / "2026" / "01.parquet").read_bytes()[:-1], b"no Parquet at all"):
        odd.write_bytes(broken)
        with pytest.raises(CorruptArchive, match=r"03\.parquet"):
            attach()
    assert list(store.streams.list()) == []


def test_no_stream_of_a_scope_is_attached_where_a_name_is_taken(store: Store, tmp_path: Path) -> None:
    for name in ("iot/a", "iot/b"):
        store.streams.create(name)
    store.archives.create_scope("iot", tmp_path / "archive")
    store.scopes.create("old")
    store.streams.create("old/b")
    with pytest.raises(StreamExists, match="old/b"):
        store.archives.attach(tmp_path / "archive", "old")
    assert [str(info.name) for info in store.streams.list("old")] == ["old/b"]
    store.streams.delete("old/b")
    made = store.archives.attach(tmp_path / "archive", "old", request="r")
    store.streams.delete("old/b")
    store.streams.create("old/b")
    assert store.archives.attach(tmp_path / "archive", "old", request="r") == made


def test_a_signature_that_is_asked_for_is_missed_where_there_is_no_archive(store: Store, tmp_path: Path) -> None:
    """Or else whoever takes an archive's metadata away could have any files attached."""
    _, public = signing_keys(tmp_path, "mine")
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    (tmp_path / "archive" / METADATA).unlink()
    name = next(iter(files_of(tmp_path / "archive")))
    for place in (tmp_path / "archive", tmp_path / "archive" / name):
        with pytest.raises(CorruptArchive, match=f"{METADATA} is missing, so nothing there is signed"):
            store.archives.attach(place, "iot/there", trusted=public)
    assert not store.streams.exists("iot/there")


def test_an_attachment_that_is_asked_for_again_is_the_same(store: Store, plain: Path, tmp_path: Path) -> None:
    request = "r" * limits.REQUEST_CHARS_MAX
    made = store.archives.attach(plain, "iot/plain", request=request)
    store.streams.delete("iot/plain")
    assert store.archives.attach(plain, "iot/plain", request=request) == made
    for name, key in (("iot/other", None), ("iot/plain", "k")):
        with pytest.raises(RequestMismatch):
            store.archives.attach(plain, name, key=key, request=request)
    assert list(store.streams.list()) == []
    for name in ("iot/a", "iot/b"):
        store.streams.create(name)
    store.archives.create_scope("iot", tmp_path / "archive")
    request = "s" * limits.REQUEST_CHARS_MAX
    made = store.archives.attach(tmp_path / "archive", "old", request=request)
    assert [str(name) for name, _ in made.streams] == ["old/a", "old/b"]
    store.scopes.delete("old", recursive=True)
    assert store.archives.attach(tmp_path / "archive", "old", request=request) == made
    with pytest.raises(RequestMismatch):
        store.archives.attach(tmp_path / "archive", "older", request=request)
    assert [scope.name for scope in store.scopes.list()] == ["iot"]


def test_nothing_is_ever_written_where_files_are_attached(store: Store, plain: Path) -> None:
    store.archives.attach(plain, "iot/plain")
    with store.catalog.reading() as txn:
        key = str(txn.export("blobs")[0][0])
    with pytest.raises(ReadOnlyStore):
        store.blobs.put(key, [b""])
    store.blobs.delete(key)
    assert store.blobs.size(key)


def test_a_backup_and_a_rebuild_leave_attached_files_where_they_are(store: Store, plain: Path, tmp_path: Path) -> None:
    store.archives.attach(plain, "iot/plain")
    with store.writer("iot/plain") as writer:
        writer.write({"n": 5}).result()
    report = store.backup(tmp_path / "backup")
    assert "01.parquet" not in str(files_of(tmp_path / "backup"))
    assert report.blobs == 0
    from anabranch.store import restore

    restore(tmp_path / "backup", tmp_path / "restored")
    with ab.connect(tmp_path / "restored", create=True) as restored:
        assert restored.archives.confirm_attachment(plain) == 1
        assert table(restored, "iot/plain").num_rows == 6
        assert sound(restored)
    store.export_manifest()
    store.close()
    (tmp_path / "store" / "catalog.db").unlink()
    rebuilt = ab.rebuild(tmp_path / "store")
    assert (rebuilt.broken, rebuilt.newer) == ({}, [])
    with ab.connect(tmp_path / "store", create=True) as again:
        assert again.archives.confirm_attachment(plain) == 1
        assert table(again, "iot/plain").num_rows == 6
