"""The connections of a process."""

from __future__ import annotations

import psycopg
from psycopg.pq import TransactionStatus

from anabranch import limits
from anabranch.catalog.postgres.address import Address
from anabranch.catalog.postgres.connection import connect, is_alive, is_passing, translate
from anabranch.catalog.postgres.flight import Connection
from anabranch.catalog.postgres.patience import Patience
from anabranch.errors import Closed, StoreBusy
from anabranch.runtime.ports import Runtime


class Pool:
    """At most `limits.POSTGRES_CONNECTIONS_MAX` connections, opened when they are needed. Thread-safe."""

    def __init__(self, address: Address, runtime: Runtime) -> None:
        self._address = address
        self._runtime = runtime
        self._idle: list[Connection] = []
        self._lent = 0
        self._closed = False
        self._changed = runtime.tasks.condition()

    def open(self) -> Connection:
        """One attempt at a connection that the pool knows nothing of. Raises psycopg.Error."""
        return connect(self._address, lock_s=self._runtime.settings.catalog_lock_s)

    def borrow(self, patience: Patience | None = None) -> Connection:
        """A connection that lives, outside a transaction. Waits as long as `patience` lasts for one to come back, and
        for a server that restarts or fails over. Raises Closed, StoreBusy, StoreUnavailable."""
        patience = patience or Patience(self._runtime)
        self._take_turn(patience)
        try:
            while True:
                with self._changed:
                    database = self._idle.pop() if self._idle else None
                if database is None:
                    return self._open(patience)
                if is_alive(database):
                    return database
                database.close()
        except BaseException:
            self._return_turn(None)
            raise

    def _take_turn(self, patience: Patience) -> None:
        with self._changed:
            while not self._closed and self._lent >= limits.POSTGRES_CONNECTIONS_MAX:
                if patience.left_s == 0:
                    raise StoreBusy(
                        f"all {limits.POSTGRES_CONNECTIONS_MAX} connections of this process to "
                        f"{self._address.shown} are in use"
                    )
                self._changed.wait(patience.left_s)
            self._alive()
            self._lent += 1

    def _open(self, patience: Patience) -> Connection:
        while True:
            try:
                return self.open()
            except psycopg.Error as exc:
                if not is_passing(exc) or self._closed or not patience.pause():
                    raise translate(exc, self._address.shown) from exc

    def give_back(self, database: Connection) -> None:
        """Undo whatever transaction is open, and keep the connection where it can be used again."""
        status = database.info.transaction_status
        try:
            if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                database.fly([("rollback", ())])
                status = database.info.transaction_status
        except psycopg.Error:
            status = TransactionStatus.UNKNOWN
        if status is not TransactionStatus.IDLE:
            self.discard(database)
            return
        self._return_turn(database)

    def discard(self, database: Connection) -> None:
        """Close a connection that is not what it was."""
        database.close()
        self._return_turn(None)

    def _return_turn(self, database: Connection | None) -> None:
        with self._changed:
            self._lent -= 1
            self._changed.notify_all()
            if database is not None and not self._closed:
                self._idle.append(database)
                return
        if database is not None:
            database.close()

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back. A second close is harmless."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for database in idle:
            database.close()
