"""The blob stores of the embedded store, held to the contract."""

from __future__ import annotations

import tempfile
from pathlib import Path

from anabranch.blobs.attached import AttachedBlobs
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.runtime.ports import Runtime
from anabranch.testing.contracts import BlobContract


class TestMemory(BlobContract):
    def make(self) -> MemoryBlobs:
        return MemoryBlobs()


class TestBesideAttachedPlaces(BlobContract):
    """What is not attached goes through untouched."""

    def make(self) -> AttachedBlobs:
        return AttachedBlobs(MemoryBlobs(), Runtime().tasks, locate=lambda _: None, open_place=lambda _: MemoryBlobs())


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
