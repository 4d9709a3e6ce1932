"""Stores that are no stores, too new, or damaged: each is one clear error, and nothing in them is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.blobs.local import LocalBlobs
from anabranch.catalog.sqlite.connection import FORMAT
from anabranch.errors import (
    AnabranchError,
    BlobMissing,
    CorruptBlob,
    CorruptCatalog,
    FormatTooNew,
    InvalidArgument,
    StoreNotFound,
)
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests import catalog_file
from tests.store.helpers import bodies_of, sound


@pytest.fixture
def river(tmp_path: Path) -> Path:
    """A store with a stream in a blob and one that is inlined, closed."""
    folder = tmp_path / "river"
    with ab.connect(folder, settings=Settings(inline_bytes_max=1_000), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/small")
        store.streams.create("s/large")
        with store.writer("s/small") as writer:
            writer.write(b"small")
        with store.writer("s/large") as writer:
            for i in range(3):
                writer.write_batch(pa.table({"payload": [b"%d" % i * 2_000]})).result()
    return folder


@pytest.mark.parametrize("create", [False, True])
def test_a_store_in_the_home_folder_of_nobody_is_refused(create: bool) -> None:
    with pytest.raises(InvalidArgument, match="no home folder is known for '~no-such-user/river'"):
        ab.connect("~no-such-user/river", create=create)


def contents(folder: Path) -> dict[str, str]:
    """A digest of each file, but for the locks, which are empty."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refused(folder: Path, error: type[AnabranchError]) -> str:
    """Connecting fails with the error, twice alike, and changes nothing. Returns its text."""
    before = contents(folder)
    texts = set()
    for _ in range(2):
        with pytest.raises(error) as caught:
            ab.connect(folder, create=True)
        texts.add(str(caught.value))
    assert contents(folder) == before
    (text,) = texts
    assert "\n" not in text
    return text


def sql(folder: Path, statement: str) -> None:
    catalog_file.change(folder / "catalog.db", statement)


# no store


def test_where_no_store_is_and_none_is_wanted_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound, match=str(tmp_path / "none")):
        ab.connect(tmp_path / "none", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["s3://bucket/river", "redis://x/y", "memory:/"])
def test_a_place_of_an_unknown_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the address of a store"):
        ab.connect(url, create=True)


@pytest.mark.parametrize("create", [False, True])
def test_an_empty_address_is_no_store_and_an_empty_history_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="got an empty text"):
        ab.connect("", create=create)
    with pytest.raises(InvalidArgument, match="pass their address as blobs="):
        ab.connect("postgresql://nowhere/none", blobs="", create=create)
    assert list(tmp_path.iterdir()) == []
    with ab.connect("./river", blobs="", history="", create=True) as store:
        store.scopes.create("s")
    assert [each.name for each in tmp_path.iterdir()] == ["river"]


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/"])
def test_a_folder_has_several_spellings(river: Path, form: str) -> None:
    with ab.connect(form.format(river), create=False) as store:
        assert bodies_of(store, "s/small") == [b"small"]


# another's, or a newer one's


