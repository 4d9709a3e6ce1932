"""Archives: exported, verified, imported; interrupted, damaged, signed; and the digest that tells what is the same."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.core.archive import METADATA, Archive, metadata_digest
from anabranch.core.digest import BLOCK_ROWS
from anabranch.errors import (
    AlreadyExists,
    Conflict,
    CorruptArchive,
    FormatTooNew,
    InvalidArgument,
    InvalidPointer,
    NotFound,
    ScopeNotFound,
    StreamExists,
    Truncated,
)
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests import s3_server
from tests.archives import make
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import sound

HERE = Path(make.__file__).parent
SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
ADDED = ["_segment", "_offset", "_appended"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "store", settings=Settings(inline_bytes_max=2 * limits.KIB)) as opened:
        opened.streams.create_scope("iot")
        yield opened


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    """Another store, to import into."""
    with ab.connect(tmp_path / "other") as opened:
        opened.streams.create_scope("old")
        yield opened


def fill(store: Store, name: str = "iot/x", count: int = 60) -> None:
    """A stream of several epochs with a truncated head, a wider schema, blobs, inlined events and Parquet."""
    store.streams.create(name, schema=SCHEMA, key="device", time="at", scaling=2, tags={"a": "b"})
    with store.writer(name) as writer:
        writer.write_batch(rows(0, count)).result()
        store.compact(force=True)
        store.streams.truncate(name, store.streams.cut_at(name, 10_000, by="event"))
        store.streams.scale(name, 3)
        writer.write_batch(rows(count, count)).result()
    store.streams.evolve(name, pa.schema([*SCHEMA, ("note", pa.string())]))
    with store.writer(name) as writer:
        for n in range(3):
            writer.write({"device": f"d{n}", "at": n, "n": n, "note": "late"}).result()


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    times = pa.array([1_000 * n for n in numbers], SCHEMA.field("at").type)
    return pa.table({"device": [f"d{n % 7}" for n in numbers], "at": times, "n": list(numbers)}, schema=SCHEMA)


def table(store: Store, name: str) -> pa.Table:
    """All that a stream holds, in one order."""
    with store.reader(name) as reader:
        whole = pa.Table.from_batches(reader.batches(), reader.schema)
    return whole.sort_by([("_segment", "ascending"), ("_offset", "ascending")])


def segments(store: Store, name: str) -> list[Any]:
    view = store.streams.view(name)
    return [(s.id, s.range, s.retired, s.head, view.length(s.id)) for s in view.ordered]


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# what is imported is what was archived


def assert_same(store: Store, name: str, other: Store, twin: str) -> None:
    assert table(other, twin).equals(table(store, name))
    assert segments(other, twin) == segments(store, name)
    mine, theirs = store.streams.get(name), other.streams.get(twin)
    assert (theirs.schema, theirs.schema_version, theirs.tags) == (mine.schema, mine.schema_version, mine.tags)
    assert (theirs.epoch, theirs.next_number, theirs.sealed) == (mine.epoch, mine.next_number, mine.sealed)
    with store.catalog.reading() as here, other.catalog.reading() as there:
        for version in range(1, mine.schema_version + 1):
            assert there.schema(theirs.id, version) == here.schema(mine.id, version)
    assert other.streams.digest(twin) == store.streams.digest(name)
    assert sound(other)


def test_an_archive_is_imported_as_it_was_exported(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    report = store.streams.archive("iot/x", tmp_path / "archive")
    assert list(ab.verify_archive(tmp_path / "archive")) == []
    found = ab.read_archive(tmp_path / "archive")
    assert (found.digest, found.archive.events, found.archive.size) == (report.digest, report.events, report.bytes)
    assert found.archive.streams[0].digest == store.streams.digest("iot/x")

    made = other.streams.import_archive(tmp_path / "archive", as_="old/y")
    assert_same(store, "iot/x", other, "old/y")
    with store.reader("iot/x") as reader:
        event = next(iter(reader))
    assert other.fetch(made.pointer(event.pointer)).body == event.body
    assert made.cut(store.streams.head("iot/x")) == other.streams.head("old/y")
    assert (
        other.streams.cut_at("old/y", 5_000, by="event").offsets
        == store.streams.cut_at("iot/x", 5_000, by="event").offsets
    )
    with pytest.raises(InvalidPointer):
        made.pointer(event.pointer._replace(stream=other.streams.get("old/y").id))

    # It lives on like any other.
    with other.writer("old/y") as writer:
        writer.write({"device": "d1", "at": 1, "n": -1, "note": "new"}).result()
    other.streams.scale("old/y", 2)
    other.streams.copy("old/y", "old/z")
    shutil.rmtree(tmp_path / "archive")
    for _ in range(2):
        other.compact(force=True)
        other.collect(horizon_us=0)
    assert table(other, "old/y").num_rows == table(store, "iot/x").num_rows + 1
    assert sound(other)


def test_a_sealed_an_empty_and_a_raw_stream_are_imported_as_they_are(
    store: Store, other: Store, tmp_path: Path
) -> None:
    store.streams.create("iot/raw", scaling=2)
    store.streams.create("iot/empty")
    with store.writer("iot/raw") as writer:
        for n in range(5):
            writer.write(f"{n}".encode(), key=str(n), time=n).result()
    store.streams.seal("iot/raw")
    for name in ("iot/raw", "iot/empty"):
        store.streams.archive(name, tmp_path / name)
        other.streams.import_archive(tmp_path / name, as_=name.replace("iot", "old"))
        assert_same(store, name, other, name.replace("iot", "old"))


def test_a_range_is_imported_with_its_offsets_and_open(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    cuts = [store.streams.cut_at("iot/x", 1_000 * n, by="event") for n in (20, 90)]
    part = ab.StreamRange("iot/x", *cuts)
    store.streams.seal("iot/x")
    store.streams.archive(part, tmp_path / "archive")
    store.streams.copy(part, "iot/part")
    other.streams.import_archive(tmp_path / "archive", as_="old/part")
    assert_same(store, "iot/part", other, "old/part")
    assert not other.streams.get("old/part").sealed
    assert other.streams.digest("old/part") == store.streams.digest(part)


def test_a_scope_is_archived_as_of_one_moment_and_imported_stream_by_stream(
    store: Store, other: Store, tmp_path: Path
) -> None:
    fill(store)
    fill(store, "iot/y", 20)
    store.streams.create("iot/_own")
    with store.streams.ephemeral("iot/gone"):
        report = store.streams.archive_scope("iot", tmp_path / "archive")
        everything = store.streams.archive_scope("iot", tmp_path / "all", internal=True, ephemeral=True)
    assert (report.streams, everything.streams) == (2, 4)
    bad = tmp_path / "bad"
    shutil.copytree(tmp_path / "archive", bad)
    damaged(bad, next(name for name in files_of(bad) if name != METADATA), "flipped", random.Random(3))
    with pytest.raises(CorruptArchive):
        other.streams.import_archive(bad, window=1)  # or else the second stream may be whole before the first fails
    with pytest.raises(ScopeNotFound):
        other.streams.scope("iot")
    other.streams.create_scope("there")
    other.streams.create("there/y")
    with pytest.raises(StreamExists):
        other.streams.import_archive(tmp_path / "archive", as_="there")
    assert [str(info.name) for info in other.streams.list("there")] == ["there/y"]
    other.streams.delete("there/y")
    made = other.streams.import_archive(tmp_path / "archive", as_="there")
    assert [str(name) for name, _ in made.streams] == ["there/x", "there/y"]
    for name in ("x", "y"):
        assert_same(store, f"iot/{name}", other, f"there/{name}")
    assert other.streams.import_archive(tmp_path / "archive").streams[0][0] == ab.StreamName("iot", "x")


def test_aliases_come_along_under_their_own_scope_and_retention_if_asked(
    store: Store, other: Store, tmp_path: Path
) -> None:
    fill(store)
    store.streams.alias("iot/x", "iot/also")
    store.streams.retention("iot/x", ab.RetainFor("1000d"))
    store.streams.archive_scope("iot", tmp_path / "archive")
    other.streams.import_archive(tmp_path / "archive", as_="one")
    assert other.streams.get("one/also").name == ab.StreamName("one", "x")
    # That of a stream, as a copy of it, has none.
    store.streams.archive("iot/x", tmp_path / "alone")
    other.streams.create_scope("alone")
    other.streams.import_archive(tmp_path / "alone", as_="alone/x")
    other.streams.attach(tmp_path / "alone", as_="alone/attached")
    assert [*other.streams.list_aliases("alone")] == []
    other.streams.import_archive(tmp_path / "archive", as_="two", retention=True)
    from anabranch.streams.retention import policy_of

    with other.catalog.reading() as txn:
        assert policy_of(txn, other.streams.get("one/x").id) is None
        assert policy_of(txn, other.streams.get("two/x").id) == ab.RetainFor("1000d")


def test_asked_again_an_import_changes_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    store.streams.archive("iot/x", tmp_path / "archive")
    first = other.streams.import_archive(tmp_path / "archive", as_="old/y", request="r")
    blobs = [info.key for info in other.blobs.list()]
    assert other.streams.import_archive(tmp_path / "archive", as_="old/y", request="r") == first
    assert other.streams.import_archive(tmp_path / "archive", as_="old/y") == first
    assert [info.key for info in other.blobs.list()] == blobs
    store.streams.archive("iot/x", tmp_path / "second")
    with pytest.raises(StreamExists):
        other.streams.import_archive(tmp_path / "second", as_="old/y")
    with pytest.raises(ScopeNotFound):
        other.streams.import_archive(tmp_path / "archive", as_="nowhere/y")


# any other kind of store


@pytest.mark.parametrize("target", ["postgres+s3", "encrypted"])
def test_an_archive_goes_from_any_store_to_any_other(store: Store, tmp_path: Path, target: str) -> None:
    fill(store)
    url = s3_server.fresh_url() if "s3" in target else str(tmp_path / "archive")
    store.streams.archive("iot/x", url, request="r")
    assert store.streams.archive("iot/x", url, request="r").events == ab.read_archive(url).archive.events
    assert list(ab.verify_archive(url)) == []
    options: dict[str, Any] = (
        {"keys": key_file(tmp_path)} if target == "encrypted" else {"blobs": s3_server.fresh_url()}
    )
    place = tmp_path / "third" if target == "encrypted" else fresh_url()
    with ab.connect(place, **options) as third:
        third.streams.create_scope("old")
        third.streams.import_archive(url, as_="old/y")
        assert_same(store, "iot/x", third, "old/y")
        if target == "encrypted":
            with pytest.raises(InvalidArgument, match="--in-the-clear"):
                third.streams.archive("old/y", tmp_path / "back")
            assert not (tmp_path / "back").exists()
            third.streams.archive("old/y", tmp_path / "back", in_the_clear=True)
            store.streams.import_archive(tmp_path / "back", as_="iot/back")
            assert store.streams.digest("iot/back") == store.streams.digest("iot/x")
            with pytest.raises(InvalidArgument, match="encrypted"):
                third.streams.attach(url, "old/z")
        else:
            third.streams.attach(url, "old/z")
            assert_same(store, "iot/x", third, "old/z")
    if target != "encrypted":
        drop(str(place))


def key_file(folder: Path) -> str:
    from anabranch.runtime.ids import SystemIds
    from anabranch.runtime.keys import new_line

    file = folder / "keys"
    file.write_text(new_line("k", SystemIds()))
    file.chmod(0o600)
    return f"file:{file}"


# the files are plain Parquet


def test_duckdb_and_pyarrow_read_the_files_without_this_project(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.streams.archive("iot/x", tmp_path / "archive")
    expected = table(store, "iot/x")
    order = [("_segment", "ascending"), ("_offset", "ascending")]
    found = ds.dataset(tmp_path / "archive", format="parquet", exclude_invalid_files=True).to_table().sort_by(order)
    assert found.cast(expected.schema).equals(expected)
    sql = f"select * from read_parquet('{tmp_path}/archive/*/*.parquet') order by _segment, _offset"
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        answer = connection.sql(sql).to_arrow_table()
    assert answer.cast(expected.schema).equals(expected)


def test_files_end_where_blocks_do_and_cover_each_segment_once(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.streams.create("iot/long", schema=SCHEMA, key="device", time="at", scaling=2)
    with store.writer("iot/long") as writer:
        for start in range(0, 42_000, 3_000):
            writer.write_batch(rows(start, 3_000)).result()
    monkeypatch.setattr(limits, "PARQUET_BYTES_MAX", 100 * limits.KIB)
    heard: list[tuple[int, int | None]] = []
    store.streams.archive(
        "iot/long", tmp_path / "archive", progress=lambda what, done, total: heard.append((done, total))
    )
    assert heard == sorted(heard)
    assert heard[-1] == (42_000, 42_000)
    (stream,) = ab.read_archive(tmp_path / "archive").archive.streams
    assert stream.digest == store.streams.digest("iot/long")
    for segment in stream.segments:
        edges = [file.stop for file in segment.files]
        assert len(edges) > 2
        assert all(edge % BLOCK_ROWS == 0 for edge in edges[:-1])
        assert all(file.logical < 2 * 100 * limits.KIB for file in segment.files)
    assert list(ab.verify_archive(tmp_path / "archive")) == []
    other.streams.import_archive(tmp_path / "archive", as_="old/long")
    assert_same(store, "iot/long", other, "old/long")

    # Of an archive that was cut short, whole files are kept, also where the stream has grown.
    (tmp_path / "archive" / METADATA).unlink()
    with store.writer("iot/long") as writer:
        writer.write_batch(rows(42_000, 100)).result()
    report = store.streams.archive("iot/long", tmp_path / "archive")
    assert report.files_there == sum(len(segment.files) - 1 for segment in stream.segments)
    assert list(ab.verify_archive(tmp_path / "archive")) == []


# interrupted, repeated, in the wrong place


def test_an_interrupted_archive_is_none_and_goes_on_when_asked_again(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    folder = tmp_path / "archive"
    store.streams.archive("iot/x", folder)
    names = [name for name in files_of(folder) if name != METADATA]
    (folder / METADATA).unlink()
    with pytest.raises(NotFound, match="never finished"):
        other.streams.import_archive(folder, as_="old/y")
    with pytest.raises(NotFound, match="never finished"):
        list(ab.verify_archive(folder))
    (folder / names[0]).write_bytes((folder / names[0]).read_bytes()[:-9])  # it was being written
    (folder / names[1]).write_bytes(b"")
    flipped = bytearray((folder / names[2]).read_bytes())
    flipped[40] ^= 1
    (folder / names[2]).write_bytes(flipped)
    forged = pq.read_table(folder / names[3])
    told = pq.read_metadata(folder / names[3]).metadata[b"anabranch"]
    forged = forged.set_column(0, forged.schema.field(0), pa.array(["forged"] * forged.num_rows))
    pq.write_table(forged.replace_schema_metadata({b"anabranch": told}), folder / names[3])
    report = store.streams.archive("iot/x", folder)
    assert (report.files, report.files_there) == (len(names), len(names) - 4)
    assert list(ab.verify_archive(folder)) == []
    other.streams.import_archive(folder, as_="old/y")
    assert_same(store, "iot/x", other, "old/y")


def test_files_of_an_earlier_attempt_that_no_longer_fit_are_removed(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.streams.archive("iot/x", tmp_path / "archive")
    (tmp_path / "archive" / METADATA).unlink()
    store.streams.truncate("iot/x", store.streams.cut_at("iot/x", 30_000, by="event"))
    store.streams.archive("iot/x", tmp_path / "archive")
    assert list(ab.verify_archive(tmp_path / "archive")) == []


def test_a_metadata_file_that_was_cut_off_is_as_good_as_none(store: Store, tmp_path: Path) -> None:
    fill(store)
    folder = tmp_path / "archive"
    report = store.streams.archive("iot/x", folder)
    whole = (folder / METADATA).read_bytes()
    (folder / METADATA).write_bytes(whole[: len(whole) // 2])
    assert store.streams.archive("iot/x", folder).files_there == report.files
    assert list(ab.verify_archive(folder)) == []


def test_the_same_request_finds_its_archive_and_any_other_is_refused(store: Store, tmp_path: Path) -> None:
    fill(store)
    report = store.streams.archive("iot/x", tmp_path / "archive", request="r")
    assert store.streams.archive("iot/x", tmp_path / "archive", request="r") == report
    for request in (None, "another"):
        with pytest.raises(AlreadyExists, match="already"):
            store.streams.archive("iot/x", tmp_path / "archive", request=request)


def test_what_a_place_holds_besides_is_never_touched(store: Store, tmp_path: Path) -> None:
    fill(store)
    fill(store, "iot/y")
    folder = tmp_path / "archive"
    store.streams.archive("iot/y", folder)
    (folder / METADATA).unlink()
    before = files_of(folder)
    with pytest.raises(InvalidArgument, match="holds other things"):
        store.streams.archive("iot/x", folder)
    assert files_of(folder) == before
    with pytest.raises(ab.errors.StreamNotFound):
        store.streams.archive("iot/none", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(NotFound, match="no archive"):
        ab.read_archive(tmp_path / "store")


def test_two_that_archive_to_one_place_do_not_mix(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.blobs.local import LocalBlobs

    fill(store)
    real = LocalBlobs.put

    def late(self: LocalBlobs, key: str, chunks: Any) -> None:
        if key == METADATA:
            real(self, key, [b"{}"])  # the other one was faster
        real(self, key, chunks)

    monkeypatch.setattr(LocalBlobs, "put", late)
    with pytest.raises(Conflict, match="at the same time"):
        store.streams.archive("iot/x", tmp_path / "archive")


def test_a_stream_that_is_truncated_or_rewritten_meanwhile(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    digest = store.streams.digest("iot/x")
    from anabranch.streams.jobs import archive

    real = archive.write_file
    acts: list[Callable[[], object]] = [
        lambda: (store.compact(force=True), store.streams.scale("iot/x", 1), store.streams.rename("iot/x", "iot/z")),
        lambda: store.streams.truncate("iot/z", store.streams.tail("iot/z")),
    ]

    def write(*arguments: Any) -> Any:
        if acts:
            acts.pop(0)()
        return real(*arguments)

    monkeypatch.setattr(archive, "write_file", write)
    with pytest.raises(Truncated):
        store.streams.archive("iot/x", tmp_path / "lost")
    assert acts == []
    fill(store, "iot/w")
    expected = store.streams.digest("iot/w")
    acts += [lambda: store.compact(force=True), lambda: store.streams.scale("iot/w", 1)]
    store.streams.archive("iot/w", tmp_path / "whole")
    (archived,) = ab.read_archive(tmp_path / "whole").archive.streams
    assert archived.digest == expected != digest


# damage


def damaged(folder: Path, name: str, how: str, chance: random.Random) -> str | None:
    """Damage a file; the name that is to be told, None for the file's own."""
    path = folder / name
    data = bytearray(path.read_bytes())
    match how:
        case "missing":
            path.unlink()
            return None
        case "short":
            data = data[: chance.randrange(len(data))]
        case "long":
            data += b"\0"
        case "flipped":
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "extra":
            (path.parent / "stranger.parquet").write_bytes(b"PAR1")
            return (path.parent / "stranger.parquet").relative_to(folder).as_posix()
    path.write_bytes(data)
    return None


