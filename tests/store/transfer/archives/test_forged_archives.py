"""Archives whose metadata somebody wrote: its digest fits, and what it says can't be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import CorruptArchive
from anabranch.store import Store
from anabranch.transfer.archives.format import METADATA, metadata_digest
from tests.cli.kit import environment
from tests.store.helpers import sound
from tests.store.transfer.archives.kit import fill


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Of a scope, whose stream has an alias and a policy."""
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("iot")
        fill(store)
        store.aliases.add("iot/x", "iot/y")
        store.policies.retention("iot/x", ab.RetainFor("7d", bytes_min="1kB"))
        store.archives.create_scope("iot", tmp_path / "archive")
    return tmp_path / "archive"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "other", create=True) as opened:
        yield opened


def forge(archive: Path, place: tuple[str | int, ...], lie: Any) -> None:
    """Let the metadata of the one stream tell `lie` at a place. A segment's and a file's number 0 is the first."""
    whole = json.loads((archive / METADATA).read_text())
    told: Any = whole["archive"]["streams"][0]
    for name in place[:-1]:
        told = told[name]
    told[place[-1]] = lie
    whole["digest"] = metadata_digest(whole["archive"])
    (archive / METADATA).write_text(json.dumps(whole))


_FILE = ("segments", 0, "files", 0)
_GARBAGE = "9" * 20  # base64 of what is no schema


@pytest.mark.parametrize(
    ("place", "lie"),
    [
        ((*_FILE, "file"), "../../other/catalog.db"),
        ((*_FILE, "event_times"), [5, 1]),
        ((*_FILE, "event_times"), [5, None]),
        ((*_FILE, "event_times"), [0, 1 << 70]),
        ((*_FILE, "appended"), [-1, -1]),
        ((*_FILE, "xxh3_64"), _GARBAGE),
        ((*_FILE, "xxh3_64"), "0"),
        ((*_FILE, "logical_bytes"), (1 << 63) - 1),
        ((*_FILE, "bytes"), float("inf")),
        (("segments", 0, "retired"), 1 << 70),
        (("segments", 1, "segment"), "0.0"),
        (("segments", 1, "segment"), f"0.{1 << 32}"),
        (("epoch",), 1 << 31),
        (("id",), f"{1 << 63:x}"),
        (("created_at",), -1),
        (("key",), "nowhere"),
        (("schemas", 0, "arrow"), _GARBAGE),
        (("more", "retention", "age_min_us"), "long"),
        (("more", "retention", "size_min"), -1),
        (("more", "retention"), []),
        (("more", "aliases"), ["nowhere"]),
        (("more", "aliases"), [f"iot/{n}" for n in range(65)]),
    ],
)
def test_metadata_that_says_what_cannot_be_is_refused_and_leaves_nothing(
    archive: Path, other: Store, place: tuple[str | int, ...], lie: Any
) -> None:
    forge(archive, place, lie)
    with pytest.raises(CorruptArchive, match=METADATA):
        other.archives.import_(archive, as_="old", retention=True)
    assert [flaw.file for flaw in ab.verify_archive(archive)][:1] == [METADATA]
    assert list(other.streams.list()) == []
    assert sound(other)


@pytest.mark.slow
def test_it_is_refused_where_python_leaves_assertions_out(archive: Path) -> None:
    forge(archive, (*_FILE, "file"), "../../other/catalog.db")
    code = "import anabranch, sys; anabranch.read_archive(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-O", "-c", code, archive], env=environment(), capture_output=True, text=True, check=False
    )
    assert "CorruptArchive" in done.stderr
