"""What is wrong with an archive is named, and nothing of it imported; a signature tells whose it is."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import (
    CorruptArchive,
    FormatTooNew,
    InvalidArgument,
    NotFound,
)
from anabranch.store import Store
from anabranch.transfer.archives.format import METADATA, Archive, metadata_digest
from tests.store.helpers import sound
from tests.store.transfer.archives.kit import (
    damaged,
    files_of,
    fill,
    signing_keys,
)

# damage


@pytest.mark.parametrize("how", ["missing", "short", "long", "flipped", "extra"])
def test_every_damage_of_every_file_is_named_and_nothing_is_imported(
    store: Store, other: Store, tmp_path: Path, how: str
) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    chance = random.Random(7)
    for name in files_of(tmp_path / "archive"):
        folder = tmp_path / "bad"
        shutil.copytree(tmp_path / "archive", folder)
        told = damaged(folder, name, how, chance) or name
        before = [info.key for info in other.blobs.list()]
        if (name, how) == (METADATA, "missing"):
            with pytest.raises(NotFound, match="never finished"):
                other.archives.import_(folder, as_="old/y")
        else:
            with pytest.raises(CorruptArchive) as refused:
                other.archives.import_(folder, as_="old/y")
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
    store.archives.create("iot/x", folder)
    whole = (folder / METADATA).read_bytes()
    for place in range(0, len(whole), 37):
        changed = bytearray(whole)
        changed[place] ^= 1
        (folder / METADATA).write_bytes(changed)
        with pytest.raises(CorruptArchive, match=METADATA):
            ab.read_archive(folder)


def test_bits_of_pages_are_noticed_also_where_files_are_attached(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    store.archives.create("iot/x", tmp_path / "archive")
    name = next(name for name in files_of(tmp_path / "archive") if name != METADATA)
    other.archives.attach(tmp_path / "archive", "old/x")
    damaged(tmp_path / "archive", name, "flipped", random.Random(1))
    with pytest.raises(ab.errors.CorruptBlob, match=name), other.reader("old/x") as reader:
        list(reader)
    assert any(name in str(finding) for finding in other.check())


def test_metadata_that_lies_is_found_out_by_the_events(store: Store, tmp_path: Path) -> None:
    """Sums of files and metadata may be made to fit by whoever changes both; the events' digest is worked out anew."""
    fill(store)
    folder = tmp_path / "archive"
    store.archives.create("iot/x", folder)
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
        with pytest.raises(CorruptArchive, match="is inconsistent"):
            ab.read_archive(folder)
        segment["files"][0][member] = told
    segment["to"] += 1
    whole["digest"] = metadata_digest(whole["archive"])
    (folder / METADATA).write_text(json.dumps(whole))
    with pytest.raises(CorruptArchive, match="is inconsistent"):
        ab.read_archive(folder)
    whole["format"] = 2
    (folder / METADATA).write_text(json.dumps(whole))
    with pytest.raises(FormatTooNew):
        ab.read_archive(folder)


# signatures


def test_a_signature_shows_whose_archive_it_is(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    private, public = signing_keys(tmp_path, "mine")
    _, strange = signing_keys(tmp_path, "strange")
    folder = tmp_path / "signed"
    store.archives.create("iot/x", tmp_path / "plain")
    report = store.archives.create("iot/x", folder, sign=private)
    assert report.signed_by == ab.read_archive(folder, trusted=public).signed_by
    with pytest.raises(CorruptArchive, match="another key"):
        other.archives.import_(folder, as_="old/y", trusted=strange)
    with pytest.raises(CorruptArchive, match="not signed"):
        other.archives.import_(tmp_path / "plain", as_="old/y", trusted=public)
    other.archives.import_(folder, as_="old/y", trusted=public)

    whole = json.loads((folder / METADATA).read_text())
    plain = json.loads((tmp_path / "plain" / METADATA).read_text())
    (folder / METADATA).write_text(json.dumps({**plain, "signature": whole["signature"]}))
    with pytest.raises(CorruptArchive, match="does not match"):
        ab.read_archive(folder)


def test_key_files_that_are_none_are_reported_before_anything_is_written(store: Store, tmp_path: Path) -> None:
    fill(store)
    private, public = signing_keys(tmp_path, "mine")
    Path(public).chmod(0o600)
    open_to_all = tmp_path / "open.pem"
    shutil.copy(private, open_to_all)
    open_to_all.chmod(0o644)
    for key, why in (
        (public, "is not a private key"),
        (str(open_to_all), "chmod 600"),
        (str(tmp_path / "no"), "can't be read"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            store.archives.create("iot/x", tmp_path / "archive", sign=key)
    assert not (tmp_path / "archive").exists()