@pytest.mark.parametrize("how", ["missing", "short", "long", "flipped", "extra"])
def test_every_damage_of_every_file_is_named_and_nothing_is_imported(
    store: Store, other: Store, tmp_path: Path, how: str
) -> None:
    fill(store)
    store.streams.archive("iot/x", tmp_path / "archive")
    chance = random.Random(7)
    for name in files_of(tmp_path / "archive"):
        folder = tmp_path / "bad"
        shutil.copytree(tmp_path / "archive", folder)
        told = damaged(folder, name, how, chance) or name
        before = [info.key for info in other.blobs.list()]
        if (name, how) == (METADATA, "missing"):
            with pytest.raises(NotFound, match="never finished"):
                other.streams.import_archive(folder, as_="old/y")
        else:
            with pytest.raises(CorruptArchive) as refused:
                other.streams.import_archive(folder, as_="old/y")
            assert refused.value.file == told
            assert told in str(refused.value)
            if told != METADATA:
                assert told in [flaw.file for flaw in ab.verify_archive(folder)]
        assert not list(other.streams.list("old"))
        for row in other.jobs.list():
            other.jobs.get(row.id).cancel()
        if how != "flipped":  # all that a listing tells is told before anything is copied
            assert [info.key for info in other.blobs.list()] == before
        shutil.rmtree(folder)
    for _ in range(2):
        other.collect(horizon_us=0)
    assert not [*other.blobs.list("history/")]
    assert sound(other)


