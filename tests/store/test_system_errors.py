"""What the operating system refuses is told as what it is; and folders that last."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.blobs.local import LocalBlobs
from anabranch.errors import DiskFull, ReadOnlyStore, StoreUnavailable
from anabranch.errors.system import unavailable
from anabranch.runtime import folders
from anabranch.runtime.ports import Runtime
from anabranch.store import storage
from tests.waiting import PATIENCE_S

_TOO_MANY_FILES = """
import os, resource, sys
import anabranch as ab
from anabranch.errors import StoreUnavailable
with ab.connect(sys.argv[1], create=True) as store:  # loads all that opening needs
    store.scopes.create("s")
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
tried = 0
while held:
    try:
        store = ab.connect(sys.argv[1], create=False)
    except StoreUnavailable as exc:
        assert type(exc) is StoreUnavailable, repr(exc)
        assert "Too many open files" in str(exc) and "ulimit -n" in str(exc), str(exc)
        tried += 1
        os.close(held.pop())  # one file more each time: each of the places where a file is opened is met
    else:
        store.close()
        break
print(tried)
"""


def test_too_many_open_files_are_reported_as_such_wherever_a_file_is_opened(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TOO_MANY_FILES, str(tmp_path / "river")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 4


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, DiskFull),
        (errno.EROFS, ReadOnlyStore),
        (errno.EACCES, ReadOnlyStore),
        (errno.EPERM, ReadOnlyStore),
        (errno.EMFILE, StoreUnavailable),
        (errno.ENFILE, StoreUnavailable),
        (errno.ENOMEM, StoreUnavailable),
        (errno.EIO, StoreUnavailable),
    ],
)
def test_each_errno_is_reported_as_what_it_is_wherever_a_store_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreUnavailable]
) -> None:
    assert type(unavailable(OSError(number, os.strerror(number)), "it")) is kind
    real = Path.mkdir

    def refuse(self: Path, *arguments: Any, **options: Any) -> None:
        if str(self).startswith(str(tmp_path)):
            raise OSError(number, os.strerror(number), str(self))
        real(self, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreUnavailable, match=os.strerror(number)) as caught:
        ab.connect(tmp_path / "river", create=True)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EACCES, ReadOnlyStore), (errno.ENAMETOOLONG, StoreUnavailable)],
)
@pytest.mark.parametrize("create", [False, True])
def test_a_path_that_cant_be_looked_at_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreUnavailable], create: bool
) -> None:
    real = Path.stat

    def refuse(self: Path, **options: Any) -> os.stat_result:
        if str(self).startswith(str(tmp_path)):
            raise OSError(number, os.strerror(number), str(self))
        return real(self, **options)

    with ab.connect("memory://") as store:
        monkeypatch.setattr(Path, "stat", refuse)
        for open_it in (
            lambda: ab.connect(tmp_path / "closed" / "river", create=create),
            lambda: store.archives.attach(tmp_path / "closed" / "a.parquet", "s/a"),
            lambda: storage.open_blobs(tmp_path / "closed", Runtime(), create=create),
        ):
            with pytest.raises(StoreUnavailable, match=os.strerror(number)) as caught:
                open_it()
            assert type(caught.value) is kind
        monkeypatch.undo()


def test_a_relative_path_in_a_folder_that_is_gone_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreUnavailable, match="working folder, which is gone"):
        ab.connect("river", create=True)


def test_a_folder_that_cant_be_listed_is_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = LocalBlobs(tmp_path, Runtime())
    blobs.put("a/one", [b"1"])
    assert [each.key for each in blobs.list()] == ["a/one"]
    assert list(blobs.list("none/")) == []
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("a"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreUnavailable, match="Too many open files"):
        list(blobs.list())


def _synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are synced from now on, in order."""
    found: list[Path] = []
    real = os.fsync

    def note(file: int) -> None:
        found.append(Path(f"/proc/self/fd/{file}").readlink())
        real(file)

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_each_folder_above_a_new_store_is_synced_before_its_catalog_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = _synced(monkeypatch)
    seen: list[tuple[Path, bool]] = []
    sync = folders.sync_parent

    def note(path: Path) -> None:
        sync(path)
        seen.append((path, (tmp_path / "a" / "b" / "river" / "catalog.db").exists()))

    monkeypatch.setattr(folders, "sync_parent", note)
    with ab.connect(tmp_path / "a" / "b" / "river", create=True):
        pass
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)
    assert {(tmp_path / "a", False), (tmp_path / "a" / "b", False), (tmp_path / "a" / "b" / "river", False)} <= set(
        seen
    )


def test_a_folder_that_somebody_else_made_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "river").mkdir()
    (tmp_path / "blobs").mkdir()
    synced = _synced(monkeypatch)
    with ab.connect(tmp_path / "river", create=True):
        assert tmp_path in synced
    synced.clear()
    blobs = storage.open_blobs(tmp_path / "blobs", Runtime(), create=True)
    blobs.put("commits/one", [b"1"])
    assert tmp_path in synced
    assert tmp_path / "blobs" in synced
