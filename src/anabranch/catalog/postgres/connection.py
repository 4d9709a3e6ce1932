"""Connections: opening them, telling whether they still live, and the driver's errors in the store's own terms."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from anabranch.catalog.postgres.address import Address
from anabranch.catalog.postgres.flight import SQL, Connection
from anabranch.errors import (
    AnabranchError,
    Conflict,
    CorruptCatalog,
    DiskFull,
    FormatTooNew,
    InvalidArgument,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
)

# Nothing of the call took place, and it may be made again at once.
AGAIN = (pg.DeadlockDetected, pg.LockNotAvailable, pg.SerializationFailure)

# Unlike the default one it takes one call of the kernel, not four.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
_CONNECT_S = 10  # for one attempt, unless the URL says otherwise
# What a connection attempt meets while a server restarts, fails over or is crowded: by SQLSTATE, where there is one.
_PASSING = {"57P03", "57P01", "57P02", "53300", "08000", "08001", "08003", "08004", "08006"}
_FINAL = ("28", "3D", "42", "0A", "22")  # wrong password, no such database, no right: waiting would not help


def connect(address: Address, *, lock_s: float) -> Connection:
    """A connection in autocommit mode whose transactions are READ COMMITTED, durable, and find the catalog's schema.
    Locks are waited for at most `lock_s`; a transaction that its client left open for as long is ended by the server.
    Raises psycopg.Error."""
    extra: dict[str, Any] = {"application_name": "anabranch"}
    if "connect_timeout" not in address.conninfo:
        extra["connect_timeout"] = _CONNECT_S
    # The driver prepares nothing: what it has prepared it forgets at each rollback, and our statements with its own.
    database = Connection.connect(address.conninfo, autocommit=True, prepare_threshold=None, **extra)
    try:
        # One type for every integer: otherwise a statement is planned once for each mixture of sizes.
        database.adapters.register_dumper(int, Int8Dumper)
        database.adapters.register_dumper(int, Int8BinaryDumper)
        milliseconds = str(max(1, int(lock_s * 1000)))
        values = {"schema": address.schema, "lock_ms": milliseconds, "idle_ms": milliseconds}
        database.execute(SQL["begin_session"], values)
    except BaseException:
        database.close()
        raise
    return database


def is_alive(database: Connection) -> bool:
    """False where an idle connection was closed from the other side. Costs no round trip: a server that goes away says
    so, and an idle connection has nothing else to say."""
    if database.closed or database.broken:
        return False
    with _Selector() as selector:
        selector.register(database.fileno(), selectors.EVENT_READ)
        return not selector.select(0)


def is_passing(exc: psycopg.Error) -> bool:
    """True if a connection attempt may succeed a little later."""
    if exc.sqlstate is not None:
        return exc.sqlstate in _PASSING or not exc.sqlstate.startswith(_FINAL)
    # libpq gives no code for what happened before the server answered, and puts the server's words in its own.
    text = str(exc)
    final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "certificate", "SSL", "invalid")
    return isinstance(exc, psycopg.OperationalError) and not any(word in text for word in final)


def is_lost(database: Connection, exc: BaseException) -> bool:
    """True if the connection is gone, so that what was asked last may have happened or not."""
    shut_down = isinstance(exc, pg.AdminShutdown | pg.CrashShutdown | pg.IdleInTransactionSessionTimeout)
    return shut_down or database.closed or database.broken or not isinstance(exc, psycopg.Error)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise the driver's errors as the store's."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc, where) from exc


def translate(exc: psycopg.Error, where: str) -> AnabranchError:
    """The store's error for a driver's, for a call that certainly changed nothing."""
    match exc:
        case pg.DiskFull():
            return DiskFull(f"no space is left for the catalog {where}; nothing was changed")
        case pg.ReadOnlySqlTransaction() | pg.InsufficientPrivilege():
            return ReadOnlyStore(f"the catalog {where} can't be written: {_said(exc)}")
        case pg.LockNotAvailable() | pg.IdleInTransactionSessionTimeout():
            return StoreBusy(f"another client has held the catalog {where} for too long: {_said(exc)}")
        case pg.DeadlockDetected() | pg.SerializationFailure():
            return Conflict(f"another client changed the catalog {where} at the same time; nothing was changed")
        case pg.UndefinedFunction() | pg.UndefinedTable() | pg.UndefinedColumn() | pg.InvalidSchemaName():
            return CorruptCatalog(f"the catalog {where} is not what this release knows: {_said(exc)}")
        case pg.DataCorrupted() | pg.IndexCorrupted():
            return CorruptCatalog(f"the catalog {where} is damaged: {_said(exc)}")
        case psycopg.DataError():
            return InvalidArgument(f"the catalog {where} can't hold that: {_said(exc)}")
        case _:
            return StoreUnavailable(f"the catalog {where} failed: {_said(exc)}")


def too_new(where: str, found: int, supported: int) -> FormatTooNew:
    """The error of a catalog that a newer release made."""
    return FormatTooNew(f"the catalog {where}", found, supported)


def _said(exc: psycopg.Error) -> str:
    text = exc.diag.message_primary or str(exc)
    return " ".join(text.split()) or type(exc).__name__
