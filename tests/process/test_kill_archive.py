"""Archives, imports and copies of scopes whose process is killed (SIGKILL) while it writes a file: each goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import JobRunning, NotFound
from anabranch.store import Store
from anabranch.transfer.jobs.record import JobState
from tests.store.transfer.archives.kit import assert_same, fill

# Writes half of the file that is the `number`-th to be put below the folder, then dies as by kill -9.
CHILD = """
import os, signal, sys
import anabranch as ab
from anabranch.blobs.local import LocalBlobs

store, verb, place, below, number = sys.argv[1:]
real, left = LocalBlobs.put, [int(number)]

def put(self, key, chunks):
    if str(self._root).startswith(below):
        left[0] -= 1
        if not left[0]:
            whole = b"".join(bytes(memoryview(chunk)) for chunk in chunks)
            path = self._root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(whole[: len(whole) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
    real(self, key, chunks)

LocalBlobs.put = put
with ab.connect(store, create=True) as opened:
    if verb == "archive":
        opened.archives.create("iot/x", place, window=1)
    elif verb == "import":
        opened.archives.import_(place, as_="iot/y", window=1)
    else:
        with ab.connect(place, create=True) as other:
            opened.scopes.copy("iot", "iot", to=other)
"""


def killed(store: Path, verb: str, place: Path, below: Path, number: int) -> None:
    command = [sys.executable, "-c", CHILD, str(store), verb, str(place), str(below), str(number)]
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def go_on(store: Store) -> Any:
    """Go on with the job of the dead."""
    (row,) = (row for row in store.jobs.list() if not row.state.ended)
    assert row.state is JobState.RUNNING  # nobody has told it otherwise
    with pytest.raises(JobRunning):
        store.jobs.resume(row.id)
    return store.jobs.resume(row.id, take_over=True).wait()


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Data files, with when they were written."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*.parquet")}


@pytest.mark.slow
def test_a_killed_archive_and_a_killed_import_go_on_where_they_were(tmp_path: Path) -> None:
    place, folder = tmp_path / "archive", tmp_path / "store"
    with ab.connect(folder, create=True) as store:
        store.scopes.create("iot")
        fill(store)
        store.archives.create("iot/x", tmp_path / "undisturbed")
        killed(folder, "archive", place, place, 3)
        with pytest.raises(NotFound, match="never finished"):
            ab.read_archive(place)
        before = files_of(place)
        assert go_on(store).files_there == 2
        after = files_of(place)
        assert sum(after[name] == held for name, held in before.items()) == 2  # all but the one that was cut off
        undisturbed = files_of(tmp_path / "undisturbed")
        assert {name: held[1] for name, held in after.items()} == {name: held[1] for name, held in undisturbed.items()}
        assert list(ab.verify_archive(place)) == []

        history = {info.key for info in store.blobs.list("history/")}
        killed(folder, "import", place, folder, 4)
        assert [str(info.name) for info in store.streams.list()] == ["iot/x"]
        staged = {info.key for info in store.blobs.list("history/")} - history
        assert len(staged) == 4
        assert list(store.check()) == []
        go_on(store)
        assert_same(store, "iot/x", store, "iot/y")
        assert len({info.key for info in store.blobs.list("history/")} - history - staged) == len(after) - 3
        store.streams.delete("iot/y")
        with store.catalog.writing() as txn:  # as in time, when that of the dead runs out
            for lease in txn.leases():
                txn.drop_lease(lease.id)
        for _ in range(3):
            store.collect(horizon_us=0)
        left = {info.key for info in store.blobs.list("history/")}
        with store.catalog.reading() as txn:
            assert left == {row[0] for row in txn.export("blobs") if str(row[0]).startswith("history/")}
        assert len(left) <= len(history)


def test_a_killed_copy_of_a_scope_goes_on_stream_by_stream(tmp_path: Path) -> None:
    folder, place = tmp_path / "store", tmp_path / "other"
    with ab.connect(folder, create=True) as store, ab.connect(place, create=True) as other:
        store.scopes.create("iot")
        fill(store)
        for name in ("iot/y", "iot/z"):
            store.streams.copy("iot/x", name)
        store.aliases.add("iot/y", "iot/also")
        store.compact(force=True)
        killed(folder, "scope", place, place, 4)
        go_on(other)
        for name in ("iot/x", "iot/y", "iot/z"):
            assert_same(store, name, other, name)
        assert [str(info.name) for info in other.streams.list(internal=True)] == ["iot/x", "iot/y", "iot/z"]
        assert other.streams.get("iot/also").name == ab.StreamName("iot", "y")
