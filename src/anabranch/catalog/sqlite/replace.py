"""Replaces the missing or damaged catalog of a folder with a new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from anabranch.catalog.sqlite.adapter import FILE, SqliteCatalog
from anabranch.catalog.sqlite.lock import FairLock
from anabranch.errors import AlreadyExists, CorruptCatalog, StoreBusy
from anabranch.errors.system import unavailable
from anabranch.runtime.access import access_of
from anabranch.runtime.folders import make_folder
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

_SIDES = ("-wal", "-shm")
_EMPTY_BYTES = 512  # SQLite's smallest database with anything in it is larger


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """The catalog file that a folder had when the decision to replace it was made."""

    inode: int | None  # None: there was none, or an empty one

    @classmethod
    def in_folder(cls, folder: Path) -> CatalogFile:
        """Read the folder. Raises StoreUnavailable and its subclasses."""
        file = folder / FILE
        try:
            status = file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return cls(None)
        except OSError as exc:
            raise unavailable(exc, f"{file} can't be read") from exc
        return cls(status.st_ino if status.st_size >= _EMPTY_BYTES else None)


@contextmanager
def replace_catalog(folder: Path, runtime: Runtime, found: CatalogFile) -> Iterator[SqliteCatalog]:
    """Create a new catalog beside the folder's own. It replaces that one, atomically and durably, when the context is
    left without an exception. The old one is kept as `catalog.db.old-<time>`.

    The folder's lock is held throughout, so no process can open the old catalog or create another one and then write to
    a deleted file. A process that connects waits, and gets the new one.

    Raises StoreBusy if another process has the old catalog open; this can't be detected if its file was deleted while
    open. Raises AlreadyExists if the catalog is not the one that was `found`: another process has created or replaced it.
    """
    staging_folder = folder / f"catalog.new-{token(runtime.ids)}"
    make_folder(folder, shared=runtime.settings.shared_files)
    lock = FairLock(folder, runtime)
    try:
        lock.acquire()
        if CatalogFile.in_folder(folder) != found:
            raise AlreadyExists(f"another process created a catalog in {folder} at the same time; nothing was replaced")
        with _new_catalog_beside(folder, staging_folder, runtime) as catalog:
            yield catalog
    finally:
        lock.release()
        lock.close()


@contextmanager
def _new_catalog_beside(folder: Path, staging_folder: Path, runtime: Runtime) -> Iterator[SqliteCatalog]:
    try:
        access = access_of(folder, shared=runtime.settings.shared_files)
        for leftover in folder.glob("catalog.new-*"):  # left by a process that was killed
            shutil.rmtree(leftover)
        staging_folder.mkdir(mode=access.folder)
    except OSError as exc:
        raise unavailable(exc, f"the folder {folder} can't be written") from exc
    try:
        _require_unused(folder / FILE)
        catalog = SqliteCatalog(staging_folder, runtime)
        try:
            yield catalog
        finally:
            catalog.close()  # moves all of its write-ahead log into the file
        assert not (staging_folder / f"{FILE}-wal").exists()
        try:
            _swap(staging_folder / FILE, folder / FILE, runtime)
        except OSError as exc:
            raise unavailable(exc, f"the new catalog in {folder} can't replace the old one") from exc
    finally:
        shutil.rmtree(staging_folder, ignore_errors=True)


def is_unusable(folder: Path, runtime: Runtime) -> bool:
    """True if the folder's catalog is missing, empty or damaged. Raises FormatTooNew, StoreUnavailable or a
    subclass."""
    if CatalogFile.in_folder(folder).inode is None:
        return True
    try:
        catalog = SqliteCatalog(folder, runtime)
        try:
            with catalog.reading() as snapshot:
                return bool(snapshot.verify_database())
        finally:
            catalog.close()
    except CorruptCatalog:
        return True


def _require_unused(file: Path) -> None:
    """Raise StoreBusy where another process has the database open."""
    if not file.exists():
        return
    try:
        database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            database.pragma("locking_mode", "exclusive")
            database.execute("begin exclusive; rollback")
        finally:
            database.close()
    except apsw.BusyError as exc:
        raise StoreBusy(f"another process has the catalog {file} open; stop it first") from exc
    except apsw.Error:
        pass  # damaged, which is why it is replaced


def _swap(new: Path, old: Path, runtime: Runtime) -> None:
    """Rename the old catalog to its backup name and the new one to `catalog.db`. The caller holds the folder's lock."""
    _require_unused(old)
    old_name = f"{FILE}.old-{runtime.clock.now():016x}"
    # The database is moved first: a database without its write-ahead log could be mistaken for an intact one, while a crash
    # after this step leaves a missing catalog. No log may be left for the new database, which would use it as its own.
    for side in ("", *_SIDES):
        if (file := old.with_name(FILE + side)).exists():
            file.rename(old.with_name(old_name + side))
    _sync(new)
    new.rename(old)
    _sync(old.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
