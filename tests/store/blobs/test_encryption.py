"""Encryption at rest: nothing that is written can be read without keys, nothing that was changed or moved is taken for
what it was, and master keys come and go without history being written again."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.blobs import layout
from anabranch.catalog.state.store import DATA_KEY
from anabranch.core.checksum import checksum
from anabranch.errors import (
    AnabranchError,
    CorruptBlob,
    InvalidArgument,
    KeyMissing,
    MissingExtra,
    StoreUnavailable,
    WrongKey,
)
from anabranch.log.commit import Committer, RoutedBatch, RoutedPart, WriterHandle
from anabranch.log.read import LogReader
from anabranch.model.append import Appended
from anabranch.model.ids import Micros, WriterId
from anabranch.model.stream import Extent
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import MasterKeys
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.publish import Publication
from tests import catalog_file, s3_server
from tests.postgres_server import drop, fresh_url

IDS = SystemIds()
OLD, NEW, OTHER = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))
MARK = "n0b0dy-may-read-this"
SCHEMA = pa.schema([("device", pa.string()), ("n", pa.int64()), ("text", pa.string())])
SETTINGS = Settings(inline_bytes_max=4 * limits.KIB)

Open = Callable[..., Store]


def keys(**of: bytes) -> MasterKeys:
    return MasterKeys(of, IDS)


@pytest.fixture(params=["sqlite+folder", "postgres+folder", "sqlite+s3"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store each time, with the keys that are given."""
    if request.param == "sqlite+folder":
        yield lambda with_keys: ab.connect(tmp_path / "store", keys=with_keys, settings=SETTINGS, create=True)
        return
    if request.param == "sqlite+s3":
        bucket = s3_server.fresh_url()
        yield lambda with_keys: ab.connect(
            tmp_path / "store", blobs=bucket, keys=with_keys, settings=SETTINGS, create=True
        )
        return
    url = fresh_url()
    folder = tmp_path / "store" / "blobs"
    yield lambda with_keys: ab.connect(url, blobs=folder, keys=with_keys, settings=SETTINGS, create=True)
    drop(url)


@pytest.fixture
def river(tmp_path: Path) -> Open:
    """The same for tests that need one pairing only."""
    return lambda with_keys: ab.connect(tmp_path / "store", keys=with_keys, settings=SETTINGS, create=True)


def rows(start: int, count: int) -> pa.Table:
    some = range(start, start + count)
    return pa.table(
        {"device": [f"{MARK}-{n % 7}" for n in some], "n": list(some), "text": [f"{MARK} {n}" for n in some]},
        schema=SCHEMA,
    )


def fill(store: Store) -> None:
    """200 events in blobs, then 20 in the catalog."""
    store.scopes.create("iot")
    store.streams.create("iot/raw", schema=SCHEMA, key="device", scaling=2)
    with store.writer("iot/raw") as writer:
        writer.write_batch(rows(0, 200)).result(120)
        for n in range(200, 220):
            writer.write_batch(rows(n, 1)).result(120)


def read(store: Store) -> list[int]:
    with store.reader("iot/raw") as reader:
        found = pa.Table.from_batches(reader.batches(), reader.schema)
    assert found.column("text").to_pylist() == [f"{MARK} {n}" for n in found.column("n").to_pylist()]
    return sorted(found.column("n").to_pylist())


def extents(store: Store) -> list[Extent]:
    view = store.streams.view("iot/raw")
    with store.catalog.reading() as reading:
        return [each for log in sorted(view.logs) for each in reading.extents(log, 0, 1 << 60, 10_000)]


def swap(store: Store, old: Extent, new: Extent) -> None:
    with store.catalog.writing() as txn:
        assert txn.swap_extents(old.log, [old], [new])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def blobs(store: Store) -> dict[str, bytes]:
    return {each.key: store.blobs.get(each.key).to_pybytes() for each in store.blobs.list()}