def test_any_changed_byte_of_the_metadata_is_noticed(store: Store, tmp_path: Path) -> None:
    fill(store, count=20)
    folder = tmp_path / "archive"
    store.streams.archive("iot/x", folder)
    whole = (folder / METADATA).read_bytes()
    for place in range(0, len(whole), 37):
        changed = bytearray(whole)
        changed[place] ^= 1
        (folder / METADATA).write_bytes(changed)
        with pytest.raises(CorruptArchive, match=METADATA):
            ab.read_archive(folder)


def test_bits_of_pages_are_noticed_also_where_files_are_attached(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    store.streams.archive("iot/x", tmp_path / "archive")
    name = next(name for name in files_of(tmp_path / "archive") if name != METADATA)
    other.streams.attach(tmp_path / "archive", "old/x")
    damaged(tmp_path / "archive", name, "flipped", random.Random(1))
    with pytest.raises(ab.errors.CorruptBlob, match=name), other.reader("old/x") as reader:
        list(reader)
    assert any(name in str(finding) for finding in other.check())


def test_metadata_that_lies_is_found_out_by_the_events(store: Store, tmp_path: Path) -> None:
    """Sums of files and metadata may be made to fit by whoever changes both; the events' digest is worked out anew."""
    fill(store)
    folder = tmp_path / "archive"
    store.streams.archive("iot/x", folder)
    whole = json.loads((folder / METADATA).read_text())
    segment = next(each for each in whole["archive"]["streams"][0]["segments"] if each["files"])
    segment["files"][0]["appended"][0] -= 1
    whole["digest"] = metadata_digest(whole["archive"])
    (folder / METADATA).write_text(json.dumps(whole))
    assert [flaw.file for flaw in ab.verify_archive(folder)] == [METADATA]
    assert list(ab.verify_archive(folder, content=False)) == []
    segment["files"][0]["appended"][0] += 1
    archive = Archive.from_json(whole["archive"])
    stream = archive.streams[0]
    forged = [replace(each, part=each.part._replace(digest="0" * 64)) for each in stream.segments]
    archive = replace(archive, streams=(replace(stream, segments=tuple(forged)),))
    forgery = {**whole, "archive": archive.to_json(), "digest": metadata_digest(archive.to_json())}
    (folder / METADATA).write_text(json.dumps(forgery))
    flaws = list(ab.verify_archive(folder))
    assert [flaw.file for flaw in flaws] == [METADATA] * len(stream.segments)
    assert "another digest of segment 0.0" in flaws[0].what
    for member, lie in (
        ("file", "../../store/catalog.db"),
        ("appended", [2, 1]),
        ("appended", [None, None]),
        ("schema", 9),
    ):
        told, segment["files"][0][member] = segment["files"][0][member], lie
        text = {**whole, "digest": metadata_digest(whole["archive"])}
        (folder / METADATA).write_text(json.dumps(text))
        with pytest.raises(CorruptArchive, match="says what can't be"):
            ab.read_archive(folder)
        segment["files"][0][member] = told
    segment["to"] += 1
    whole["digest"] = metadata_digest(whole["archive"])
    (folder / METADATA).write_text(json.dumps(whole))
    with pytest.raises(CorruptArchive, match="says what can't be"):
        ab.read_archive(folder)
    whole["format"] = 2
    (folder / METADATA).write_text(json.dumps(whole))
    with pytest.raises(FormatTooNew):
        ab.read_archive(folder)


# signatures


def signing_keys(folder: Path, name: str) -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.chmod(0o600)
    return str(private), str(public)


def test_a_signature_tells_whose_archive_it_is(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    private, public = signing_keys(tmp_path, "mine")
    _, strange = signing_keys(tmp_path, "strange")
    folder = tmp_path / "signed"
    store.streams.archive("iot/x", tmp_path / "plain")
    report = store.streams.archive("iot/x", folder, sign=private)
    assert report.signed_by == ab.read_archive(folder, trusted=public).signed_by
    with pytest.raises(CorruptArchive, match="another key"):
        other.streams.import_archive(folder, as_="old/y", trusted=strange)
    with pytest.raises(CorruptArchive, match="not signed"):
        other.streams.import_archive(tmp_path / "plain", as_="old/y", trusted=public)
    other.streams.import_archive(folder, as_="old/y", trusted=public)

    whole = json.loads((folder / METADATA).read_text())
    plain = json.loads((tmp_path / "plain" / METADATA).read_text())
    (folder / METADATA).write_text(json.dumps({**plain, "signature": whole["signature"]}))
    with pytest.raises(CorruptArchive, match="does not fit"):
        ab.read_archive(folder)


def test_key_files_that_are_none_are_told_before_anything_is_written(store: Store, tmp_path: Path) -> None:
    fill(store)
    private, public = signing_keys(tmp_path, "mine")
    Path(public).chmod(0o600)
    open_to_all = tmp_path / "open.pem"
    shutil.copy(private, open_to_all)
    open_to_all.chmod(0o644)
    for key, why in (
        (public, "no private key"),
        (str(open_to_all), "chmod 600"),
        (str(tmp_path / "no"), "can't be read"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            store.streams.archive("iot/x", tmp_path / "archive", sign=key)
    assert not (tmp_path / "archive").exists()


# the digest


def test_a_digest_does_not_depend_on_how_events_are_stored(store: Store, tmp_path: Path) -> None:
    fill(store)
    digest = store.streams.digest("iot/x")
    until = ab.StreamRange("iot/x", end=store.streams.tail("iot/x"))
    store.streams.copy("iot/x", "iot/copy")
    store.compact(force=True)
    assert store.streams.digest("iot/x") == store.streams.digest("iot/copy") == digest
    store.streams.evolve("iot/x", pa.schema([*store.streams.get("iot/x").schema.columns, ("more", pa.int8())]))
    with store.writer("iot/x") as writer:
        writer.write({"device": "d", "at": 1, "n": 1}).result()
    store.streams.scale("iot/x", 1)
    store.compact(force=True)
    assert store.streams.digest("iot/x") != digest
    assert store.streams.digest(until) == digest


VALUES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5) | st.none()), min_size=1, max_size=12)
STEPS = st.lists(st.sampled_from(["write", "scale", "compact", "truncate", "evolve"]), min_size=1, max_size=6)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, values=VALUES)
def test_any_stream_comes_back_from_its_archive(
    steps: list[str], values: list[tuple[str, int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    columns = pa.schema([("k", pa.string()), ("n", pa.int64())])
    with ab.connect("memory://") as here, ab.connect("memory://") as there:
        for each in (here, there):
            each.streams.create_scope("s")
        here.streams.create("s/x", schema=columns, key="k")
        for number, step in enumerate(["write", *steps]):
            match step:
                case "write":
                    with here.writer("s/x") as writer:
                        for key, n in values:
                            writer.write({"k": key, "n": n}).result()
                case "scale":
                    here.streams.scale("s/x", 1 + number % 3)
                case "compact":
                    here.compact(force=True)
                case "truncate":
                    here.streams.truncate("s/x", here.streams.cut_after("s/x", here.streams.head("s/x"), events=2))
                case "evolve":
                    columns = pa.schema([*columns, (f"c{number}", pa.float32())])
                    here.streams.evolve("s/x", columns)
        here.streams.archive("s/x", folder)
        assert list(ab.verify_archive(folder)) == []
        there.streams.import_archive(folder, as_="s/y")
        assert_same(here, "s/x", there, "s/y")


# for ever


@pytest.mark.parametrize("version", ["v1"])
def test_an_archive_of_every_release_is_imported(other: Store, version: str) -> None:
    folder, public = HERE / version, str(HERE / f"{version}.pub.pem")
    kept = json.loads((HERE / f"{version}.json").read_text())
    assert list(ab.verify_archive(folder, trusted=public)) == []
    assert ab.read_archive(folder).digest == kept["digest"]
    other.streams.import_archive(folder, trusted=public)
    other.streams.attach(folder, "attached")
    assert other.streams.scope("iot").tags == {"plant": "7"}
    assert other.streams.get("iot/raw").sealed
    for scope in ("iot", "attached"):
        for name, stream in kept["streams"].items():
            twin = name.replace("iot", scope)
            assert other.streams.digest(twin).value == stream["digest"]
            assert make.told(other, twin) == stream["events"]
    assert sound(other)
