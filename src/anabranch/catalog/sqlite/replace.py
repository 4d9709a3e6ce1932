"""A new catalog in the place of one that is missing, damaged or given up."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from anabranch.catalog.sqlite.adapter import FILE, SqliteCatalog
from anabranch.catalog.sqlite.lock import FairLock
from anabranch.errors import CorruptCatalog, ReadOnlyStore, StoreBusy
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

_SIDES = ("-wal", "-shm")
_EMPTY_BYTES = 512  # SQLite's smallest database with anything in it is larger


@contextmanager
def replacing(folder: Path, runtime: Runtime) -> Iterator[SqliteCatalog]:
    """A new catalog beside the folder's own, which takes its place when the context is left without an exception:
    whole and durable, or not at all. The old one is kept as `catalog.db.old-<time>`.

    Raises StoreBusy where another process has the old one open, as far as that can be told: a file that was deleted
    under a process can't tell.
    """
    aside = folder / f"catalog.new-{token(runtime.ids)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("catalog.new-*"):  # by one that was killed
            shutil.rmtree(left)
        aside.mkdir()
    except OSError as exc:
        raise ReadOnlyStore(f"the folder {folder} can't be written: {exc.strerror}") from exc
    try:
        _refuse_use(folder / FILE)
        catalog = SqliteCatalog(aside, runtime)
        try:
            yield catalog
        finally:
            catalog.close()  # which moves all of its write-ahead log into the file
        assert not (aside / f"{FILE}-wal").exists()
        _swap(aside / FILE, folder / FILE, runtime)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_lost(folder: Path, runtime: Runtime) -> bool:
    """True if the folder's catalog is missing, empty or damaged. Raises FormatTooNew, StoreUnavailable and its kind."""
    file = folder / FILE
    if not file.exists() or file.stat().st_size < _EMPTY_BYTES:
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


def _refuse_use(file: Path) -> None:
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
        raise StoreBusy(f"another process has the catalog {file} open; end it first") from exc
    except apsw.Error:
        pass  # damaged: that is why it is replaced


def _swap(new: Path, old: Path, runtime: Runtime) -> None:
    lock = FairLock(old.parent, runtime)
    try:
        lock.acquire()
        _refuse_use(old)
        kept = f"{FILE}.old-{runtime.clock.now():016x}"
        # The database goes first: without its write-ahead log it might pass for a sound one. Whatever is cut off in
        # between is a missing catalog. A log must not be left to the new database, which would take it for its own.
        for side in ("", *_SIDES):
            if (file := old.with_name(FILE + side)).exists():
                file.rename(old.with_name(kept + side))
        _sync(new)
        new.rename(old)
        _sync(old.parent)
    finally:
        lock.release()
        lock.close()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