def leaks(folder: Path, store: Store | None = None) -> list[str]:
    """The files in which the mark can be found, as text or as the database's own text; and the store's blobs, which may
    lie elsewhere, and what its catalog carries, which may be elsewhere too."""
    found = files(folder)
    if store is not None:
        found |= blobs(store)
        found |= {f"log {each.log} at {each.start}": each.data for each in extents(store) if each.data is not None}
    return [name for name, data in found.items() if MARK.encode() in data or MARK.encode("utf-16-le") in data]


# what it does


def test_a_life_under_keys_leaves_no_plain_byte(open_store: Open, tmp_path: Path) -> None:
    with open_store(keys(old=OLD)) as store:
        fill(store)
        kinds = {(each.encoding, each.data is not None) for each in extents(store)}
        assert kinds == {("arrow", False), ("arrow", True)}
        assert read(store) == list(range(220))
        assert leaks(tmp_path, store) == []

        with store.reader("iot/raw", start=ab.TAIL, follow=True) as follower:
            store.streams.scale("iot/raw", 3)
            with store.writer("iot/raw") as writer:
                ack = writer.write({"device": f"{MARK}-1", "n": 220, "text": f"{MARK} 220"})
                pointer = ack.result(120)
            assert next(iter(follower)).body["n"] == 220
        assert store.fetch(pointer).body["text"] == f"{MARK} 220"

        stager = store.stager("iot/raw")
        small = store.stager("iot/raw")
        stager._inline_bytes_max = 0  # so that a blob is staged
        with store.hold("test", "staging"):
            stager.write(rows(221, 100))
            small.write(rows(321, 9))
            staged = (*stager.finish(), *small.finish())
            store.streams.scale("iot/raw", 2)  # so that it is sliced anew
            store.publish([Publication(store.streams.get("iot/raw").id, staged)], request="once")
        assert read(store) == list(range(330))
        assert list(store.check()) == []
        assert leaks(tmp_path, store) == []

        report = store.compact(force=True)
        assert (report.events, report.skipped) == (330, ())
        assert {each.encoding for each in extents(store)} == {"parquet"}
        assert read(store) == list(range(330))
        assert list(store.check()) == []
        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(330, 5)).result(120)
        store.collect(horizon_us=0)
        assert leaks(tmp_path, store) == []
    with open_store(keys(old=OLD)) as store:
        assert read(store) == list(range(335))
        store.compact(force=True)  # files are read to be written
        assert read(store) == list(range(335))
        assert list(store.check()) == []
    assert leaks(tmp_path) == []


def test_without_keys_the_mark_would_have_been_found(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "plain", settings=SETTINGS, create=True) as store:
        fill(store)
    assert any("catalog" in name for name in leaks(tmp_path)) and any("commits" in name for name in leaks(tmp_path))


def test_the_same_events_never_give_the_same_bytes(river: Open, tmp_path: Path) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        with store.writer("iot/raw") as writer:
            for _ in range(50):
                writer.write_batch(rows(0, 1)).result(120)
        boxes = [each.data for each in extents(store) if each.data is not None]
    nonces = [box[9:33] for box in boxes]
    assert len(set(nonces)) == len(nonces) == 70
    assert {box[:9] for box in boxes} == {boxes[0][:9]}


def test_what_is_stored_is_what_the_formats_page_says(river: Open) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        with store.catalog.reading() as reading:
            ((_, row),) = reading.states(DATA_KEY)
        inline = next(each for each in extents(store) if each.data is not None)
        blob = next(each for each in extents(store) if each.data is None)
        assert inline.data is not None and blob.key is not None
        assert inline.data[0] == 1 and inline.data[1:9].hex() == row.id
        whole = store.blobs.get(blob.key)
        assert whole.slice(11, 1).to_pybytes() == b"\x01"
        index = layout.read_index(blob.key, whole)
        assert index["key"] == {"id": row.id, "master": "old", "wrapped": base64.b64encode(row.wrapped).decode()}
        for part in index["parts"]:
            assert checksum(whole.slice(part["at"], part["length"])) == part["checksum"]
        assert (blob.location.offset, blob.location.length) in [(part["at"], part["length"]) for part in index["parts"]]
        store.compact(force=True)
        file = store.blobs.get(str(extents(store)[0].key)).to_pybytes()
        assert (file[:4], file[-4:]) == (b"PARE", b"PARE")


