"""Opening the database, and its errors in the store's own terms."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Final
from weakref import WeakKeyDictionary

import apsw

from anabranch.catalog.queries import migrations
from anabranch.errors import (
    AnabranchError,
    CorruptCatalog,
    DiskFull,
    Forked,
    FormatTooNew,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
)

APPLICATION_ID = 0x414E4142  # "ANAB": marks the file as ours
MIGRATIONS = migrations(__package__)
FORMAT = len(MIGRATIONS)

_opened: Final[WeakKeyDictionary[apsw.Connection, str]] = WeakKeyDictionary()  # by this process, with their paths
_carried: Final[set[tuple[int, int]]] = set()  # the databases that were open when this process was forked


def open_database(path: str, *, read_only: bool = False, vfs: str | None = None) -> apsw.Connection:
    """A connection with the durability the commit protocol rests on: every commit synced, no automatic checkpoint.
    `path` may be `:memory:`. Changes nothing in the file. `vfs` names SQLite's door to the disk; None is the system's.
    Raises Forked for one that was open when this process was forked."""
    if _carried and _identity(path) in _carried:
        raise Forked(
            f"{path} was open when this process was forked, and SQLite would take the locks of its parent for its own here: "
            "open the store behind the fork alone, or have multiprocessing start processes by 'spawn' or 'forkserver'"
        )
    with Translated(path):
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        database = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=200)
        database.set_busy_timeout(5_000)  # ours is the fair lock; this covers foreign tools and recovery
        database.pragma("synchronous", 2)
        database.pragma("foreign_keys", True)
        database.pragma("wal_autocheckpoint", 0)
        _opened[database] = path
        return database


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _leave_behind() -> None:
    """In a forked child: the parent's connections are neither used nor closed, not even at the exit. SQLite knows of their
    locks for as long as this process lives, and would not take them for connections of its own: its commits would be lost
    when the parent closes the database."""
    carried = {database: path for database, path in _opened.items() if database.open_flags is not None}  # not closed
    _carried.update(identity for path in carried.values() if (identity := _identity(path)) is not None)
    _opened.clear()
    for kept in (*carried, apsw) if carried else ():  # the module too, because its end closes all connections
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


os.register_at_fork(after_in_child=_leave_behind)


def check_format(database: apsw.Connection, path: str) -> int:
    """The format of the database, 0 for a new one. Raises CorruptCatalog for a foreign file, FormatTooNew."""
    with Translated(path):
        found = int(database.pragma("user_version"))
        owner = int(database.pragma("application_id"))
        if owner != APPLICATION_ID and (found or database.pragma("schema_version")):
            raise CorruptCatalog(f"{path} is a SQLite database, but no catalog of this store")
    if found > FORMAT:
        raise FormatTooNew(f"the catalog {path}", found, FORMAT)
    return found


def migrate(database: apsw.Connection, path: str) -> None:
    """Bring the database to the present format, each step in a transaction of its own, and into WAL mode. The caller
    holds the lock. A database that is not ours, or too new for us, is left as it is."""
    found = check_format(database, path)
    if path != ":memory:":
        with Translated(path):
            database.pragma("journal_mode", "wal")
    for number in range(found, FORMAT):
        with Translated(path), database:
            database.execute(MIGRATIONS[number])
            database.pragma("application_id", APPLICATION_ID)
            database.pragma("user_version", number + 1)


class Translated:
    """A context manager that raises the database's errors as the store's."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, apsw.Error):
            raise _translate(error, self._path) from error


def was_refused(database: apsw.Connection, exc: apsw.IOError) -> bool:
    """True if the system refused to write for want of room in a way that SQLite does not know: a quota, or a limit on
    the file's size. Then the write-ahead log got no whole commit."""
    written = getattr(exc, "extendedresult", None) == apsw.SQLITE_IOERR_WRITE
    return written and database.system_errno in (errno.EDQUOT, errno.EFBIG, errno.ENOSPC)


def _translate(exc: apsw.Error, path: str) -> AnabranchError:
    match exc:
        case apsw.FullError():
            return DiskFull(f"no space is left for the catalog {path}; nothing was changed")
        case apsw.ReadOnlyError():
            return ReadOnlyStore(f"the catalog {path} can't be written")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return ReadOnlyStore(f"the catalog {path} can't be opened: is the folder there, and may it be written?")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"another program holds the catalog {path}")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return CorruptCatalog(f"the catalog {path} is damaged: {exc}")
        case apsw.ConnectionClosedError():
            return StoreUnavailable(f"the catalog {path} was closed")
        case _:
            return StoreUnavailable(f"the catalog {path} failed: {exc}")
