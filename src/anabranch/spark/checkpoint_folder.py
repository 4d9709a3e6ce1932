"""Reads and removes folders of checkpoints, on a disk or in a bucket; Spark writes them. Needs no Spark."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from anabranch.blobs.address import is_remote, parse
from anabranch.errors import BlobMissing, InvalidArgument
from anabranch.runtime.folders import expand_home
from anabranch.runtime.ports import Runtime
from anabranch.spark.session.s3a import hadoop_path

__all__ = ["BucketFolder", "CheckpointFolder", "DiskFolder", "absolute_place", "beside", "checkpoint_folder", "joined"]


# Below the folder of a pipeline: scope.stream/generation. Users may choose any folder, so nothing else is removed.
_CHECKPOINT: Final = re.compile(r"[^/]+\.[^/]+/\d{4,}(?=/|$)")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://|(?=/))")


def checkpoint_folder(text: str, runtime: Runtime) -> CheckpointFolder:
    """The folder at a path or URL. Raises InvalidArgument for a URL whose kind can't hold checkpoints."""
    if not is_remote(text):
        # A URL parser is not used: it would cut off a path at `#` or `?`.
        url = _URL.match(text)
        scheme = "file" if url is None else url[1]
        if scheme != "file":
            raise InvalidArgument(f"checkpoints can be in a folder or in S3, not in {scheme}://")
        return DiskFolder(Path(text if url is None else text[url.end() :]))
    kind = parse(text).kind
    if kind != "s3":
        raise InvalidArgument(
            f"checkpoints can be in a folder or in S3, not in {kind}://: pass a place as checkpoints="
        )
    return BucketFolder(text, runtime)


def joined(place: str, *names: str) -> str:
    """The path or URL of `names` below a place. A URL keeps its options."""
    if "://" not in place:
        return str(Path(place, *names))
    base, mark, options = place.partition("?")
    return "/".join((base.rstrip("/"), *names)) + mark + options


def beside(place: str, sibling: str) -> str:
    """The path or URL of the folder of this name beside a place. A URL keeps its options."""
    base, mark, options = place.partition("?") if "://" in place else (place, "", "")
    return f"{base.rstrip('/').rpartition('/')[0]}/{sibling}{mark}{options}"


def absolute_place(place: str) -> str:
    """The place as an absolute path or a URL, independent of a process's working folder."""
    return place if "://" in place else str(expand_home(place).absolute())


@dataclass(frozen=True, slots=True)
class DiskFolder:
    """A folder on a disk. Its files are addressed by `/`-separated names relative to it."""

    path: Path

    @property
    def text(self) -> str:
        """Its location, for `checkpoint_folder`: a path, or a URL with its options."""
        return str(self.path)

    @property
    def for_spark(self) -> str:
        """Its location in the form that Spark accepts."""
        return str(self.path)

    def above(self, levels: int) -> DiskFolder:
        """The folder `levels` levels up."""
        return DiskFolder(self.path.parents[levels - 1])

    def beside(self, sibling: str) -> DiskFolder:
        """The folder of this name beside it."""
        return DiskFolder(self.path.parent / sibling)

    def siblings(self) -> list[str]:
        """The names of the folders beside it, and its own."""
        return [each.name for each in self.path.parent.glob("*") if each.is_dir()]

    def names(self, folder: str) -> list[str]:
        """The names of the files in one of its folders; none if there is no such folder."""
        return [each.name for each in (self.path / folder).glob("*")]

    def read(self, name: str) -> str | None:
        """A file as text, None if it does not exist. Raises OSError, UnicodeDecodeError."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Replace a file, or make it, in a folder that exists. A concurrent reader sees either the earlier or the new
        text. Raises OSError."""
        file = self.path / name
        # Hidden, so that it isn't copied with the checkpoint; each source of a query writes in a process of its own.
        beside = file.with_name(f".{file.name}-{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)

    def files(self) -> list[str]:
        """The names of all files below it, except hidden ones."""
        found = (each.relative_to(self.path) for each in self.path.rglob("*") if each.is_file())
        return [each.as_posix() for each in found if not each.name.startswith(".")]

    def copy(self, sibling: str, names: Collection[str]) -> None:
        """Copy these files to the folder of this name beside it. A file that was removed meanwhile is left out. Raises
        OSError."""
        for name in names:
            target = self.beside(sibling).path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(self.path / name, target)

    def drop(self) -> None:
        """Remove the folder with all files in it. What can't be removed stays."""
        shutil.rmtree(self.path, ignore_errors=True)

    def empty(self) -> None:
        """Remove a pipeline's checkpoints below it, and nothing else. What can't be removed stays."""
        for old in self.path.glob("*/*"):
            if _CHECKPOINT.fullmatch(f"{old.parent.name}/{old.name}"):
                shutil.rmtree(old, ignore_errors=True)
                with suppress(OSError):  # another generation's folder may have failed to be removed
                    old.parent.rmdir()

    def remove(self) -> None:
        """As `empty`, and then remove the folder if it is empty."""
        self.empty()
        with suppress(OSError):
            self.path.rmdir()


class BucketFolder:
    """A folder in S3, with the methods of `DiskFolder`. They raise StoreUnavailable if the object store does not answer. Hadoop marks each of its folders by
    an empty object, `offsets/`, which is listed as `offsets`; no file of a checkpoint is empty."""

    def __init__(self, text: str, runtime: Runtime) -> None:
        from anabranch.blobs.objects import ObjectBlobs  # takes a while to load

        self.text = text
        self._address = parse(text)
        self._runtime = runtime
        self._objects = ObjectBlobs(self._address, runtime)

    @property
    def for_spark(self) -> str:
        return hadoop_path(self._address.shown)

    def above(self, levels: int) -> BucketFolder:
        base, mark, options = self.text.partition("?")
        return BucketFolder(base.rstrip("/").rsplit("/", levels)[0] + mark + options, self._runtime)

    def beside(self, sibling: str) -> BucketFolder:
        return BucketFolder(beside(self.text, sibling), self._runtime)

    def siblings(self) -> list[str]:
        return sorted({each.key.partition("/")[0] for each in self.above(1)._objects.list() if each.size})

    def names(self, folder: str) -> list[str]:
        return [PurePosixPath(each.key).name for each in self._objects.list(f"{folder}/")]

    def read(self, name: str) -> str | None:
        try:
            return bytes(memoryview(self._objects.get(name))).decode()
        except BlobMissing:
            return None

    def write(self, name: str, text: str) -> None:
        self._objects.replace(name, text.encode())

    def files(self) -> list[str]:
        found = (each.key for each in self._objects.list() if each.size)
        return [key for key in found if not PurePosixPath(key).name.startswith(".")]

    def copy(self, sibling: str, names: Collection[str]) -> None:
        target = self.beside(sibling)
        for name in names:
            with suppress(BlobMissing):
                target._objects.put(name, [self._objects.get(name)])

    def drop(self) -> None:
        self._objects.clear(re.compile(""))

    def empty(self) -> None:
        # Hadoop's markers of folders stay: the library can't address them.
        self._objects.clear(_CHECKPOINT)

    def remove(self) -> None:
        self.empty()


CheckpointFolder: TypeAlias = DiskFolder | BucketFolder