# keys


def test_a_store_wants_the_keys_that_it_was_made_with(open_store: Open) -> None:
    with open_store(keys(old=OLD)) as store:
        fill(store)
    with pytest.raises(KeyMissing, match="'old'") as missing:
        open_store(None)
    assert missing.value.key_id == "old"
    with pytest.raises(KeyMissing, match="'old'"):
        open_store(keys(new=OLD))
    with pytest.raises(WrongKey, match="'old'"):
        open_store(keys(old=OTHER))
    with open_store(keys(new=NEW, old=OLD)) as store:
        assert read(store) == list(range(220))


def test_a_store_in_the_clear_stays_in_the_clear(open_store: Open) -> None:
    with open_store(None) as store:
        fill(store)
        with pytest.raises(InvalidArgument, match="not encrypted"):
            store.rotate_keys()
    with pytest.raises(InvalidArgument, match="not encrypted"):
        open_store(keys(old=OLD))
    with open_store(None) as store:
        assert read(store) == list(range(220))


def test_a_store_in_which_there_is_nothing_yet_takes_keys(river: Open, tmp_path: Path) -> None:
    river(None).close()
    with river(keys(old=OLD)) as store:
        fill(store)
    assert leaks(tmp_path) == []
    with pytest.raises(KeyMissing):
        river(None)


def test_a_service_that_hands_out_anything_is_found_out(river: Open) -> None:
    class Careless(MasterKeys):
        def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
            return bytes(32)

    with river(keys(old=OLD)) as store:
        fill(store)
    with pytest.raises(WrongKey):
        river(Careless({"old": OLD}, IDS))


def test_a_damaged_check_of_a_data_key_is_a_wrong_key(river: Open) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        with store.catalog.writing() as txn:
            ((_, row),) = txn.states(DATA_KEY)
            txn.put_state(DATA_KEY, row.id, replace(row, check="ä" * 64))
    with pytest.raises(WrongKey):
        river(keys(old=OLD))


def test_a_service_is_asked_once_for_a_data_key_and_may_be_away(river: Open) -> None:
    asked: list[str] = []

    class Service(MasterKeys):
        def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
            asked.append(key_id)
            return super().unwrap(key_id, wrapped)

    class Away(MasterKeys):
        def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
            raise StoreUnavailable("the key service does not answer")

    with river(keys(old=OLD)) as store:
        fill(store)
        store.compact(force=True)
    with river(Service({"old": OLD}, IDS)) as store:
        assert read(store) == list(range(220))
    assert asked == ["old"]
    with pytest.raises(StoreUnavailable, match="does not answer"):
        river(Away({"old": OLD}, IDS))
    with river(keys(old=OLD)) as store:
        assert read(store) == list(range(220))


def test_a_rotation_leaves_history_as_it_is_and_the_old_key_unneeded(open_store: Open) -> None:
    with open_store(keys(old=OLD)) as store:
        fill(store)
    both = keys(new=NEW, old=OLD)
    with open_store(both) as store:
        store.compact(force=True)
        before = blobs(store)
        assert before
        done = store.rotate_keys()
        assert (done.master, done.rewrapped) == ("new", 1)
        assert blobs(store) == before
        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(220, 1)).result(120)
            writer.write_batch(rows(221, 200)).result(120)
        fresh = [each.data[1:9].hex() for each in extents(store) if each.data is not None]
        assert fresh and set(fresh) == {done.data_key}
    with open_store(keys(new=NEW)) as store:
        assert read(store) == list(range(421))
        assert list(store.check()) == []
        store.compact(force=True)
        assert read(store) == list(range(421))
    for wrong in (None, keys(old=OLD)):
        with pytest.raises(KeyMissing, match="'new'"):
            open_store(wrong)


def test_a_key_that_is_removed_before_the_rotation_is_missed(river: Open) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
    with pytest.raises(KeyMissing, match="'old'"):
        river(keys(new=NEW))


