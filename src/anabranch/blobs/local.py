"""Blobs in a folder. Written durably: the bytes, then the name; read through memory maps, without a copy."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import BlobInfo
from anabranch.errors import AlreadyExists, BlobMissing, CorruptBlob, DiskFull, ReadOnlyStore, StoreUnavailable
from anabranch.runtime.ports import Runtime

_CHUNKS_PER_CALL = 512  # below every system's IOV_MAX


class LocalBlobs:
    """`blobs.port.Blobs` below a folder. Any number of processes may share it."""

    def __init__(self, root: Path, runtime: Runtime) -> None:
        self._root = root
        self._lock = runtime.tasks.lock()
        self._maps: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._folders: set[Path] = set()

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See the port."""
        path = self._root / key
        try:
            self._make_folder(path.parent)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError as exc:
            raise AlreadyExists(f"blob {key} exists already") from exc
        except OSError as exc:
            raise _translate(exc, key) from exc
        try:
            try:
                _write_all(file, chunks)
                os.fdatasync(file)
            finally:
                os.close(file)
            _sync_folder(path.parent)
        except OSError as exc:
            with suppress(OSError):  # left behind, it is collected as an orphan
                path.unlink(missing_ok=True)
            raise _translate(exc, key) from exc

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See the port."""
        whole = self._maps.get(key)
        if whole is None:
            whole = self._map(key)
        if length is None:
            return whole if offset == 0 else whole.slice(offset)
        if offset + length > whole.size:
            raise CorruptBlob(key, f"it holds {whole.size} bytes, {offset + length} were expected")
        return whole.slice(offset, length)

    def _map(self, key: str) -> pa.Buffer:
        try:
            with pa.memory_map(str(self._root / key), "r") as file:
                whole = file.read_buffer()
        except FileNotFoundError as exc:
            raise BlobMissing(key) from exc
        except OSError as exc:
            raise _translate(exc, key) from exc
        with self._lock:
            self._maps[key] = whole
            while len(self._maps) > limits.OPEN_BLOBS_MAX:
                self._maps.popitem(last=False)
        return whole

    def size(self, key: str) -> int | None:
        """See the port."""
        try:
            return (self._root / key).stat().st_size
        except FileNotFoundError:
            return None

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port."""
        folder = self._root / prefix.rpartition("/")[0]
        for path in sorted(_files(folder)):
            key = path.relative_to(self._root).as_posix()
            if key.startswith(prefix):
                try:
                    yield BlobInfo(key, path.stat().st_size)
                except FileNotFoundError:
                    continue  # collected meanwhile

    def delete(self, key: str) -> None:
        """See the port."""
        with self._lock:
            self._maps.pop(key, None)
        try:
            (self._root / key).unlink(missing_ok=True)
        except OSError as exc:
            raise _translate(exc, key) from exc

    def path(self, key: str) -> str:
        """See the port."""
        return str(self._root / key)

    def close(self) -> None:
        """See the port."""
        with self._lock:
            self._maps.clear()

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        above = (folder, *folder.parents)
        # One that is there may have been made by another process that has not come to sync it.
        unsure = [parent for parent in above if self._root in parent.parents or not parent.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for made in unsure:
            _sync_folder(made.parent)
        self._folders.add(folder)


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for parent, _, names in os.walk(folder):
            for name in names:
                yield Path(parent, name)


def _write_all(file: int, chunks: Sequence[pa.Buffer | bytes]) -> None:
    views = [memoryview(chunk).cast("B") for chunk in chunks if len(memoryview(chunk))]
    while views:
        written = os.writev(file, views[:_CHUNKS_PER_CALL])
        done = 0
        while done < len(views) and written >= len(views[done]):
            written -= len(views[done])
            done += 1
        views = views[done:]
        if written:
            views[0] = views[0][written:]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _translate(exc: OSError, key: str) -> StoreUnavailable:
    match exc.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return DiskFull(f"no space is left for blob {key}; nothing was appended")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return ReadOnlyStore(f"blob {key} can't be written: {exc.strerror}")
        case _:
            return StoreUnavailable(f"blob {key}: {exc.strerror or exc}")
