"""A disk with power cuts: what was synced is kept, and any part of the rest may be lost.

It runs under the real code. SQLite uses a VFS of its own (`vfs`), the folder of blobs the functions of `os` that it
writes and syncs with (`Disk.under`). Both write to a real folder, so until the power is cut everything behaves as on
any disk; `image` is what would be left.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import apsw

__all__ = ["Disk", "DiskOs"]

_LOST: Final = None  # in an image: the file is lost
Image = dict[Path, bytes | None]


class Disk:
    """Everything below `folder`. `rng` decides which unsynced data is lost."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._databases: dict[str, _Kept] = {}
        self._names: dict[Path, None] = {}  # created, and their folder was not synced since
        self._bytes: dict[Path, None] = {}  # written, and not synced since
        self.vfs = f"disk-{id(self):x}"
        self._door = _Vfs(self.vfs, self._databases)

    def image(self) -> Image:
        """Returns what a power cut now would leave of the files that it affects. The others stay unchanged."""
        left: Image = {Path(name): kept.after_cut(self._rng) for name, kept in self._databases.items()}
        for path in self._bytes:
            if path.exists():
                whole = path.read_bytes()
                left[path] = whole[: self._rng.randrange(len(whole) + 1)]
        for path in self._names:
            if self._rng.random() < 0.5:
                left[path] = _LOST
        return left

    def cut(self, image: Image) -> None:
        """Cuts the power. No file may be open any more; `image` was taken while files still were."""
        for path, content in image.items():
            if content is _LOST:
                path.unlink(missing_ok=True)
            elif path.exists():
                path.write_bytes(content)
        for shared in self._folder.glob("*-shm"):
            shared.unlink()
        self._databases.clear()
        self._names.clear()
        self._bytes.clear()

    @contextmanager
    def under(self, module: ModuleType) -> Iterator[None]:
        """Lets a module that writes files through `os` write them to this disk."""
        real = module.os
        setattr(module, "os", DiskOs(self._names, self._bytes))  # noqa: B010 - to the type checker it has no such name
        try:
            yield
        finally:
            setattr(module, "os", real)  # noqa: B010
            self._door.unregister()


class _Kept:
    """One file of a database: its bytes as of the last sync, and the writes since."""

    def __init__(self, content: bytes) -> None:
        self._synced = bytearray(content)
        self._since: list[tuple[int, bytes | None]] = []  # None: the file was truncated there

    def write(self, offset: int, data: bytes | None) -> None:
        self._since.append((offset, data))

    def sync(self) -> None:
        for each in self._since:
            _apply(self._synced, *each)
        self._since.clear()

    def after_cut(self, rng: random.Random) -> bytes:
        """Each write since the last sync has reached the disk or not, independently: a disk may reorder writes."""
        content = bytearray(self._synced)
        part = rng.choice((0.0, 0.5, 0.9))
        for each in self._since:
            if rng.random() < part:
                _apply(content, *each)
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class _Vfs(apsw.VFS):
    """The system's VFS, whose files report their writes and syncs."""

    def __init__(self, name: str, files: dict[str, _Kept]) -> None:
        super().__init__(name, "")
        self._files = files

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - as SQLite calls it
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:
            return apsw.VFSFile("", name, flags)
        if path not in self._files:
            # What existed before the first access counts as synced.
            self._files[path] = _Kept(Path(path).read_bytes() if Path(path).exists() else b"")
        return _VfsFile(name, flags, self._files[path])

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - as SQLite calls it
        super().xDelete(filename, syncdir)
        self._files.pop(filename, None)


class _VfsFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], kept: _Kept) -> None:
        super().__init__("", name, flags)
        self._kept = kept

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - as SQLite calls it
        super().xWrite(data, offset)
        self._kept.write(offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - as SQLite calls it
        super().xTruncate(newsize)
        self._kept.write(newsize, None)

    def xSync(self, flags: int) -> None:  # noqa: N802 - as SQLite calls it
        super().xSync(flags)
        self._kept.sync()


class DiskOs:
    """`os`, which records what was created and written and not yet synced."""

    def __init__(self, names: dict[Path, None], written: dict[Path, None]) -> None:
        self._names = names
        self._written = written
        self._open: dict[int, Path] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        file = os.open(path, flags, mode)
        self._open[file] = Path(path)
        if flags & os.O_CREAT:
            self._names[Path(path)] = None
        return file

    def writev(self, file: int, buffers: Sequence[memoryview]) -> int:
        self._written[self._open[file]] = None
        return os.writev(file, buffers)

    def fdatasync(self, file: int) -> None:
        self._written.pop(self._open[file], None)

    def fsync(self, file: int) -> None:
        folder = self._open[file]
        self._written.pop(folder, None)
        for path in [path for path in self._names if path.parent == folder]:
            del self._names[path]

    def close(self, file: int) -> None:
        self._open.pop(file, None)
        os.close(file)
