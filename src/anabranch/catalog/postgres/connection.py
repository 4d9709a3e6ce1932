"""Opens connections, checks whether they are alive, and translates the driver's errors into the store's."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from anabranch import limits
from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.catalog.postgres.pipeline import SQL, PipelineConnection
from anabranch.core.redact import hide_secrets
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

# Errors after which the call had no effect and may be repeated at once.
RETRYABLE = (pg.DeadlockDetected, pg.LockNotAvailable, pg.SerializationFailure)

# Takes one system call; the default selector takes four.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
# Lets the kernel notice a network that drops everything: on idle connections, and when sent bytes are not acknowledged.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 30_000}
# SQLSTATEs of connection attempts while a server restarts, fails over or has too many clients.
_TRANSIENT = {"57P03", "57P01", "57P02", "53300", "08000", "08001", "08003", "08004", "08006"}
_PERMANENT = ("28", "3D", "42", "0A", "22")  # wrong password, no such database, no right: waiting would not help


def connect(
    address: DatabaseAddress,
    *,
    lock_s: float,
    answer_s: float = limits.CATALOG_ANSWER_S,
    connect_s: float | None = None,
) -> PipelineConnection:
    """Open a connection in autocommit mode whose transactions are READ COMMITTED, durable, and use the catalog's
    schema. Time limits: `lock_s` for a lock; `lock_s` also for a transaction left idle by its client, which the server
    ends; `lock_s + answer_s` for an answer; `connect_s`, or the URL's time-out, to connect. Raises psycopg.Error."""
    extra: dict[str, Any] = {"application_name": "anabranch"}
    if "connect_timeout" not in address.conninfo:
        timeout_max = limits.POSTGRES_CONNECT_S
        extra["connect_timeout"] = timeout_max if connect_s is None else max(1, min(timeout_max, ceil(connect_s)))
    extra |= {name: value for name, value in _KEEPALIVE.items() if name not in address.conninfo}
    # The driver must not prepare statements: at each rollback it drops all prepared ones, including ours.
    try:
        database = PipelineConnection.connect(address.conninfo, autocommit=True, prepare_threshold=None, **extra)
    except psycopg.Error as exc:
        _hide(exc, address.secrets)
        raise
    database.answer_s = answer_s
    try:
        # One type for all integers: otherwise a statement is planned once for each combination of sizes.
        database.adapters.register_dumper(int, Int8Dumper)
        database.adapters.register_dumper(int, Int8BinaryDumper)
        milliseconds = str(max(1, int(lock_s * 1000)))
        values = {"schema": address.schema, "lock_ms": milliseconds, "idle_ms": milliseconds}
        database.execute(SQL["begin_session"], values)
    except BaseException:
        database.close()
        raise
    database.answer_s = lock_s + answer_s
    return database


def _hide(exc: BaseException, secrets: tuple[str, ...]) -> None:
    """Remove secrets from an error of the driver and from its causes and contexts: libpq and the server quote their
    input."""
    seen: set[int] = set()
    found: list[BaseException | None] = [exc]
    while found:
        each = found.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.args = tuple(hide_secrets(arg, secrets) if isinstance(arg, str) else arg for arg in each.args)
            if isinstance(each, psycopg.Error):
                each._pgconn = None  # holds the password, and tools that report errors show it
            found += [each.__cause__, each.__context__]


def is_alive(database: PipelineConnection) -> bool:
    """False if the server has closed an idle connection. Costs no round trip: the socket of an idle connection becomes
    readable only when the server closes it."""
    if database.closed or database.broken:
        return False
    with _Selector() as selector:
        selector.register(database.fileno(), selectors.EVENT_READ)
        return not selector.select(0)


def is_transient(exc: psycopg.Error) -> bool:
    """True if a connection attempt may succeed a little later."""
    if exc.sqlstate is not None:
        return exc.sqlstate in _TRANSIENT or not exc.sqlstate.startswith(_PERMANENT)
    # libpq has no code for failures before the server answered, and quotes the server's message in its own.
    text = str(exc)
    final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "certificate", "SSL", "invalid")
    return isinstance(exc, psycopg.OperationalError) and not any(word in text for word in final)


def is_lost(database: PipelineConnection, exc: BaseException) -> bool:
    """True if the connection is lost, so that the last statement may or may not have taken effect."""
    shut_down = isinstance(exc, pg.AdminShutdown | pg.CrashShutdown | pg.IdleInTransactionSessionTimeout)
    return shut_down or database.closed or database.broken or not isinstance(exc, psycopg.Error)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate the driver's errors into the store's."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc, where) from exc


def translate(exc: psycopg.Error, where: str) -> AnabranchError:
    """The store's error for one of the driver's, for a call that certainly changed nothing."""
    match exc:
        case pg.DiskFull():
            return DiskFull(f"no space is left for the catalog {where}; nothing was changed")
        case pg.ReadOnlySqlTransaction() | pg.InsufficientPrivilege():
            return ReadOnlyStore(f"the catalog {where} can't be written: {_server_message(exc)}")
        case pg.LockNotAvailable() | pg.IdleInTransactionSessionTimeout():
            return StoreBusy(f"another client has held the catalog {where} for too long: {_server_message(exc)}")
        case pg.DeadlockDetected() | pg.SerializationFailure():
            return Conflict(f"another client changed the catalog {where} at the same time; nothing was changed")
        case pg.UndefinedFunction() | pg.UndefinedTable() | pg.UndefinedColumn() | pg.InvalidSchemaName():
            return CorruptCatalog(
                f"the catalog {where} lacks tables or functions of this release: {_server_message(exc)}"
            )
        case pg.DataCorrupted() | pg.IndexCorrupted():
            return CorruptCatalog(f"the catalog {where} is damaged: {_server_message(exc)}")
        case psycopg.DataError():
            return InvalidArgument(f"the catalog {where} can't store this value: {_server_message(exc)}")
        case _:
            return StoreUnavailable(f"the catalog {where} failed: {_server_message(exc)}")


def too_new(where: str, found: int, supported: int) -> FormatTooNew:
    """The error for a catalog that a newer release made."""
    return FormatTooNew(f"the catalog {where}", found, supported)


def _server_message(exc: psycopg.Error) -> str:
    text = exc.diag.message_primary or str(exc)
    return " ".join(text.split()) or type(exc).__name__
