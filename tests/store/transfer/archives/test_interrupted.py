"""Archives that were broken off, asked for again, or made while the stream changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    NotFound,
    Truncated,
)
from anabranch.store import Store
from anabranch.transfer.archives.export import write_file
from anabranch.transfer.archives.format import METADATA
from tests.store.transfer.archives.kit import (
    assert_same,
    files_of,
    fill,
)


def test_an_interrupted_archive_is_none_and_goes_on_when_asked_again(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    folder = tmp_path / "archive"
    store.archives.create("iot/x", folder)
    names = [name for name in files_of(folder) if name != METADATA]
    (folder / METADATA).unlink()
    with pytest.raises(NotFound, match="never finished"):
        other.archives.import_(folder, as_="old/y")
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
    report = store.archives.create("iot/x", folder)
    assert (report.files, report.files_there) == (len(names), len(names) - 4)
    assert list(ab.verify_archive(folder)) == []
    other.archives.import_(folder, as_="old/y")
    assert_same(store, "iot/x", other, "old/y")


def test_files_of_an_earlier_attempt_that_no_longer_fit_are_removed(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    (tmp_path / "archive" / METADATA).unlink()
    store.streams.truncate("iot/x", store.cuts.at("iot/x", 30_000, by="event"))
    store.archives.create("iot/x", tmp_path / "archive")
    assert list(ab.verify_archive(tmp_path / "archive")) == []


def test_a_metadata_file_that_was_cut_off_is_as_good_as_none(store: Store, tmp_path: Path) -> None:
    fill(store)
    folder = tmp_path / "archive"
    report = store.archives.create("iot/x", folder)
    whole = (folder / METADATA).read_bytes()
    (folder / METADATA).write_bytes(whole[: len(whole) // 2])
    assert store.archives.create("iot/x", folder).files_there == report.files
    assert list(ab.verify_archive(folder)) == []


def test_the_same_request_finds_its_archive_and_any_other_is_refused(store: Store, tmp_path: Path) -> None:
    fill(store)
    report = store.archives.create("iot/x", tmp_path / "archive", request="r")
    assert store.archives.create("iot/x", tmp_path / "archive", request="r") == report
    for request in (None, "another"):
        with pytest.raises(AlreadyExists, match="already"):
            store.archives.create("iot/x", tmp_path / "archive", request=request)


def test_what_a_place_holds_besides_is_never_touched(store: Store, tmp_path: Path) -> None:
    fill(store)
    fill(store, "iot/y")
    folder = tmp_path / "archive"
    store.archives.create("iot/y", folder)
    (folder / METADATA).unlink()
    before = files_of(folder)
    with pytest.raises(InvalidArgument, match="is not empty"):
        store.archives.create("iot/x", folder)
    assert files_of(folder) == before
    with pytest.raises(ab.errors.StreamNotFound):
        store.archives.create("iot/none", tmp_path / "none")
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
        store.archives.create("iot/x", tmp_path / "archive")


def test_a_stream_that_is_truncated_or_rewritten_meanwhile(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    digest = store.archives.digest("iot/x")
    from anabranch.transfer.jobs import archive

    acts: list[Callable[[], object]] = [
        lambda: (store.compact(force=True), store.streams.scale("iot/x", 1), store.streams.rename("iot/x", "iot/z")),
        lambda: store.streams.truncate("iot/z", store.cuts.tail("iot/z")),
    ]

    def write(*arguments: Any) -> Any:
        if acts:
            acts.pop(0)()
        return write_file(*arguments)

    monkeypatch.setattr(archive, "write_file", write)
    with pytest.raises(Truncated):
        store.archives.create("iot/x", tmp_path / "lost")
    assert acts == []
    fill(store, "iot/w")
    expected = store.archives.digest("iot/w")
    acts += [lambda: store.compact(force=True), lambda: store.streams.scale("iot/w", 1)]
    store.archives.create("iot/w", tmp_path / "whole")
    (archived,) = ab.read_archive(tmp_path / "whole").archive.streams
    assert archived.digest == expected != digest
