"""The blob stores of the embedded store, held to the contract."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from anabranch.blobs import local
from anabranch.blobs.attached import AttachedBlobs
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.runtime.ports import Runtime
from anabranch.testing.contracts import BlobContract, run


class TestMemory(BlobContract):
    def make(self) -> MemoryBlobs:
        return MemoryBlobs()


class TestBesideAttachedPlaces(BlobContract):
    """What is not attached goes through untouched."""

    def make(self) -> AttachedBlobs:
        return AttachedBlobs(
            MemoryBlobs(), Runtime().tasks, locate=lambda _: None, open_location=lambda _: MemoryBlobs()
        )


class TestLocalFolder(BlobContract):
    def setup_method(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().setup_method()

    def teardown_method(self) -> None:
        super().teardown_method()
        self.folder.cleanup()

    def make(self) -> LocalBlobs:
        return LocalBlobs(Path(self.folder.name) / "blobs", Runtime())

    def again(self) -> LocalBlobs:
        return self.make()


def test_a_folder_that_another_process_has_just_made_is_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "blobs"
    (root / "commits").mkdir(parents=True)  # and its maker has not come to sync it
    synced: list[Path] = []
    monkeypatch.setattr(local, "_sync_folder", synced.append)
    blobs = LocalBlobs(root, Runtime())
    blobs.put("commits/a", [b"1"])
    assert set(synced) == {root, root / "commits"}
    synced.clear()
    blobs.put("commits/b", [b"1"])
    assert synced == [root / "commits"]


def test_the_suite_runs_without_a_test_framework() -> None:
    assert "test_a_key_is_written_once" in run(TestMemory)
