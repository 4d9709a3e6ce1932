"""Blobs in a folder. Writes sync the bytes, then the name; reads use memory maps, without a copy.

Nothing outside the folder is ever read, written or removed. A key is a plain relative path (`blobs.keys.check_path`),
and symbolic links are followed only if they lead to something in the folder. The folder itself may be a link. This
protects against crafted contents, such as a backup that was tampered with. It does not protect against changes to the
folder while a process uses it: a user who may make them owns the store.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.keys import check_path, check_prefix
from anabranch.blobs.port import BlobInfo
from anabranch.errors import AlreadyExists, BlobMissing, CorruptBlob, DiskFull, StoreUnavailable
from anabranch.errors.system import unavailable
from anabranch.runtime.access import access_of
from anabranch.runtime.folders import sync_parent
from anabranch.runtime.ports import Runtime

_CHUNKS_PER_CALL = 512  # below every system's IOV_MAX


class LocalBlobs:
    """`blobs.port.Blobs` below a folder. Any number of processes may share it."""

    def __init__(self, root: Path, runtime: Runtime) -> None:
        self._root = root
        self._access = access_of(root, shared=runtime.settings.shared_files)
        self._lock = runtime.tasks.lock()
        self._maps: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._folders: set[Path] = set()  # folders that exist, are synced and are inside the root
        self._inside: set[str] = set()  # folders known to be inside the root

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        path = self._root / check_path(key)
        try:
            self._make_folder(path.parent, key)
            # O_EXCL follows no symbolic link.
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._access.file)
        except FileExistsError as exc:
            raise AlreadyExists(f"blob {key} already exists") from exc
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
            with suppress(OSError):  # a file that is left is collected as an orphan
                path.unlink(missing_ok=True)
            raise _translate(exc, key) from exc

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        whole = self._maps.get(key)
        if whole is None:
            whole = self._map(key)
        if offset < 0 or (length or 0) < 0 or offset > whole.size:
            raise CorruptBlob(key, f"expected a byte at offset {offset}, but it has only {whole.size} bytes")
        if length is None:
            return whole if offset == 0 else whole.slice(offset)
        if offset + length > whole.size:
            raise CorruptBlob(key, f"expected {offset + length} bytes, found {whole.size}")
        return whole.slice(offset, length)

    def _map(self, key: str) -> pa.Buffer:
        path = self._locate(key)
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
                raise CorruptBlob(key, "it is not a file")
            with pa.memory_map(str(path), "r") as file:
                whole = file.read_buffer()
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise BlobMissing(key) from exc
        except OSError as exc:
            raise _translate(exc, key) from exc
        with self._lock:
            self._maps[key] = whole
            while len(self._maps) > limits.OPEN_BLOBS_MAX:
                self._maps.popitem(last=False)
        return whole

    def size(self, key: str) -> int | None:
        try:
            found = self._locate(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise _translate(exc, key) from exc
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port. A symbolic link that leads out is listed with the link's size; getting it raises
        CorruptBlob."""
        below = check_prefix(prefix).rpartition("/")[0]
        folder = self._root / below
        if below:
            self._check_inside(str(folder), prefix)
        for key in sorted(path.relative_to(self._root).as_posix() for path in _files(folder)):
            if key.startswith(prefix):
                path = self._root / key
                try:
                    found = path.lstat()
                    if stat.S_ISLNK(found.st_mode) and self._leads_inside(str(path)):
                        found = path.stat()
                    yield BlobInfo(key, found.st_size)
                except FileNotFoundError:
                    continue  # collected meanwhile
                except OSError as exc:
                    raise _translate(exc, key) from exc

    def delete(self, key: str) -> None:
        """See the port. A symbolic link is removed itself, not its target."""
        path = self._root / check_path(key)
        self._check_inside(str(path.parent), key)
        with self._lock:
            self._maps.pop(key, None)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as exc:
            raise _translate(exc, key) from exc

    def path(self, key: str) -> str:
        return str(self._locate(key))

    def close(self) -> None:
        with self._lock:
            self._maps.clear()

    def _locate(self, key: str) -> Path:
        """The path of a blob. Raises CorruptBlob if it leads out of the root."""
        path = self._root / check_path(key)
        self._check_inside(str(path.parent), key)
        if path.is_symlink() and not self._leads_inside(str(path)):
            raise CorruptBlob(key, f"it is a symbolic link that leads out of {self._root}")
        return path

    def _check_inside(self, folder: str, key: str) -> None:
        """Raise CorruptBlob if a folder below the root leads out of it through a link. Checked once for each folder."""
        if folder in self._inside:
            return
        if not self._leads_inside(folder):
            raise CorruptBlob(key, f"its folder is a symbolic link that leads out of {self._root}")
        if Path(folder).exists() and len(self._inside) < limits.FOLDERS_KEPT_MAX:
            self._inside.add(folder)

    def _leads_inside(self, path: str) -> bool:
        root = os.path.realpath(self._root)
        return os.path.commonpath((root, os.path.realpath(path))) == root

    def _make_folder(self, folder: Path, key: str) -> None:
        if folder in self._folders:
            return
        self._check_inside(str(folder), key)
        with_parents = (folder, *folder.parents)
        # A folder that exists may have been made by another process that has not synced it yet.
        unsynced = [
            parent
            for parent in with_parents
            if parent == self._root or self._root in parent.parents or not parent.exists()
        ]
        self._access.make_root(self._root)
        self._access.make_folder(folder)
        for created in unsynced:
            # The parent of these folders is outside the root: this process may not be able to list it.
            if created == self._root or created in self._root.parents:
                sync_parent(created)
            else:
                _sync_folder(created.parent)
        self._folders.add(folder)


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder. Raises StoreUnavailable or a subclass: a listing must not be silently incomplete."""

    def fail(exc: OSError) -> None:
        if not isinstance(exc, (FileNotFoundError, NotADirectoryError)):  # the folder never existed, or was removed
            raise unavailable(exc, f"the folder {exc.filename} can't be listed") from exc

    for parent, _, names in os.walk(folder, onerror=fail):
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
    if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(f"no space is left for blob {key}; nothing was appended")
    return unavailable(exc, f"blob {key}")
