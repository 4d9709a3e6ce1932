"""Opening the database, and its errors in the store's own terms."""

from __future__ import annotations

import errno
from types import TracebackType

import apsw

from anabranch.catalog.queries import migrations
from anabranch.errors import (
    AnabranchError,
    CorruptCatalog,
    DiskFull,
    FormatTooNew,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
)

APPLICATION_ID = 0x414E4142  # "ANAB": marks the file as ours
MIGRATIONS = migrations(__package__)
FORMAT = len(MIGRATIONS)


def open_database(path: str, *, read_only: bool = False, vfs: str | None = None) -> apsw.Connection:
    """A connection with the durability the commit protocol rests on: every commit synced, no automatic checkpoint.
    `path` may be `:memory:`. Changes nothing in the file. `vfs` names SQLite's door to the disk; None is the system's."""
    with Translated(path):
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        database = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=200)
        database.set_busy_timeout(5_000)  # ours is the fair lock; this covers foreign tools and recovery
        database.pragma("synchronous", 2)
        database.pragma("foreign_keys", True)
        database.pragma("wal_autocheckpoint", 0)
        return database


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
