"""Changing the catalog on PostgreSQL, and which locks that takes.

A transaction holds the lock `writing`, which one has at a time: what it reads of names, segments, spans, leases, pieces
and marks of blobs stays as it is until it ends, as on SQLite. Commits do not take that lock. They run beside it and touch
logs, writers, extents, blobs and requests, behind the row locks of their logs. So a transaction locks a log before it
reads what a commit may change of it: `view`, `logs` and `progress` lock the unsealed logs they answer with, in ascending
id, and from then on no length moves and no progress changes until the transaction ends. `extents` needs no lock: commits only add
behind the length. A request id is locked before it is looked up, because a unit of a commit may carry it.

The lock `horizon` is shared by commits that carry blobs and taken alone by who looks at leases in order to advance it.

A commit locks its logs in ascending id. A transaction that looks at two streams may lock in another order, and then
the two may wait for each other. The commit gives way (`patience` of the commit function) and is called again; where
the database notices first and refuses the transaction's lock, that lock alone is asked for again, behind a savepoint.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from psycopg import errors as pg

from anabranch.catalog.port import Lease
from anabranch.catalog.postgres.append import call_values, verdicts
from anabranch.catalog.postgres.connection import SQL, Connection
from anabranch.catalog.postgres.patience import Patience
from anabranch.catalog.postgres.reading import PostgresReading
from anabranch.catalog.tables import Value
from anabranch.catalog.writing import SqlWriting
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import LogId, Micros, StreamId, WriterId
from anabranch.model.stream import StreamView


class PostgresWriting(PostgresReading, SqlWriting):
    """`catalog.port.Writing` over a connection inside a transaction that holds the lock `writing`."""

    TAKEN = pg.UniqueViolation

    def __init__(self, database: Connection, patience: Patience) -> None:
        super().__init__(database)
        self._patience = patience
        self._locked: set[LogId] = set()

    def _do(self, name: str, values: Any) -> int:
        return self._database.execute(SQL[name], values).rowcount

    def _many(self, name: str, values: Sequence[Any]) -> None:
        with self._database.cursor() as cursor:
            cursor.executemany(SQL[name], values)

    def _loadable(self, table: str, row: Sequence[Value]) -> Sequence[Any]:
        if table != "writers":
            return row
        *rest, recent, seen_at = row
        assert isinstance(recent, bytes)
        return (*rest, list(struct.unpack(f"<{len(recent) // 8}q", recent)), seen_at)

    def wipe(self) -> None:
        # A commit that runs beside it would add rows to a table that is empty already.
        self._do("lock_tables", ())
        super().wipe()

    def skip_ids(self, count: int) -> None:
        for table in ("logs", "blobs", "changes"):
            self._rows(f"skip_{table}", (count,))

    def _recent(self, progress: Progress) -> list[int]:
        return [number for batch in progress.recent for number in batch]

    def _lock_logs(self, *logs: LogId) -> None:
        if missing := set(logs) - self._locked:
            disordered = bool(self._locked) and min(missing) < max(self._locked)
            self._lock("lock_logs", sorted(missing), disordered=disordered)

    def _lock(self, statement: str, what: object, *, disordered: bool) -> None:
        while True:
            try:
                with self._database.transaction() if disordered else nullcontext():
                    found = self._rows(statement, (what,))
            except pg.DeadlockDetected:
                if not disordered or not self._patience.pause():
                    raise
            else:
                self._locked.update(log for (log,) in found)
                return

    # what is read behind a lock

    def view(self, stream: StreamId) -> StreamView | None:
        self._lock("lock_logs_of_stream", stream, disordered=bool(self._locked))
        return super().view(stream)

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        self._lock_logs(*ids)
        return super().logs(ids)

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        self._lock_logs(log)
        return super().progress(log, writer)

    def request(self, request: str) -> tuple[str, str] | None:
        self._rows("lock", (f"request {request}",))
        return super().request(request)

    def leases(self) -> list[Lease]:
        self._rows("lock", ("horizon",))
        return super().leases()

    # what is changed

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        self._lock_logs(log)
        super().put_progress(log, writer, progress, now=now)

    def inherit_fences(self, log: LogId, heir: LogId) -> None:
        self._lock_logs(log, heir)
        super().inherit_fences(log, heir)

    def set_horizon(self, horizon: Micros) -> None:
        self._rows("lock", ("horizon",))
        super().set_horizon(horizon)

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        values = call_values([unit], blobs, now, patience_ms=None)
        (answer,) = verdicts([unit], self._row("append", values))
        return answer
