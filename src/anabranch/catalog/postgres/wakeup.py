"""Telling other processes of commits, and hearing of theirs: NOTIFY after a commit, LISTEN for tailing readers."""

from __future__ import annotations

import selectors
import socket

import psycopg
from psycopg import sql

from anabranch import limits
from anabranch.catalog.postgres.address import Address
from anabranch.catalog.postgres.flight import SQL, Connection
from anabranch.catalog.postgres.pool import Pool
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

_REOPEN_S = 0.5  # between two attempts to listen again
_PAUSE_S = 0.005  # between two notifications: what is committed meanwhile shares the next one


class Notifier:
    """Sends notifications from a connection of its own. A notification inside a commit would make all commits of the
    server wait for each other; behind it, and one for many, it costs them nothing. It may be lost: who listens looks
    by itself from time to time."""

    def __init__(self, address: Address, pool: Pool, runtime: Runtime) -> None:
        self._channel = address.channel
        self._pool = pool
        self._tasks = runtime.tasks
        self._changed = runtime.tasks.condition()
        self._due = False
        self._closed = False
        self._task: Task | None = None
        self.pid: int | None = None

    def notify(self) -> None:
        """Tell the others soon; returns at once."""
        with self._changed:
            self._due = True
            if self._task is None and not self._closed:
                self._task = self._tasks.spawn("notifier", self._run)
            self._changed.notify_all()

    def _run(self) -> None:
        database: Connection | None = None
        while True:
            with self._changed:
                while not self._due and not self._closed:
                    self._changed.wait()
                if not self._due:
                    break
                self._due = False
            try:
                if database is None:
                    database = self._pool.open()
                    database.execute(SQL["notifying"])
                    self.pid = database.info.backend_pid
                database.fly([("notify", (self._channel,))])
            except psycopg.Error:
                if database is not None:
                    database.close()
                database = None
            if not self._closed:
                self._tasks.sleep(_PAUSE_S)
        if database is not None:
            database.close()

    def close(self) -> None:
        """Send what is due, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._task is not None:
            self._task.join()


class Listener:
    """Keeps a number that rises whenever something may have been committed.

    Begins to listen when it is first asked. While the connection is lost, and where notifications do not come through
    (some proxies swallow them), it looks every `limits.LISTEN_POLL_US` whether the database has had a transaction.
    """

    def __init__(self, address: Address, pool: Pool, runtime: Runtime, notifier: Notifier) -> None:
        self._channel = address.channel
        self._pool = pool
        self._tasks = runtime.tasks
        self._notifier = notifier
        self._lock = runtime.tasks.lock()
        self._number = 0
        self._newest: str | None = None
        self._task: Task | None = None
        self._closed = False
        self._wake, self._woken = socket.socketpair()

    def bump(self) -> None:
        """Something was committed, or may have been."""
        with self._lock:
            self._number += 1

    def token(self) -> int:
        """The number now."""
        if self._task is None:
            with self._lock:
                if self._task is None and not self._closed:
                    # Here and now, so that nothing is committed unheard between the first number and the second.
                    database = self._listen()
                    self._task = self._tasks.spawn("listener", lambda: self._run(database))
        return self._number

    def _listen(self) -> Connection | None:
        try:
            database = self._pool.open()
        except psycopg.Error:
            return None
        try:
            database.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
            self._newest = self._look(database)
        except psycopg.Error:
            database.close()
            return None
        return database

    def _run(self, database: Connection | None) -> None:
        while not self._closed:
            if database is None:
                if self._pause(_REOPEN_S):
                    continue
                database = self._listen()
                if database is not None:
                    self.bump()  # whatever was said meanwhile was missed
                continue
            try:
                self._hear(database)
            except (psycopg.Error, OSError):
                database.close()
                database = None
        if database is not None:
            database.close()
        self._woken.close()

    def _hear(self, database: Connection) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(database.fileno(), selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            said = selector.select(limits.LISTEN_POLL_US / 1e6)
        if not said:
            newest = self._look(database)
            if newest != self._newest:
                self._newest = newest
                self.bump()
            return
        database.pgconn.consume_input()
        heard = False
        while (notice := database.pgconn.notifies()) is not None:
            heard = heard or notice.be_pid != self._notifier.pid
        if heard:
            self.bump()
        if database.pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the connection that listens was closed")

    def _look(self, database: Connection) -> str | None:
        row = database.execute(SQL["newest_transaction"]).fetchone()
        return None if row is None else str(row[0])

    def _pause(self, seconds: float) -> bool:
        """Wait; True where it was closed meanwhile."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def close(self) -> None:
        """End. A second close is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake.close()
        if self._task is not None:
            self._task.join()
        else:
            self._woken.close()
