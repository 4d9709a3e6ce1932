"""Disks that are full, folders that can't be written, processes that stand still: one clear error, and nothing lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, StoreBusy
from anabranch.runtime.settings import Settings
from tests.process.children import Child, Tell

pytestmark = [pytest.mark.process, pytest.mark.chaos]


def made(river: Path) -> Path:
    with ab.connect(river, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/all", scaling=2)
    return river


def acknowledged(child: Child) -> list[bytes]:
    return [line[1].encode() for line in child.lines() if line[0] == "ack"]


def found_in(river: Path) -> list[bytes]:
    """What is there, after a check."""
    with ab.connect(river, create=True) as store:
        assert list(store.check()) == []
        return [event.body.split()[0] for event in store.reader("s/all")]


# a full disk


def fill(tell: Tell, writer: ab.Writer, name: str, sizes: list[int], times: int) -> None:
    """Write events of one key until so many were refused or accepted; tell each outcome."""
    for i in range(times):
        body = b"%s-%d" % (name.encode(), i)
        try:
            writer.write(body + b" " * sizes[i % len(sizes)], key="a").result()
            tell("ack", body.decode())
        except AnabranchError as exc:
            tell("refused", type(exc).__name__)


def write_under_a_limit(tell: Tell, river: Path, size: int) -> None:
    """A file may not grow beyond a size, as with a quota; then it may again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = ab.connect(river, create=True)
    writer = store.writer("s/all")
    fill(tell, writer, "before", [10], 5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    fill(tell, writer, "under", [size], 60)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    fill(tell, writer, "after", [10, 100_000], 20)
    try:
        store.close()
    except AnabranchError as exc:
        tell("closed", type(exc).__name__)


@pytest.mark.parametrize("size", [5_000, 300_000])
def test_a_quota_is_a_full_disk_and_writing_goes_on_when_there_is_room(tmp_path: Path, size: int) -> None:
    """Small events fill the catalog's write-ahead log, large ones the blobs."""
    river = made(tmp_path / "river")
    child = Child(tmp_path, "child", write_under_a_limit, river, size)
    assert child.join() == 0, child.lines()[-3:]
    outcomes = Counter(" ".join(line) for line in child.lines() if line[0] != "ack")
    assert set(outcomes) == {"refused DiskFull"}  # each was raised once, so closing raises none
    told = acknowledged(child)
    assert told[:5] == [b"before-%d" % i for i in range(5)] and told[-20:] == [b"after-%d" % i for i in range(20)]
    assert found_in(river) == told


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 3 MiB in memory."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-disk-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        folder.rmdir()
        pytest.skip(f"only root may mount a small disk here ({done.stderr.strip()}); the quota test stands in for it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def write_until_full(tell: Tell, river: Path, ballast: Path, sizes: list[int]) -> None:
    store = ab.connect(river, create=True)
    writer = store.writer("s/all")
    fill(tell, writer, "full", sizes, 150)
    ballast.unlink()
    fill(tell, writer, "after", [10], 20)
    try:
        store.close()
    except AnabranchError as exc:
        tell("closed", type(exc).__name__)


@pytest.mark.parametrize("sizes", [[30_000], [100_000], [20, 70_000, 3_000]])
def test_a_full_disk_refuses_clearly_and_loses_nothing(tmp_path: Path, small_disk: Path, sizes: list[int]) -> None:
    river, ballast = made(small_disk / "river"), small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    child = Child(tmp_path, "child", write_until_full, river, ballast, sizes)
    assert child.join() == 0, child.lines()[-3:]
    outcomes = Counter(" ".join(line) for line in child.lines() if line[0] != "ack")
    assert set(outcomes) == {"refused DiskFull"}
    told = acknowledged(child)
    assert told[-20:] == [b"after-%d" % i for i in range(20)]
    assert found_in(river) == told


# folders that can't be written


@pytest.fixture
def open_location() -> Iterator[Path]:
    """A folder that a process without rights can reach."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-open-"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def without_rights() -> None:
    """Root may write anywhere: become somebody who may not, and who may not even read the modules still to be loaded."""
    ab.connect("memory://").close()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def connect_without_rights(tell: Tell, river: Path) -> None:
    without_rights()
    for _ in range(2):
        try:
            ab.connect(river, create=True)
            tell("connected")
        except AnabranchError as exc:
            tell("refused", type(exc).__name__, str(exc))


@pytest.mark.parametrize("what", ["a store", "a new folder", "an empty folder"])
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, open_location: Path, what: str) -> None:
    river = open_location / "river"
    if what == "a store":
        made(river)
        with ab.connect(river, create=True) as store, store.writer("s/all") as writer:
            writer.write(b"kept").result()
    elif what == "an empty folder":
        river.mkdir()
    for path in [open_location, *open_location.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    child = Child(tmp_path, "child", connect_without_rights, river)
    assert child.join() == 0
    assert [line[:2] for line in child.lines()] == [["refused", "ReadOnlyStore"]] * 2
    assert all(str(river) in " ".join(line) for line in child.lines())
    for path in [open_location, *open_location.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    if what == "a store":
        assert found_in(river) == [b"kept"]


def lose_the_right_to_write_blobs(tell: Tell, river: Path) -> None:
    without_rights()
    store = ab.connect(river, settings=Settings(inline_bytes_max=1_000), create=True)
    store.scopes.create("s")
    store.streams.create("s/all")
    writer = store.writer("s/all")
    fill(tell, writer, "before", [10, 5_000], 4)
    commits = river / "blobs" / "commits"
    commits.chmod(0o555)
    fill(tell, writer, "without", [10, 5_000], 6)
    commits.chmod(0o755)
    fill(tell, writer, "after", [10, 5_000], 4)
    try:
        store.close()
    except AnabranchError as exc:
        tell("closed", type(exc).__name__)


def test_blobs_that_cannot_be_written_refuse_large_commits_and_small_ones_pass(
    tmp_path: Path, open_location: Path
) -> None:
    open_location.chmod(0o777)
    river = open_location / "river"
    child = Child(tmp_path, "child", lose_the_right_to_write_blobs, river)
    assert child.join() == 0, child.lines()[-3:]
    outcomes = Counter(" ".join(line) for line in child.lines() if line[0] != "ack")
    assert outcomes == {"refused ReadOnlyStore": 3}
    assert found_in(river) == acknowledged(child)
    assert len(acknowledged(child)) == 11


# processes that stand still


def hold_the_lock(tell: Tell, river: Path) -> None:
    with ab.connect(river, create=True) as store, store.catalog.writing():
        tell("holding")
        time.sleep(3_600)


@pytest.mark.slow
def test_a_process_that_stands_still_with_the_lock_is_a_busy_store_and_its_death_frees_it(tmp_path: Path) -> None:
    river = made(tmp_path / "river")
    with ab.connect(river, settings=Settings(catalog_lock_s=0.3), create=True) as store:
        writer = store.writer("s/all")
        writer.write(b"before").result()
        child = Child(tmp_path, "child", hold_the_lock, river)
        child.wait_for("holding")
        child.send(signal.SIGSTOP)
        ack = writer.write(b"refused")
        with pytest.raises(StoreBusy, match="is it stopped"):
            ack.result()
        with pytest.raises(StoreBusy):
            store.streams.create("s/other")
        assert [event.body for event in store.reader("s/all")] == [b"before"]  # reading takes no lock
        child.kill()
        writer.write(b"after").result()
        writer.close()
    assert sorted(found_in(river)) == [b"after", b"before"]
