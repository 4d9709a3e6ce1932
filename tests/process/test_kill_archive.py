"""Archives and imports of processes that are killed (SIGKILL) while they write a file: each goes on, or never was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import NotFound
from tests.store.test_archive import assert_same, fill

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
with ab.connect(store) as opened:
    if verb == "archive":
        opened.streams.archive("iot/x", place)
    else:
        opened.streams.import_archive(place, as_="iot/y")
"""


def killed(store: Path, verb: str, place: Path, below: Path, number: int) -> None:
    command = [sys.executable, "-c", CHILD, str(store), verb, str(place), str(below), str(number)]
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_archive_goes_on_and_a_killed_import_leaves_nothing(tmp_path: Path) -> None:
    place, folder = tmp_path / "archive", tmp_path / "store"
    with ab.connect(folder) as store:
        store.streams.create_scope("iot")
        fill(store)
        killed(folder, "archive", place, place, 3)
        with pytest.raises(NotFound, match="never finished"):
            ab.read_archive(place)
        report = store.streams.archive("iot/x", place)
        assert report.files_there == 2
        assert list(ab.verify_archive(place)) == []

        history = [info.key for info in store.blobs.list("history/")]
        killed(folder, "import", place, folder, 4)
        assert [str(info.name) for info in store.streams.list()] == ["iot/x"]
        assert len([*store.blobs.list("history/")]) == len(history) + 4
        assert list(store.check()) == []
        store.streams.import_archive(place, as_="iot/y")
        assert_same(store, "iot/x", store, "iot/y")
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
