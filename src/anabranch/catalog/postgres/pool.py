"""The pool of a process's database connections."""

from __future__ import annotations

import psycopg
from psycopg.pq import TransactionStatus

from anabranch import limits
from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.catalog.postgres.clock import ServerClock
from anabranch.catalog.postgres.connection import connect, is_alive, is_transient, translate
from anabranch.catalog.postgres.pipeline import PipelineConnection
from anabranch.catalog.postgres.retry import server_retries
from anabranch.errors import Closed, StoreBusy
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import Retries


class Pool:
    """At most `limits.POSTGRES_CONNECTIONS_MAX` connections, opened when they are needed. Thread-safe."""

    def __init__(self, address: DatabaseAddress, runtime: Runtime, clock: ServerClock) -> None:
        """`clock` gets readings of the server's clock from all connections."""
        self._clock = clock
        self._address = address
        self._runtime = runtime
        self._idle: list[PipelineConnection] = []
        self._in_use = 0
        self._closed = False
        self._changed = runtime.tasks.condition()

    def open(self, *, connect_s: float | None = None, answer_s: float | None = None) -> PipelineConnection:
        """Try once to open a connection that the pool does not track; see `connect`. Raises psycopg.Error."""
        settings = self._runtime.settings
        answer_s = settings.catalog_answer_s if answer_s is None else answer_s
        database = connect(self._address, lock_s=settings.catalog_lock_s, answer_s=answer_s, connect_s=connect_s)
        database.server_clock = self._clock
        return database

    def borrow(self, retries: Retries | None = None) -> PipelineConnection:
        """A live connection, outside a transaction. Waits until the deadline of `retries` for one to be returned, and for a
        server that restarts or fails over. Raises Closed, StoreBusy, StoreUnavailable."""
        retries = retries or server_retries(self._runtime)
        self._reserve(retries)
        try:
            while True:
                with self._changed:
                    database = self._idle.pop() if self._idle else None
                if database is None:
                    return self._open(retries)
                if is_alive(database):
                    return database
                database.close()
        except BaseException:
            self._release(None)
            raise

    def _reserve(self, retries: Retries) -> None:
        with self._changed:
            while not self._closed and self._in_use >= limits.POSTGRES_CONNECTIONS_MAX:
                if retries.left_s == 0:
                    raise StoreBusy(
                        f"all {limits.POSTGRES_CONNECTIONS_MAX} connections of this process to "
                        f"{self._address.shown} are in use: try again, or use fewer threads at once"
                    )
                self._changed.wait(retries.left_s)
            self._require_open()
            self._in_use += 1

    def _open(self, retries: Retries) -> PipelineConnection:
        while True:
            try:
                return self.open(connect_s=retries.left_s)
            except psycopg.Error as exc:
                if not is_transient(exc) or self._closed or not retries.again(exc):
                    raise translate(exc, self._address.shown) from exc

    def give_back(self, database: PipelineConnection) -> None:
        """Return a connection to the pool. Rolls back an open transaction; discards an unusable connection."""
        status = database.info.transaction_status
        try:
            if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                database.run_statements([("rollback", ())])
                status = database.info.transaction_status
        except psycopg.Error:
            status = TransactionStatus.UNKNOWN
        if status is not TransactionStatus.IDLE:
            self.discard(database)
            return
        self._release(database)

    def discard(self, database: PipelineConnection) -> None:
        """Close a broken connection. If the server did not answer on it, the idle ones are closed too: it would probably
        not answer on those either."""
        database.close()
        if database.timed_out:
            with self._changed:
                idle, self._idle = self._idle, []
            for each in idle:
                each.close()
        self._release(None)

    def _release(self, database: PipelineConnection | None) -> None:
        with self._changed:
            self._in_use -= 1
            self._changed.notify_all()
            if database is not None and not self._closed:
                self._idle.append(database)
                return
        if database is not None:
            database.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("store")

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned. A second close is harmless."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for database in idle:
            database.close()