def test_who_has_the_store_open_reads_on_beyond_anothers_rotation(open_store: Open) -> None:
    with open_store(keys(old=OLD)) as mine, open_store(keys(new=NEW, old=OLD)) as theirs:
        fill(mine)
        first = theirs.rotate_keys()
        with theirs.writer("iot/raw") as writer:
            writer.write_batch(rows(220, 1)).result(120)
        with pytest.raises(KeyMissing, match="'new'"):  # what it was not given it can't read, and says so
            read(mine)
        with pytest.raises(KeyMissing, match="'new'"):
            list(mine.check())
        second = theirs.rotate_keys()
        assert (second.rewrapped, second.data_key == first.data_key) == (0, False)
        with mine.writer("iot/raw") as writer:
            writer.write_batch(rows(221, 1)).result(120)
        assert read(theirs) == list(range(222))


# what was changed or moved


def test_every_flipped_bit_of_a_box_is_noticed_though_its_checksum_be_right(river: Open) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        good = next(each for each in extents(store) if each.data is not None)
        assert good.data is not None
        for at in (0, 1, 9, 32, 33, len(good.data) // 2, len(good.data) - 1):
            data = bytearray(good.data)
            data[at] ^= 0x10
            bad = replace(good, data=bytes(data))
            swap(store, good, bad)
            with pytest.raises(CorruptBlob, match="checksum"):
                read(store)
            worse = replace(bad, checksum=checksum(pa.py_buffer(bytes(data))))
            swap(store, bad, worse)
            with pytest.raises(CorruptBlob):
                read(store)
            assert any("at" in str(finding) for finding in store.check())
            swap(store, worse, good)
        assert read(store) == list(range(220))


def test_a_box_that_was_moved_is_noticed(river: Open) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        by_log: dict[int, Extent] = {each.log: each for each in extents(store) if each.data is not None}
        one, other = list(by_log.values())[:2]
        moved = replace(one, data=other.data, checksum=other.checksum, location=other.location)
        swap(store, one, moved)  # to another log
        with pytest.raises(CorruptBlob, match="were written at another place"):
            read(store)
        assert any("were written at another place" in str(finding) for finding in store.check())
        swap(store, moved, one)

        first, second = [each for each in extents(store) if each.data is None and each.encoding == "arrow"][:2]
        assert first.key == second.key
        assert first.key is not None
        whole = store.blobs.get(first.key).to_pybytes()
        box = whole[second.location.offset : second.location.offset + second.location.length]
        reader = LogReader(store.catalog, store.blobs, store.runtime).fetcher
        reader._blobs = _Answering(box)  # type: ignore[assignment] # the blob with its second part in the first's place
        with pytest.raises(CorruptBlob, match="were written at another place"):
            reader.message(replace(first, checksum=second.checksum, location=replace(first.location, length=len(box))))
        with pytest.raises(CorruptBlob, match="were written at another place"):  # or the whole blob under another name
            reader.message(replace(second, key="commits/elsewhere"))
        assert reader.message(second) is not None


class _Answering:
    """Blobs that hold the same bytes everywhere."""

    def __init__(self, data: bytes) -> None:
        self._data = pa.py_buffer(data)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        return self._data


def test_plain_bytes_in_an_encrypted_store_are_refused(river: Open, tmp_path: Path) -> None:
    with river(keys(old=OLD)) as store, ab.connect(tmp_path / "plain", settings=SETTINGS, create=True) as plain:
        fill(store)
        fill(plain)
        mine = next(each for each in extents(store) if each.data is not None)
        theirs = next(each for each in extents(plain) if each.data is not None)
        swap(store, mine, replace(mine, data=theirs.data, checksum=theirs.checksum, location=theirs.location))
        with pytest.raises(CorruptBlob, match="these bytes are not"):
            read(store)
        swap(store, replace(mine, data=theirs.data, checksum=theirs.checksum, location=theirs.location), mine)

        store.compact(force=True)
        plain.compact(force=True)
        (file,) = [key for key in files(tmp_path / "store" / "blobs") if key.startswith("history")]
        (clear,) = [key for key in files(tmp_path / "plain" / "blobs") if key.startswith("history")]
        data = (tmp_path / "plain" / "blobs" / clear).read_bytes()
        (tmp_path / "store" / "blobs" / file).write_bytes(data)
        for each in extents(store):
            swap(store, each, replace(each, checksum=checksum(data)))
    with river(keys(old=OLD)) as store, pytest.raises(CorruptBlob, match="not an encrypted Parquet"):
        read(store)


def test_a_parquet_file_that_was_changed_or_renamed_is_noticed(river: Open, tmp_path: Path) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        store.compact(force=True)
        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(220, 200)).result(120)
    folder = tmp_path / "store" / "blobs"
    (name,) = [key for key in files(folder) if key.startswith("history")]
    good = (folder / name).read_bytes()
    for at in (200, len(good) // 3, len(good) - 60):
        _overwrite(tmp_path, folder / name, bytes([*good[:at], good[at] ^ 1, *good[at + 1 :]]))
        with river(keys(old=OLD)) as store, pytest.raises(CorruptBlob):
            read(store)
    _overwrite(tmp_path, folder / name, good)
    with river(keys(old=OLD)) as store:
        assert read(store) == list(range(420))
        sealer = store.runtime.sealer
        assert sealer is not None
        from anabranch.log.parquet.reader import ParquetReader

        data = store.blobs.get(name)
        ParquetReader(name, data, sealer)
        with pytest.raises(CorruptBlob, match="were written at another place"):
            ParquetReader(name.replace("0", "1"), data, sealer)
        with pytest.raises(CorruptBlob, match="not a Parquet file"):
            ParquetReader(name, data)


def _overwrite(folder: Path, file: Path, data: bytes) -> None:
    """Change a file, and its checksum in the catalog with it, as one would who can write both."""
    file.write_bytes(data)
    statement = "update extents set checksum = ? where encoding = 'parquet'"
    catalog_file.change(folder / "store" / "catalog.db", statement, checksum(data))


def test_keys_that_can_not_be_had_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="can't be read"):
        ab.connect(tmp_path / "store", keys=f"file:{tmp_path / 'gone'}", create=True)
    assert list(tmp_path.iterdir()) == []


