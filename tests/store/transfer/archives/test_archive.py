"""Archives: exported, imported anywhere, read by anybody; and the digest that tells what is the same."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    CorruptArchive,
    InvalidArgument,
    InvalidPointer,
    ScopeNotFound,
    StreamExists,
)
from anabranch.store import Store
from anabranch.transfer.archives.digest import BLOCK_ROWS
from anabranch.transfer.archives.format import METADATA
from tests import s3_server
from tests.archives import make
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import sound
from tests.store.transfer.archives.kit import (
    SCHEMA,
    assert_same,
    damaged,
    files_of,
    fill,
    rows,
    table,
)

HERE = Path(make.__file__).parent


# what is imported is what was archived


def test_an_archive_is_imported_as_it_was_exported(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    report = store.archives.create("iot/x", tmp_path / "archive")
    assert list(ab.verify_archive(tmp_path / "archive")) == []
    found = ab.read_archive(tmp_path / "archive")
    assert (found.digest, found.archive.events, found.archive.size) == (report.digest, report.events, report.bytes)
    assert found.archive.streams[0].digest == store.archives.digest("iot/x")

    made = other.archives.import_(tmp_path / "archive", as_="old/y")
    assert_same(store, "iot/x", other, "old/y")
    with store.reader("iot/x") as reader:
        event = next(iter(reader))
    assert other.fetch(made.pointer(event.pointer)).body == event.body
    assert made.cut(store.cuts.head("iot/x")) == other.cuts.head("old/y")
    assert other.cuts.at("old/y", 5_000, by="event").offsets == store.cuts.at("iot/x", 5_000, by="event").offsets
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
        store.archives.create(name, tmp_path / name)
        other.archives.import_(tmp_path / name, as_=name.replace("iot", "old"))
        assert_same(store, name, other, name.replace("iot", "old"))


def test_a_range_is_imported_with_its_offsets_and_open(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    cuts = [store.cuts.at("iot/x", 1_000 * n, by="event") for n in (20, 90)]
    part = ab.StreamRange("iot/x", *cuts)
    store.streams.seal("iot/x")
    store.archives.create(part, tmp_path / "archive")
    store.streams.copy(part, "iot/part")
    other.archives.import_(tmp_path / "archive", as_="old/part")
    assert_same(store, "iot/part", other, "old/part")
    assert not other.streams.get("old/part").sealed
    assert other.archives.digest("old/part") == store.archives.digest(part)


def test_a_scope_is_archived_as_of_one_moment_and_imported_stream_by_stream(
    store: Store, other: Store, tmp_path: Path
) -> None:
    fill(store)
    fill(store, "iot/y", 20)
    store.streams.create("iot/_own")
    with store.ephemeral.create("iot/gone"):
        report = store.archives.create_scope("iot", tmp_path / "archive")
        everything = store.archives.create_scope("iot", tmp_path / "all", internal=True, ephemeral=True)
    assert (report.streams, everything.streams) == (2, 4)
    bad = tmp_path / "bad"
    shutil.copytree(tmp_path / "archive", bad)
    damaged(bad, next(name for name in files_of(bad) if name != METADATA), "flipped", random.Random(3))
    with pytest.raises(CorruptArchive):
        other.archives.import_(bad, window=1)  # or else the second stream may be whole before the first fails
    with pytest.raises(ScopeNotFound):
        other.scopes.get("iot")
    other.scopes.create("there")
    other.streams.create("there/y")
    with pytest.raises(StreamExists):
        other.archives.import_(tmp_path / "archive", as_="there")
    assert [str(info.name) for info in other.streams.list("there")] == ["there/y"]
    other.streams.delete("there/y")
    made = other.archives.import_(tmp_path / "archive", as_="there")
    assert [str(name) for name, _ in made.streams] == ["there/x", "there/y"]
    for name in ("x", "y"):
        assert_same(store, f"iot/{name}", other, f"there/{name}")
    assert other.archives.import_(tmp_path / "archive").streams[0][0] == ab.StreamName("iot", "x")


def test_aliases_come_along_under_their_own_scope_and_retention_if_asked(
    store: Store, other: Store, tmp_path: Path
) -> None:
    fill(store)
    store.aliases.add("iot/x", "iot/also")
    store.policies.retention("iot/x", ab.RetainFor("1000d"))
    store.archives.create_scope("iot", tmp_path / "archive")
    other.archives.import_(tmp_path / "archive", as_="one")
    assert other.streams.get("one/also").name == ab.StreamName("one", "x")
    # That of a stream, as a copy of it, has none.
    store.archives.create("iot/x", tmp_path / "alone")
    other.scopes.create("alone")
    other.archives.import_(tmp_path / "alone", as_="alone/x")
    other.archives.attach(tmp_path / "alone", as_="alone/attached")
    assert [*other.aliases.list("alone")] == []
    other.archives.import_(tmp_path / "archive", as_="two", retention=True)
    from anabranch.streams.retention.stored import policy_of

    with other.catalog.reading() as txn:
        assert policy_of(txn, other.streams.get("one/x").id) is None
        assert policy_of(txn, other.streams.get("two/x").id) == ab.RetainFor("1000d")


def test_asked_again_an_import_changes_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    first = other.archives.import_(tmp_path / "archive", as_="old/y", request="r")
    blobs = [info.key for info in other.blobs.list()]
    assert other.archives.import_(tmp_path / "archive", as_="old/y", request="r") == first
    assert other.archives.import_(tmp_path / "archive", as_="old/y") == first
    assert [info.key for info in other.blobs.list()] == blobs
    store.archives.create("iot/x", tmp_path / "second")
    with pytest.raises(StreamExists):
        other.archives.import_(tmp_path / "second", as_="old/y")
    with pytest.raises(ScopeNotFound):
        other.archives.import_(tmp_path / "archive", as_="nowhere/y")


# any other kind of store


@pytest.mark.parametrize("target", ["postgres+s3", "encrypted"])
def test_an_archive_goes_from_any_store_to_any_other(store: Store, tmp_path: Path, target: str) -> None:
    fill(store)
    url = s3_server.fresh_url() if "s3" in target else str(tmp_path / "archive")
    store.archives.create("iot/x", url, request="r")
    assert store.archives.create("iot/x", url, request="r").events == ab.read_archive(url).archive.events
    assert list(ab.verify_archive(url)) == []
    options: dict[str, Any] = (
        {"keys": key_file(tmp_path)} if target == "encrypted" else {"blobs": s3_server.fresh_url()}
    )
    place = tmp_path / "third" if target == "encrypted" else fresh_url()
    with ab.connect(place, **options, create=True) as third:
        third.scopes.create("old")
        third.archives.import_(url, as_="old/y")
        assert_same(store, "iot/x", third, "old/y")
        if target == "encrypted":
            with pytest.raises(InvalidArgument, match="--in-the-clear"):
                third.archives.create("old/y", tmp_path / "back")
            assert not (tmp_path / "back").exists()
            third.archives.create("old/y", tmp_path / "back", in_the_clear=True)
            store.archives.import_(tmp_path / "back", as_="iot/back")
            assert store.archives.digest("iot/back") == store.archives.digest("iot/x")
            with pytest.raises(InvalidArgument, match="encrypted"):
                third.archives.attach(url, "old/z")
        else:
            third.archives.attach(url, "old/z")
            assert_same(store, "iot/x", third, "old/z")
    if target != "encrypted":
        drop(str(place))


def key_file(folder: Path) -> str:
    from anabranch.runtime.ids import SystemIds
    from anabranch.runtime.keys import new_key_line

    file = folder / "keys"
    file.write_text(new_key_line("k", SystemIds()))
    file.chmod(0o600)
    return f"file:{file}"


# no archive lies in another one


def test_an_archive_inside_another_one_or_around_one_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    outer = tmp_path / "outer"
    store.archives.create("iot/x", outer)
    (folder,) = (path for path in outer.iterdir() if path.is_dir())
    monkeypatch.chdir(outer)
    (tmp_path / "link").symlink_to(outer)
    for url in (outer / "sub", outer / "a/b", folder, outer.as_uri() + "/sub", "sub", tmp_path / "link" / "sub"):
        with pytest.raises(InvalidArgument, match=f"is inside the archive {outer}; give a folder"):
            store.archives.create("iot/x", url)
        with pytest.raises(InvalidArgument, match="is inside the archive"):
            store.archives.create_scope("iot", url)
    assert not (outer / "sub").exists()
    assert list(ab.verify_archive(outer)) == []

    store.archives.create("iot/x", tmp_path / "around" / folder.name)
    with pytest.raises(InvalidArgument, match=f"has an archive inside it, in {folder.name}; give an empty folder"):
        store.archives.create("iot/x", tmp_path / "around")
    assert list(ab.verify_archive(tmp_path / "around" / folder.name)) == []


@pytest.mark.parametrize("url", ["~nobody-has-this-name/x", "file:~nobody-has-this-name/x", "file://[/x", "a\0b"])
def test_an_archive_at_what_can_not_be_a_folder_is_refused(store: Store, url: str) -> None:
    fill(store)
    with pytest.raises(InvalidArgument):
        store.archives.create("iot/x", url)


def test_a_file_of_the_name_that_is_no_archive_is_no_obstacle(store: Store, tmp_path: Path) -> None:
    fill(store)
    for text in ("", "[]", '{"pages": 3}', "{", "\udcff"):
        (tmp_path / METADATA).write_bytes(text.encode("utf-8", "surrogateescape"))
        store.archives.create("iot/x", tmp_path / f"sub{len(text)}{text[:1].isascii()}")


def test_archives_in_a_bucket_are_kept_apart_too(store: Store) -> None:
    fill(store)
    base, _, options = s3_server.fresh_url().partition("?")
    store.archives.create("iot/x", f"{base}/outer?{options}")
    with pytest.raises(InvalidArgument, match=f"{base}/outer/a/b.* is inside the archive {base}/outer"):
        store.archives.create("iot/x", f"{base}/outer/a/b?{options}")
    with pytest.raises(InvalidArgument, match="has an archive inside it, in outer"):
        store.archives.create("iot/x", f"{base}?{options}")
    store.archives.create("iot/x", f"{base}/outer2?{options}")


# the files are plain Parquet


def test_duckdb_and_pyarrow_read_the_files_without_this_project(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
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
    store.archives.create(
        "iot/long", tmp_path / "archive", progress=lambda what, done, total: heard.append((done, total))
    )
    assert heard == sorted(heard)
    assert heard[-1] == (42_000, 42_000)
    (stream,) = ab.read_archive(tmp_path / "archive").archive.streams
    assert stream.digest == store.archives.digest("iot/long")
    for segment in stream.segments:
        edges = [file.stop for file in segment.files]
        assert len(edges) > 2
        assert all(edge % BLOCK_ROWS == 0 for edge in edges[:-1])
        assert all(file.logical < 2 * 100 * limits.KIB for file in segment.files)
    assert list(ab.verify_archive(tmp_path / "archive")) == []
    other.archives.import_(tmp_path / "archive", as_="old/long")
    assert_same(store, "iot/long", other, "old/long")

    # Of an archive that was cut short, whole files are kept, also where the stream has grown.
    (tmp_path / "archive" / METADATA).unlink()
    with store.writer("iot/long") as writer:
        writer.write_batch(rows(42_000, 100)).result()
    report = store.archives.create("iot/long", tmp_path / "archive")
    assert report.files_there == sum(len(segment.files) - 1 for segment in stream.segments)
    assert list(ab.verify_archive(tmp_path / "archive")) == []


# the digest


def test_a_digest_does_not_depend_on_how_events_are_stored(store: Store, tmp_path: Path) -> None:
    fill(store)
    digest = store.archives.digest("iot/x")
    until = ab.StreamRange("iot/x", end=store.cuts.tail("iot/x"))
    store.streams.copy("iot/x", "iot/copy")
    store.compact(force=True)
    assert store.archives.digest("iot/x") == store.archives.digest("iot/copy") == digest
    store.streams.evolve("iot/x", pa.schema([*store.streams.get("iot/x").schema.columns, ("more", pa.int8())]))
    with store.writer("iot/x") as writer:
        writer.write({"device": "d", "at": 1, "n": 1}).result()
    store.streams.scale("iot/x", 1)
    store.compact(force=True)
    assert store.archives.digest("iot/x") != digest
    assert store.archives.digest(until) == digest


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
            each.scopes.create("s")
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
                    here.streams.truncate("s/x", here.cuts.after("s/x", here.cuts.head("s/x"), events=2))
                case "evolve":
                    columns = pa.schema([*columns, (f"c{number}", pa.float32())])
                    here.streams.evolve("s/x", columns)
        here.archives.create("s/x", folder)
        assert list(ab.verify_archive(folder)) == []
        there.archives.import_(folder, as_="s/y")
        assert_same(here, "s/x", there, "s/y")


# for ever


@pytest.mark.parametrize("version", ["v1"])
def test_an_archive_of_every_release_is_imported(other: Store, version: str) -> None:
    folder, public = HERE / version, str(HERE / f"{version}.pub.pem")
    kept = json.loads((HERE / f"{version}.json").read_text())
    assert list(ab.verify_archive(folder, trusted=public)) == []
    assert ab.read_archive(folder).digest == kept["digest"]
    other.archives.import_(folder, trusted=public)
    other.archives.attach(folder, "attached")
    assert other.scopes.get("iot").tags == {"plant": "7"}
    assert other.streams.get("iot/raw").sealed
    for scope in ("iot", "attached"):
        for name, stream in kept["streams"].items():
            twin = name.replace("iot", scope)
            assert other.archives.digest(twin).value == stream["digest"]
            assert make.told(other, twin) == stream["events"]
    assert sound(other)
