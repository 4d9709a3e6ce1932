"""Notifications of commits between processes: NOTIFY after a commit, LISTEN for tailing readers."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg import sql

from anabranch import limits
from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.catalog.postgres.pipeline import SQL, PipelineConnection
from anabranch.catalog.postgres.pool import Pool
from anabranch.errors import AnabranchError
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

_REOPEN_S = 0.5  # between two attempts to listen again
_PAUSE_S = 0.005  # between two notifications: commits in between share the next one


class Notifier:
    """Sends notifications from a connection of its own. A notification inside a commit would serialize all commits of
    the server. Sent after the commits, one for many of them, it does not delay them. It may be lost, so listeners also
    poll."""

    def __init__(self, address: DatabaseAddress, pool: Pool, runtime: Runtime) -> None:
        self._channel = address.channel
        self._pool = pool
        self._tasks = runtime.tasks
        self._changed = runtime.tasks.condition()
        self._due = False
        self._closed = False
        self._task: Task | None = None
        self.pid: int | None = None

    def notify(self) -> None:
        """Notify the other processes soon; returns at once."""
        with self._changed:
            self._due = True
            if self._task is None and not self._closed:
                self._task = self._tasks.spawn("notifier", self._run)
            self._changed.notify_all()

    def _run(self) -> None:
        database: PipelineConnection | None = None
        while True:
            with self._changed:
                while not self._due and not self._closed:
                    self._changed.wait()
                if not self._due:
                    break
                self._due = False
            try:
                if database is None:
                    database = self._pool.open(answer_s=limits.WAKEUP_ANSWER_S)
                    database.answer_s = limits.WAKEUP_ANSWER_S
                    database.execute(SQL["set_async_commit"])
                    self.pid = database.info.backend_pid
                database.run_statements([("notify", (self._channel,))])
            except psycopg.Error:
                if database is not None:
                    database.close()
                database = None
            if not self._closed:
                self._tasks.sleep(_PAUSE_S)
        if database is not None:
            database.close()

    def close(self) -> None:
        """Send a notification that is due, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._task is not None:
            self._task.join(limits.TASK_END_S)


class Listener:
    """Keeps a number that increases whenever something may have been committed.

    Starts to listen at the first call of `token`. If notifications do not arrive (some proxies drop them), it checks
    every `limits.LISTEN_POLL_US` whether the database has had a transaction. A lost connection is reopened.
    """

    def __init__(self, address: DatabaseAddress, pool: Pool, runtime: Runtime, notifier: Notifier) -> None:
        self._channel = address.channel
        self._pool = pool
        self._tasks = runtime.tasks
        self._notifier = notifier
        self._lock = runtime.tasks.lock()
        self._number = 0
        self._newest: str | None = None
        self._task: Task | None = None
        self._closed = False
        self.changed: Callable[[], None] | None = None  # called after a notification, on the listener's task
        self._wake, self._woken = socket.socketpair()

    def bump(self) -> None:
        """Increase the number: something was, or may have been, committed."""
        with self._lock:
            self._number += 1

    def token(self) -> int:
        """The current number. The first call starts listening."""
        if self._task is None:
            with self._lock:
                if self._task is None and not self._closed:
                    # On this thread, so that no commit is missed between the first number and the second.
                    database = self._listen()
                    self._task = self._tasks.spawn("listener", lambda: self._run(database))
        return self._number

    def _listen(self) -> PipelineConnection | None:
        try:
            database = self._pool.open(answer_s=limits.WAKEUP_ANSWER_S)
        except psycopg.Error:
            return None
        database.answer_s = limits.WAKEUP_ANSWER_S
        try:
            database.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
            self._newest = self._newest_transaction(database)
        except psycopg.Error:
            database.close()
            return None
        return database

    def _run(self, database: PipelineConnection | None) -> None:
        while not self._closed:
            if database is None:
                if self._pause(_REOPEN_S):
                    continue
                database = self._listen()
                if database is not None:
                    self.bump()  # notifications may have been missed in between
                continue
            try:
                self._wait_for_notification(database)
            except (psycopg.Error, OSError):
                database.close()
                database = None
        if database is not None:
            database.close()
        self._woken.close()

    def _wait_for_notification(self, database: PipelineConnection) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(database.fileno(), selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            ready = selector.select(limits.LISTEN_POLL_US / 1e6)
        if not ready:
            newest = self._newest_transaction(database)
            if newest != self._newest:
                self._newest = newest
                self.bump()
            return
        database.pgconn.consume_input()
        notified = False
        while (notice := database.pgconn.notifies()) is not None:
            notified = notified or notice.be_pid != self._notifier.pid
        if notified:
            self.bump()
            if self.changed is not None:
                with suppress(AnabranchError):  # the next reader gets the error too
                    self.changed()
        if database.pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the connection that listens was closed")

    def _newest_transaction(self, database: PipelineConnection) -> str | None:
        row = database.execute(SQL["newest_transaction"]).fetchone()
        return None if row is None else str(row[0])

    def _pause(self, seconds: float) -> bool:
        """Wait; True if the listener was closed in between."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def close(self) -> None:
        """Stop listening. A second close is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake.close()
        if self._task is not None:
            self._task.join(limits.TASK_END_S)
        else:
            self._woken.close()
