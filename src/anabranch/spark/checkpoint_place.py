"""A folder of checkpoints, on a disk or in a bucket: Spark writes it, and here it is read and removed. Needs no Spark."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import urlsplit

from anabranch.blobs.address import is_remote, parse
from anabranch.errors import BlobMissing, InvalidArgument
from anabranch.runtime.ports import Runtime
from anabranch.spark.s3a import hadoop_path

__all__ = ["CheckpointPlace", "checkpoint_place", "joined", "lasting"]


class CheckpointPlace(Protocol):
    """Files below a folder. `/`-separated names lead from it to them."""

    @property
    def text(self) -> str:
        """Where it is, to find it again: a path, or a URL with its options."""
        ...

    @property
    def for_spark(self) -> str:
        """Where it is, as Spark takes it."""
        ...

    def above(self, levels: int) -> CheckpointPlace:
        """The folder so many levels up."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder of it; none where there is no such folder."""
        ...

    def read(self, name: str) -> str | None:
        """A file as text, None where there is none. Raises OSError, UnicodeDecodeError."""
        ...

    def empty(self) -> None:
        """Remove the checkpoints below, which lie two levels down. What can't be removed stays."""
        ...

    def remove(self) -> None:
        """Remove it with all that is in it."""
        ...


def checkpoint_place(text: str, runtime: Runtime) -> CheckpointPlace:
    """The folder at a path or URL. Raises InvalidArgument for a URL of a kind that holds no checkpoints."""
    if not is_remote(text):
        parts = urlsplit(text)
        if parts.scheme not in ("", "file"):
            raise InvalidArgument(f"checkpoints lie in a folder or in S3, not in {parts.scheme}://")
        return _Folder(Path(parts.path))
    kind = parse(text).kind
    if kind != "s3":
        raise InvalidArgument(f"checkpoints lie in a folder or in S3, not in {kind}://: name a place by checkpoints=")
    return _Bucket(text, runtime)


def joined(place: str, *names: str) -> str:
    """The place at a path or URL, and names below it. A URL keeps its options."""
    if "://" not in place:
        return str(Path(place, *names))
    base, mark, options = place.partition("?")
    return "/".join((base.rstrip("/"), *names)) + mark + options


def lasting(place: str) -> str:
    """The same whatever a process's working folder is."""
    return place if "://" in place else str(Path(place).expanduser().absolute())


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path

    @property
    def text(self) -> str:
        return str(self.path)

    @property
    def for_spark(self) -> str:
        return str(self.path)

    def above(self, levels: int) -> _Folder:
        return _Folder(self.path.parents[levels - 1])

    def names(self, folder: str) -> list[str]:
        return [each.name for each in (self.path / folder).glob("*")]

    def read(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def empty(self) -> None:
        for old in self.path.glob("*/*"):
            shutil.rmtree(old, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class _Bucket:
    """In S3. Raises StoreUnavailable where the store does not answer."""

    def __init__(self, text: str, runtime: Runtime) -> None:
        from anabranch.blobs.objects import ObjectBlobs  # takes a while to load

        self.text = text
        self._address = parse(text)
        self._runtime = runtime
        self._objects = ObjectBlobs(self._address, runtime)

    @property
    def for_spark(self) -> str:
        return hadoop_path(self._address.shown)

    def above(self, levels: int) -> _Bucket:
        base, mark, options = self.text.partition("?")
        return _Bucket(base.rstrip("/").rsplit("/", levels)[0] + mark + options, self._runtime)

    def names(self, folder: str) -> list[str]:
        return [PurePosixPath(each.key).name for each in self._objects.list(f"{folder}/")]

    def read(self, name: str) -> str | None:
        try:
            return bytes(memoryview(self._objects.get(name))).decode()
        except BlobMissing:
            return None

    def empty(self) -> None:
        self._objects.clear()

    def remove(self) -> None:
        # Marks of empty folders, which Hadoop leaves, stay: they are no objects to the library.
        self._objects.clear()