def test_a_store_of_a_newer_format_is_left_alone(river: Path) -> None:
    sql(river, f"pragma user_version = {FORMAT + 1}")
    text = refused(river, FormatTooNew)
    assert f"format {FORMAT + 1}" in text and "upgrade" in text
    sql(river, f"pragma user_version = {FORMAT}")
    with ab.connect(river, create=True) as store:
        assert sound(store) and bodies_of(store, "s/small") == [b"small"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_foreign_database_is_left_alone(tmp_path: Path, mode: str) -> None:
    sql(tmp_path, f"pragma journal_mode = {mode}")
    sql(tmp_path, "create table theirs (a)")
    sql(tmp_path, "insert into theirs values (1)")
    before = (tmp_path / "catalog.db").read_bytes()
    assert "not an Anabranch catalog" in refused(tmp_path, CorruptCatalog)
    assert (tmp_path / "catalog.db").read_bytes() == before


@pytest.mark.parametrize("garbage", [b"garbage" * 1_000, b"SQLite format 3\x00" + b"\xff" * 4_096, b"x"])
def test_a_catalog_of_garbage_is_corrupt(river: Path, garbage: bytes) -> None:
    for name in ("catalog.db-wal", "catalog.db-shm"):
        (river / name).unlink(missing_ok=True)
    (river / "catalog.db").write_bytes(garbage)
    assert "damaged" in refused(river, CorruptCatalog)


@pytest.mark.parametrize("size", [None, 0])
def test_blobs_without_a_catalog_are_not_taken_for_a_new_store(river: Path, size: int | None) -> None:
    for path in river.glob("catalog.db*"):
        path.unlink()
    if size is not None:
        (river / "catalog.db").write_bytes(bytes(size))
    assert "though there are blobs" in refused(river, CorruptCatalog)


def test_the_blobs_are_closed_where_the_catalog_can_not_be_opened(river: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Watched(LocalBlobs):
        def close(self) -> None:
            closed.append(self)
            super().close()

    (river / "catalog.db").write_bytes(b"x")
    monkeypatch.setattr("anabranch.store.open.open_tiers", lambda *_, **__: Watched(river / "blobs", Runtime()))
    with pytest.raises(CorruptCatalog):
        ab.connect(river)
    assert len(closed) == 1


def test_a_catalog_cut_short_is_corrupt_or_found_so_by_check(river: Path) -> None:
    file = river / "catalog.db"
    size = file.stat().st_size
    assert size > 8_192
    with file.open("r+b") as opened:
        opened.truncate(size // 2)
    try:
        with ab.connect(river, create=True) as store:
            told = any("malformed" in str(finding) or "damaged" in str(finding) for finding in store.check())
    except CorruptCatalog:
        told = True
    assert told


def test_a_catalog_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(AnabranchError):
        ab.connect(tmp_path, create=True)


# damaged blobs


def blobs_of(river: Path) -> list[Path]:
    return sorted((river / "blobs").rglob("*.arrow"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: dict[str, tuple[Callable[[Path], None], type[AnabranchError]]] = {
    "a flipped bit": (flip, CorruptBlob),
    "a lost end": (shorten, CorruptBlob),
    "no bytes at all": (empty, CorruptBlob),
    "no file": (Path.unlink, BlobMissing),
}


@pytest.fixture(params=DAMAGE)
def damaged(request: pytest.FixtureRequest, river: Path) -> Iterator[tuple[ab.Store, str, type[AnabranchError]]]:
    """A store the second of whose three blobs is damaged: the store, the blob's key, and the error of reading it."""
    damage, error = DAMAGE[request.param]
    path = blobs_of(river)[1]
    damage(path)
    with ab.connect(river, create=True) as store:
        yield store, str(path.relative_to(river / "blobs")), error


def test_a_damaged_blob_is_an_error_that_names_it_and_never_wrong_rows(
    damaged: tuple[ab.Store, str, type[AnabranchError]],
) -> None:
    store, key, error = damaged
    for _ in range(2):
        found: list[bytes] = []
        with pytest.raises(error, match=key), store.reader("s/large") as reader:
            found.extend(event.body for event in reader)
        assert found in ([], [b"0" * 2_000])
    with pytest.raises(error), store.reader("s/large") as reader:
        list(reader.batches())


def test_what_lies_elsewhere_is_untouched_by_a_damaged_blob(
    damaged: tuple[ab.Store, str, type[AnabranchError]],
) -> None:
    store, _, error = damaged
    assert bodies_of(store, "s/small") == [b"small"]
    segment = store.streams.view("s/large").current[0].id
    stream = store.streams.get("s/large").id
    for offset in (0, 2):
        assert store.fetch(ab.EventPointer(stream, segment, offset)).body == b"%d" % offset * 2_000
    with pytest.raises(error):
        store.fetch(ab.EventPointer(stream, segment, 1))
    with store.writer("s/large") as writer:
        assert writer.write(b"new").result().offset == 3


def test_check_names_the_damaged_blob_and_its_stream(damaged: tuple[ab.Store, str, type[AnabranchError]]) -> None:
    store, key, _ = damaged
    findings = [str(finding) for finding in store.check()]
    assert findings
    assert all(key in finding and "s/large" in finding for finding in findings)


def test_compaction_does_not_hide_a_damaged_blob(damaged: tuple[ab.Store, str, type[AnabranchError]]) -> None:
    store, key, error = damaged
    with suppress(error):
        store.compact(force=True)
    with pytest.raises(error, match=key), store.reader("s/large") as reader:
        list(reader)
    assert list(store.check())


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("a\n1\n")
    with pytest.raises(InvalidArgument, match=r"a store is a folder; .*m\.csv is a file"):
        ab.connect(tmp_path / "m.csv", create=True)
    assert (tmp_path / "m.csv").read_text() == "a\n1\n"
