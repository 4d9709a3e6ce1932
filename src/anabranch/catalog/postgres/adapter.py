"""The PostgreSQL catalog: connections, transactions, and the handling of a server that becomes unavailable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import errors as pg

from anabranch.catalog.port import Reading, Subject, Writing
from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.catalog.postgres.append import call_values, verdicts
from anabranch.catalog.postgres.clock import ServerClock
from anabranch.catalog.postgres.connection import RETRYABLE, is_lost, too_new, translate, translated
from anabranch.catalog.postgres.migrate import FORMAT, check_format, migrate
from anabranch.catalog.postgres.pipeline import PipelineConnection
from anabranch.catalog.postgres.pool import Pool
from anabranch.catalog.postgres.reading import PostgresReading
from anabranch.catalog.postgres.retry import lock_retries, server_retries
from anabranch.catalog.postgres.wakeup import Listener, Notifier
from anabranch.catalog.postgres.writing import PostgresWriting
from anabranch.errors import AnabranchError, AppendUncertain, Closed, StoreBusy, StoreUnavailable
from anabranch.model.append import Appended, Commit, Verdict
from anabranch.runtime.clock import Clock
from anabranch.runtime.ports import Runtime

T = TypeVar("T")

# Less than PostgreSQL's deadlock_timeout of one second: if a commit and a transaction wait for each other, the commit gives
# up, because it can be called again.
_COMMIT_LOCK_TIMEOUT_MS = 700


class PostgresCatalog:
    """`catalog.port.Catalog` in one schema of a PostgreSQL database. See `writing.py` for the locks it takes.

    While the server restarts or fails over, every call that has not begun to commit retries for
    `settings.catalog_lock_s`. If the connection is lost during a commit, the outcome is unknown: AppendUncertain.
    """

    def __init__(self, url: str, runtime: Runtime, *, create: bool = True) -> None:
        self._runtime = runtime
        self._server_clock = ServerClock(runtime.clock)
        self._address = DatabaseAddress.parse(url)
        self._where = self._address.shown
        self._pool = Pool(self._address, runtime, self._server_clock)
        self._notifier = Notifier(self._address, self._pool, runtime)
        self._listener = Listener(self._address, self._pool, runtime, self._notifier)
        self._closed = False
        try:
            database = self._pool.borrow()
            try:
                migrate(database, self._address.schema, self._where, create=create)
                with translated(self._where):
                    database.run_statements([])  # brings the first reading of the server's clock
            finally:
                self._pool.give_back(database)
        except BaseException:
            self.close()
            raise

    @property
    def shown(self) -> str:
        """The catalog's address for messages, without a password."""
        return self._where

    @property
    def clock(self) -> Clock:
        return self._runtime.catalog_clock or self._server_clock

    # transactions

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        database, _ = self._begin(lambda database: database.run_statements([("begin_reading", ())]))
        try:
            with translated(self._where):
                yield PostgresReading(database)
        finally:
            self._pool.give_back(database)

    @contextmanager
    def writing(self, subject: Subject | None = None) -> Iterator[Writing]:
        database, transaction = self._begin(lambda database: self._enter(database, subject))
        borrowed = True
        try:
            with translated(self._where):
                yield transaction
            try:
                committed = transaction.commit()
            except psycopg.Error as exc:
                if not is_lost(database, exc):
                    raise translate(exc, self._where) from exc
                borrowed = False
                self._pool.discard(database)
                raise self._uncertain(exc) from exc
            if not committed:
                raise StoreUnavailable(f"the catalog {self._where} rolled back a transaction after an earlier error")
        finally:
            if borrowed:
                self._pool.give_back(database)
        self._notify()

    def _enter(self, database: PipelineConnection, on: Subject | None) -> PostgresWriting:
        transaction = PostgresWriting(database, lock_retries(self._runtime), on)
        found = transaction.enter()
        # A newer release may have migrated the catalog since this process opened it.
        if found != FORMAT:
            raise too_new(self._where, found, FORMAT)
        return transaction

    def _begin(self, begin: Callable[[PipelineConnection], T]) -> tuple[PipelineConnection, T]:
        """Borrow a connection and call `begin`, which begins a transaction on it. Tries again if the connection was
        lost. Returns the connection and the result of `begin`."""
        retries = server_retries(self._runtime)
        while True:
            database = self._pool.borrow(retries)
            try:
                return database, begin(database)
            except psycopg.Error as exc:
                lost = is_lost(database, exc)
                (self._pool.discard if lost else self._pool.give_back)(database)
                if not lost or not retries.again(exc):
                    raise translate(exc, self._where) from exc
            except BaseException:
                self._pool.give_back(database)
                raise

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        values = call_values(commit.units, commit.blobs, commit.now, lock_timeout_ms=_COMMIT_LOCK_TIMEOUT_MS)
        retries, contended = server_retries(self._runtime), lock_retries(self._runtime)
        while True:
            database = self._pool.borrow(retries)
            try:
                (answer,) = database.run_statements([("append", values)])
            except RETRYABLE as exc:
                self._pool.give_back(database)
                if not contended.again(exc):
                    raise StoreBusy(f"another client has held the catalog {self._where} for too long") from exc
                continue
            except psycopg.Error as exc:
                raise self._handle_error(database, exc) from exc
            except BaseException:
                self._pool.discard(database)
                raise
            self._pool.give_back(database)
            decided = verdicts(commit.units, answer.rows[0])
            if any(isinstance(each, Appended) and not each.duplicate for unit in decided for each in unit):
                self._notify()
            return decided

    def _handle_error(self, database: PipelineConnection, exc: psycopg.Error) -> AnabranchError:
        if is_lost(database, exc):
            self._pool.discard(database)
            return self._uncertain(exc)
        try:
            if isinstance(exc, pg.UndefinedFunction | pg.UndefinedTable | pg.UndefinedColumn):
                with translated(self._where):
                    check_format(database, self._address.schema, self._where)
        except AnabranchError as newer:
            return newer
        finally:
            # A server that became a standby stays one, but a new connection may reach the new primary.
            standby = isinstance(exc, pg.ReadOnlySqlTransaction)
            (self._pool.discard if standby else self._pool.give_back)(database)
        return translate(exc, self._where)

    def _uncertain(self, exc: psycopg.Error) -> AppendUncertain:
        why = " ".join(str(exc).split())
        return AppendUncertain(f"the connection to {self._where} was lost while it was committing: {why}")

    # waking other processes

    def _notify(self) -> None:
        self._listener.bump()
        self._notifier.notify()

    def token(self) -> int:
        """See the port. Reflects other processes' commits a few milliseconds later, or up to `limits.LISTEN_POLL_US`
        later if notifications are lost. Never raises because the server is unavailable."""
        if self._closed:
            raise Closed("store")
        return self._listener.token()

    def on_change(self, changed: Callable[[], None]) -> bool:
        if self._listener.changed is not None:
            return False
        self._listener.changed = changed
        self._listener.token()
        return True

    def translated(self, error: Exception) -> Exception:
        return translate(error, self._address.shown) if isinstance(error, psycopg.Error) else error

    def close(self) -> None:
        self._closed = True
        self._notifier.close()
        self._listener.close()
        self._pool.close()
