"""Opens and migrates the SQLite database, and translates its errors into the store's."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Final
from weakref import WeakKeyDictionary

import apsw

from anabranch.catalog.digests import row_digest
from anabranch.catalog.queries import migrations
from anabranch.errors import (
    AnabranchError,
    CorruptCatalog,
    DiskFull,
    Forked,
    FormatTooNew,
    InvalidArgument,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
)
from anabranch.errors.system import unavailable

APPLICATION_ID = 0x414E4142  # "ANAB": marks the file as ours
MIGRATIONS = migrations(__package__)
FORMAT = len(MIGRATIONS)

_FILES: Final = 8  # the three that a connection opens, and some that other threads may have closed since it failed

_opened: Final[WeakKeyDictionary[apsw.Connection, str]] = WeakKeyDictionary()  # by this process, with their paths
_inherited: Final[set[tuple[int, int]]] = set()  # identities of databases that were open at the fork


def open_database(path: str, *, read_only: bool = False, vfs: str | None = None) -> apsw.Connection:
    """Open a connection with the durability that the commit protocol relies on: every commit is synced, and there are
    no automatic checkpoints. Changes nothing in the file. `path` may be `:memory:`. `vfs` names SQLite's file system
    layer; None is the system's. Raises Forked for a database that was open when this process was forked."""
    if _inherited and _identity(path) in _inherited:
        raise Forked(
            f"{path} was open when this process was forked, so SQLite would mistake the parent's locks for its own: "
            "open the store only after the fork, or use multiprocessing's start method 'spawn' or 'forkserver'"
        )
    with TranslatedErrors(path):
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        database = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=200)
        # A plan must not depend on the values of parameters, or SQLite makes it again for each new value, which takes
        # several times as long as running it.
        database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        database.set_busy_timeout(5_000)  # in ms; for other tools and recovery, since the store itself uses FairLock
        database.pragma("synchronous", 2)
        database.pragma("foreign_keys", True)
        database.pragma("wal_autocheckpoint", 0)
        database.create_scalar_function("row_digest", lambda *values: row_digest(values), deterministic=True)
        _opened[database] = path
        return database


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def inode(path: str) -> int | None:
    """The inode of the file that has this name now; None if there is none."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - called for each commit
    except OSError:
        return None


def _keep_inherited_open() -> None:
    """In a forked child: keep the parent's connections alive, so that they are neither used nor closed, not even at
    exit. SQLite keeps their locks in memory as long as this process lives. So a new connection to the same database
    would not be safe either: its commits would be lost when the parent closes the database."""
    inherited = {database: path for database, path in _opened.items() if database.open_flags is not None}  # still open
    _inherited.update(identity for path in inherited.values() if (identity := _identity(path)) is not None)
    _opened.clear()
    for kept in (*inherited, apsw) if inherited else ():  # the module too: its destruction closes all connections
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


os.register_at_fork(after_in_child=_keep_inherited_open)


def check_format(database: apsw.Connection, path: str) -> int:
    """The format of the database, 0 for a new one. Raises CorruptCatalog if it is not a catalog, and FormatTooNew."""
    with TranslatedErrors(path):
        found = int(database.pragma("user_version"))
        owner = int(database.pragma("application_id"))
        if owner != APPLICATION_ID and (found or database.pragma("schema_version")):
            raise CorruptCatalog(f"{path} is a SQLite database, but not an Anabranch catalog")
    if found > FORMAT:
        raise FormatTooNew(f"the catalog {path}", found, FORMAT)
    return found


def migrate(database: apsw.Connection, path: str) -> None:
    """Migrate the database to the current format, each step in a transaction of its own, and set WAL mode. The caller
    holds the lock. A database that is not a catalog, or too new, is left unchanged. Raises StoreUnavailable if the file
    system has no shared memory, which WAL needs."""
    found = check_format(database, path)
    if path != ":memory:":
        with TranslatedErrors(path):
            mode = database.pragma("journal_mode", "wal")
        if mode != "wal":
            raise StoreUnavailable(
                f"the file system of {path} can't hold SQLite's write-ahead log: expected a local disk, so move the store to "
                f"one, or use PostgreSQL (SQLite stayed in its journal mode {mode!r})"
            )
    for number in range(found, FORMAT):
        with TranslatedErrors(path), database:
            database.execute(MIGRATIONS[number])
            database.pragma("application_id", APPLICATION_ID)
            database.pragma("user_version", number + 1)


class TranslatedErrors:
    """A context manager that translates the database's errors into the store's."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, apsw.Error):
            raise translate(error, self._path) from error
        if isinstance(error, UnicodeEncodeError):
            raise InvalidArgument(f"expected names and values that are Unicode text: {error}") from error


def is_out_of_space(database: apsw.Connection, exc: apsw.IOError) -> bool:
    """True if the system refused a write for lack of space in a way that SQLite does not report as such: a quota, or a
    limit on the file's size. Then the write-ahead log holds no complete commit."""
    written = getattr(exc, "extendedresult", None) == apsw.SQLITE_IOERR_WRITE
    return written and database.system_errno in (errno.EDQUOT, errno.EFBIG, errno.ENOSPC)


def _out_of_files() -> OSError | None:
    """The error if this process can't open as many files as a connection needs now, else None. SQLite does not report
    the errno of a failed open. Does not open the database: closing any descriptor of it would drop SQLite's locks."""
    handles: list[int] = []
    try:
        while len(handles) < _FILES:
            handles += (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),)
    except OSError as exc:
        return exc
    finally:
        for handle in handles:
            os.close(handle)
    return None


def translate(exc: apsw.Error, path: str) -> AnabranchError:
    """The store's error for one of the database's."""
    match exc:
        case apsw.FullError():
            return DiskFull(f"no space is left for the catalog {path}; nothing was changed")
        case apsw.ReadOnlyError():
            return ReadOnlyStore(f"the catalog {path} can't be written")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            refused = _out_of_files()
            if refused is not None:
                return unavailable(refused, f"the catalog {path} can't be opened")
            return ReadOnlyStore(f"can't open the catalog {path}: check that the folder exists and is writable")
        case apsw.NoMemError():
            return StoreUnavailable(f"out of memory in the catalog {path}; nothing was changed")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"another program has locked the catalog {path}")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return CorruptCatalog(f"the catalog {path} is damaged: {exc}")
        case apsw.ConnectionClosedError():
            return StoreUnavailable(f"the catalog {path} was closed")
        case _:
            return StoreUnavailable(f"the catalog {path} failed: {exc}")
