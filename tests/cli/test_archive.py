"""`anabranch archive`, `import`, `attach` and `digest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.blobs.local import LocalBlobs
from anabranch.errors import DiskFull
from tests.cli.kit import Line
from tests.store.transfer.archives.kit import signing_keys


def test_a_stream_goes_out_and_comes_back(sensors: Line, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    said = sensors("archive", "create", "iot/sensors", place)
    assert "1 stream with 3 events archived to" in said.err
    assert "whole: 1 file" in sensors("archive", "verify", place).err
    assert sensors("archive", "verify", place, "--bytes-only", "--json").json["flaws"] == []
    shown = sensors("archive", "show", place)
    assert "iot/sensors" in shown.out and "device, at, celsius" in shown.out
    assert [line.partition("  ")[0] for line in shown.out.splitlines()[:3]] == ["archive", "made", "digest"]
    told = sensors("archive", "show", place, "--json").json
    assert told["streams"][0]["events"] == 3

    digest = sensors("digest", "iot/sensors").out.strip()
    assert told["streams"][0]["digest"] == digest
    assert "'iot/back'" in sensors("import", place, "iot/back").err
    made = sensors("import", place, "iot/back", "--json").json
    assert made["streams"][0]["name"] == "iot/back"
    assert sensors("digest", "iot/back", "--json").json["digest"] == digest
    sensors("attach", place, "iot/there")
    assert sensors("read", "iot/there", "--json").out == sensors("read", "iot/sensors", "--json").out
    assert sensors("check").code == 0


def test_a_range_and_a_scope_are_archived(sensors: Line, tmp_path: Path) -> None:
    report = sensors("archive", "create", "iot/sensors[head,tail]", tmp_path / "range", "--json").json
    assert (report["events"], report["files"], report["signed_by"]) == (3, 1, None)
    assert "2 streams" in sensors("archive", "create", "iot", tmp_path / "scope").err
    sensors("import", tmp_path / "scope", "copy")
    assert [each["name"] for each in sensors("stream", "list", "copy", "--json").json] == ["copy/raw", "copy/sensors"]
    assert "whole" in sensors.refused("archive", "create", "iot", tmp_path / "no", "--from", "head")
    sensors("scope", "create", "empty")
    sensors("archive", "create", "empty", tmp_path / "empty")
    assert "nothing attached: the scope was empty" in sensors("attach", tmp_path / "empty", "there").err


def test_damage_is_named_on_a_line_and_by_the_exit_code(sensors: Line, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    sensors("archive", "create", "iot/sensors", place)
    (file,) = place.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    (place / "stray").touch()
    found = sensors("archive", "verify", place, code=1)
    assert [line.split()[0] for line in found.out.splitlines()] == [file.relative_to(place).as_posix(), "stray"]
    assert "2 things wrong" in found.err
    assert file.name in sensors.refused("import", place, "iot/back")
    assert "no archive found in" in sensors.refused("archive", "verify", tmp_path)
    assert f"folder {tmp_path / 'none'} not found" in sensors.refused("archive", "show", tmp_path / "none")
    assert f"folder {tmp_path / 'none'} not found" in sensors.refused("import", tmp_path / "none", "iot/back")
    metadata = place / "archive.json"
    for text, why in (
        (metadata.read_text().replace("sensors", "tensors"), "was modified"),
        ("[]", "is not the metadata"),
    ):
        metadata.write_text(text)
        found = sensors("archive", "verify", place, code=1)
        assert found.out.startswith(f"archive.json {why}") and "1 thing wrong" in found.err
        told = sensors("archive", "verify", place, "--json", code=1).json
        assert [flaw["file"] for flaw in told["flaws"]] == ["archive.json"]


def test_any_parquet_file_becomes_a_stream(sensors: Line, tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["a", "b"], "n": [1, 2]}), tmp_path / "some.parquet")
    assert "'iot/some'" in sensors("attach", tmp_path / "some.parquet", "iot/some", "--key", "name").err
    assert len(sensors("read", "iot/some", "--json").rows) == 2
    assert "is not a column" in sensors.refused("attach", tmp_path, "iot/other", "--key", "nothing")


def test_a_signed_archive_is_trusted_by_its_key_alone(sensors: Line, tmp_path: Path) -> None:
    private, public = signing_keys(tmp_path, "mine")
    _, strange = signing_keys(tmp_path, "strange")
    place = tmp_path / "archive"
    assert ", signed" in sensors("archive", "create", "iot/sensors", place, "--sign", private).err
    assert any(line.startswith("signed   by") for line in sensors("archive", "show", place).out.splitlines())
    assert "whole" in sensors("archive", "verify", place, "--trusted", public).err
    assert "another key" in sensors.refused("import", place, "iot/back", "--trusted", strange)
    assert "another key" in sensors.refused("attach", place, "iot/there", "--trusted", strange)
    assert "another key" in sensors("archive", "verify", place, "--trusted", strange, code=1).out
    sensors("import", place, "iot/back", "--trusted", public)


def test_an_encrypted_store_is_archived_in_the_clear_only_if_that_is_said(line: Line, tmp_path: Path) -> None:
    keys = ("--keys", f"file:{tmp_path / 'keys'}")
    line("key", "new", tmp_path / "keys")
    line(*keys, "scope", "create", "iot")
    line(*keys, "stream", "create", "iot/raw")
    line(*keys, "write", "iot/raw", "--create", stdin=b"secret\n")
    assert "--in-the-clear" in line.refused(*keys, "archive", "create", "iot/raw", tmp_path / "archive")
    line(*keys, "archive", "create", "iot/raw", tmp_path / "archive", "--in-the-clear")
    assert "whole" in line("archive", "verify", tmp_path / "archive").err


def test_jobs_of_archives_and_imports_are_listed_shown_and_gone_on_with(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the metadata can't be written, the job fails; once it can, any process goes on with it."""
    place, real = tmp_path / "archive", LocalBlobs.put
    left = [2]

    def put(blobs: LocalBlobs, key: str, chunks: Any) -> None:
        if blobs._root in (place, tmp_path / "raw") or key.startswith("history/"):
            left[0] -= 1
            if left[0] == 0:
                raise DiskFull("the disk is full")
        real(blobs, key, chunks)

    monkeypatch.setattr(LocalBlobs, "put", put)
    with ab.connect(sensors.store, create=True) as store, pytest.raises(DiskFull):
        store.archives.create("iot/sensors", place)
    (row,) = sensors("job", "list", "--json").json
    said = (row["verb"], row["state"], row["sources"], row["target"], row["streams"], row["events"])
    assert said == ("archive", "failed", ["iot/sensors"], str(place), 1, 3)
    assert "DiskFull" in sensors("job", "show", row["job"], "--ranges").out
    refused = sensors.refused("archive", "create", "iot/raw", place)
    assert f"anabranch job resume {row['job']}" in refused and f"anabranch job cancel {row['job']}" in refused
    done = sensors("job", "resume", row["job"]).err
    assert f"is done: 3 events of 3 of 'iot/sensors' are in '{place}'" in done
    assert "whole: 1 file" in sensors("archive", "verify", place).err
    assert sensors("job", "wait", row["job"], "--json").json["state"] == "done"

    left[0] = 1
    with ab.connect(sensors.store, create=True) as store, pytest.raises(DiskFull):
        store.archives.import_(place, as_="iot/back")
    told = sensors("import", place, "iot/back", "--window", "2", "--json").json
    assert told["job"] == sensors("job", "list", "--json").json[1]["job"]
    assert sensors("digest", "iot/back").out == sensors("digest", "iot/sensors").out
    left[0] = 2
    with ab.connect(sensors.store, create=True) as store, pytest.raises(DiskFull):
        store.archives.create("iot/sensors", tmp_path / "raw")
    (*_, row) = sensors("job", "list", "--json").json
    assert sensors("job", "cancel", row["job"], "--json").json["state"] == "cancelled"
    assert not [path for path in (tmp_path / "raw").rglob("*") if path.is_file()]