def test_no_error_shows_a_secret(river: Open) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
    for wrong in (None, keys(old=OTHER), keys(new=NEW)):
        with pytest.raises(AnabranchError) as caught:
            river(wrong)
        assert OLD.hex() not in repr(caught.value) and OTHER.hex() not in repr(caught.value)


# what happens on the way


def test_a_commit_that_was_stalled_behind_the_horizon_is_sealed_anew(river: Open, tmp_path: Path) -> None:
    with river(keys(old=OLD)) as store:
        fill(store)
        view = store.streams.view("iot/raw")
        log = view.open_log(view.current[0].id)
        assert log is not None
        batch = rows(1000, 100).to_batches()[0]
        part = RoutedPart(log, batch, view.info.schema, view.info.schema_version, WriterHandle(WriterId("stalled")), 0)
        committer = Committer(store.catalog, store.blobs, store.runtime)
        encoded = committer.prepare([RoutedBatch((part,))])
        assert encoded.blob is not None
        with store.catalog.writing() as txn:
            txn.set_horizon(Micros(store.runtime.clock.now() + 1))
        (outcome,) = committer.commit(encoded)
        assert isinstance(outcome, tuple)
        assert isinstance(outcome[0], Appended)
        assert [key for key in (each.key for each in extents(store)) if key == encoded.blob.key] == []
        assert read(store) == [*range(220), *range(1000, 1100)]


def test_the_library_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("cryptography", "anabranch.runtime.aead"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("anabranch.log.keyring", "anabranch.blobs.envelope", "anabranch.runtime.keys"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match=r"anabranch\[encryption\]"):
        ab.connect(tmp_path / "store", keys="env:KEYS", create=True)
    ab.connect(tmp_path / "store", create=True).close()
