"""The PostgreSQL catalog: connections, transactions, and what is done when the server goes away in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import errors as pg

from anabranch.catalog.port import Reading, Subject, Writing
from anabranch.catalog.postgres.address import Address
from anabranch.catalog.postgres.append import call_values, verdicts
from anabranch.catalog.postgres.connection import AGAIN, is_lost, too_new, translate, translated
from anabranch.catalog.postgres.flight import Connection
from anabranch.catalog.postgres.migrate import FORMAT, check_format, migrate
from anabranch.catalog.postgres.patience import Patience
from anabranch.catalog.postgres.pool import Pool
from anabranch.catalog.postgres.reading import PostgresReading
from anabranch.catalog.postgres.wakeup import Listener, Notifier
from anabranch.catalog.postgres.writing import PostgresWriting
from anabranch.errors import AnabranchError, AppendUncertain, Closed, StoreBusy, StoreUnavailable
from anabranch.model.append import Appended, Commit, Verdict
from anabranch.runtime.ports import Runtime

T = TypeVar("T")

# Less than the second after which PostgreSQL looks for deadlocks and picks a victim: of a commit and a transaction that
# wait for each other, the commit gives way, because it can be called again.
_COMMIT_PATIENCE_MS = 700


class PostgresCatalog:
    """`catalog.port.Catalog` in one schema of a PostgreSQL database. See `writing.py` for the locks it takes.

    A server that restarts or fails over is waited out for `settings.catalog_lock_s` by every call that has not begun to
    commit. One that is lost while a commit is under way makes its outcome unknown: AppendUncertain.
    """

    def __init__(self, url: str, runtime: Runtime, *, create: bool = True) -> None:
        self._runtime = runtime
        self._address = Address.parse(url)
        self._where = self._address.shown
        self._pool = Pool(self._address, runtime)
        self._notifier = Notifier(self._address, self._pool, runtime)
        self._listener = Listener(self._address, self._pool, runtime, self._notifier)
        self._closed = False
        try:
            database = self._pool.borrow()
            try:
                migrate(database, self._address.schema, self._where, create=create)
            finally:
                self._pool.give_back(database)
        except BaseException:
            self.close()
            raise

    @property
    def shown(self) -> str:
        """Where it is, for people: without a password."""
        return self._where

    # transactions

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """See the port."""
        database, _ = self._begin(lambda database: database.fly([("begin_reading", ())]))
        try:
            with translated(self._where):
                yield PostgresReading(database)
        finally:
            self._pool.give_back(database)

    @contextmanager
    def writing(self, on: Subject | None = None) -> Iterator[Writing]:
        """See the port."""
        database, transaction = self._begin(lambda database: self._enter(database, on))
        lent = True
        try:
            with translated(self._where):
                yield transaction
            try:
                committed = transaction.commit()
            except psycopg.Error as exc:
                if not is_lost(database, exc):
                    raise translate(exc, self._where) from exc
                lent = False
                self._pool.discard(database)
                raise self._uncertain(exc) from exc
            if not committed:
                raise StoreUnavailable(f"the catalog {self._where} undid a transaction that had failed before")
        finally:
            if lent:
                self._pool.give_back(database)
        self._tell()

    def _enter(self, database: Connection, on: Subject | None) -> PostgresWriting:
        transaction = PostgresWriting(database, Patience(self._runtime), on)
        found = transaction.enter()
        # A newer release may have migrated the catalog since this process opened it.
        if found != FORMAT:
            raise too_new(self._where, found, FORMAT)
        return transaction

    def _begin(self, begin: Callable[[Connection], T]) -> tuple[Connection, T]:
        """A connection inside a new transaction, and what `begin` made of it."""
        patience = Patience(self._runtime)
        while True:
            database = self._pool.borrow(patience)
            try:
                return database, begin(database)
            except psycopg.Error as exc:
                lost = is_lost(database, exc)
                (self._pool.discard if lost else self._pool.give_back)(database)
                if not lost or not patience.pause():
                    raise translate(exc, self._where) from exc
            except BaseException:
                self._pool.give_back(database)
                raise

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """See the port."""
        values = call_values(commit.units, commit.blobs, commit.now, patience_ms=_COMMIT_PATIENCE_MS)
        patience = Patience(self._runtime)
        while True:
            database = self._pool.borrow(patience)
            try:
                (answer,) = database.fly([("append", values)])
            except AGAIN as exc:
                self._pool.give_back(database)
                if not patience.pause():
                    raise StoreBusy(f"another client has held the catalog {self._where} for too long") from exc
                continue
            except psycopg.Error as exc:
                raise self._failed(database, exc) from exc
            except BaseException:
                self._pool.discard(database)
                raise
            self._pool.give_back(database)
            decided = verdicts(commit.units, answer.rows[0])
            if any(isinstance(each, Appended) and not each.duplicate for unit in decided for each in unit):
                self._tell()
            return decided

    def _failed(self, database: Connection, exc: psycopg.Error) -> AnabranchError:
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
            # A server that became a standby stays one: the next connection may find the new primary.
            standby = isinstance(exc, pg.ReadOnlySqlTransaction)
            (self._pool.discard if standby else self._pool.give_back)(database)
        return translate(exc, self._where)

    def _uncertain(self, exc: psycopg.Error) -> AppendUncertain:
        why = " ".join(str(exc).split())
        return AppendUncertain(f"the connection to {self._where} was lost while it was committing: {why}")

    # waking others

    def _tell(self) -> None:
        self._listener.bump()
        self._notifier.notify()

    def token(self) -> int:
        """See the port. Of other processes' commits it tells some milliseconds later; at most `limits.LISTEN_POLL_US`
        where notifications are lost. Never raises for a server that is away."""
        if self._closed:
            raise Closed("store")
        return self._listener.token()

    def close(self) -> None:
        """See the port."""
        self._closed = True
        self._notifier.close()
        self._listener.close()
        self._pool.close()
