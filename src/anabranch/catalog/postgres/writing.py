"""Changing the catalog on PostgreSQL, and the locks that this takes.

A transaction without a subject holds the lock `writing` exclusively: names, segments, spans, leases, state entries and
marks of blobs stay as it has read them until it ends, as on SQLite. A transaction with a subject holds `writing` shared
and takes a lock on its subject; for a stream given by name, first the name's lock, then the stream's. So it excludes
only transactions on the same subject and those without one. It may not touch other streams (see `catalog.subject`);
whatever else it touches has a lock of its own. Each such transaction has one subject, locked first, so no two of them
can wait for each other.

Rows of the outbox are numbered in commit order. Transactions that run at the same time write theirs last of all, under
the lock `changes`, which the next transaction gets when this one has ended.

Commits do not take the lock `writing`. They run concurrently and change logs, writers, extents, blobs and requests
under the row locks of their logs. So a transaction locks a log before it reads what a commit may change: `view`, `logs`
and `progress` lock the unsealed logs that they return, in ascending id. From then on lengths and progress do not change
until the transaction ends. `extents` needs no lock, because commits only add after the length. A transaction on the end
of a log (`StreamTail`) locks that log when it begins. A request id is locked before it is looked up, because a unit of
a commit may carry it.

The lock `horizon` is taken shared by commits that carry blobs, and exclusively by a transaction that reads leases in
order to advance the horizon.

A commit locks its logs in ascending id. A transaction that reads two streams may lock in another order, so the two may
wait for each other. Then the commit gives up (`patience` of `functions/append_2.sql`) and is called again. If the database
detects the deadlock first and refuses the transaction's lock, that lock alone is requested again, after a savepoint.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg

from anabranch import limits
from anabranch.catalog import rows
from anabranch.catalog.port import Change, Lease, StreamTail, Subject
from anabranch.catalog.postgres.append import call_values, verdicts
from anabranch.catalog.postgres.log_end import LogEnd
from anabranch.catalog.postgres.pipeline import PipelineConnection, StatementCall
from anabranch.catalog.postgres.round_trips import PostgresRoundTrips
from anabranch.catalog.state.kind import StateKind, compact_json
from anabranch.catalog.subject import SubjectWriting
from anabranch.catalog.tables import Value
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import LogId, Micros, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.producer import ProducerState
from anabranch.model.stream import Extent, StreamInfo, StreamView
from anabranch.runtime.retry import Retries

K = TypeVar("K")
V = TypeVar("V")


class PostgresWriting(PostgresRoundTrips, SubjectWriting):
    """`catalog.port.Writing` over a connection inside a transaction that holds the lock `writing`: exclusively, or
    shared if it has a subject `on`. The transaction has begun when `enter` returns, which waits for those locks."""

    UNIQUE_VIOLATION = pg.UniqueViolation
    CONSTRAINT_VIOLATIONS = (psycopg.IntegrityError, psycopg.DataError)

    def __init__(self, database: PipelineConnection, retries: Retries, on: Subject | None = None) -> None:
        super().__init__(database, on)
        self._retries = retries
        self._locked: set[LogId] = set()
        self._changed_streams: set[StreamId] = set()
        self._streams = set()
        self._names = set()

    def enter(self) -> int:
        """Begin the transaction and take the locks it needs from its start, in one round trip. Returns the catalog's
        format, 0 if it has none. Must be called once, first; if it raises, the transaction may have begun."""
        on = self._on
        calls: list[StatementCall] = [("format", ())]
        match on:
            case None:
                lock: StatementCall = ("lock", ("writing",))
            case StreamTail():
                return self._begin_on_log_end(on)
            case str():
                lock = ("lock_shared", (f"on {on}",))
            case StreamName():
                self._names.add(on)
                lock = ("lock_shared", (f"name {on}",))
                calls += [("lock_stream_by_name", (on.scope, on.name)), ("stream_by_name", (on.scope, on.name))]
            case _:
                self._streams.add(on)
                lock = ("lock_shared", (f"stream {on}",))
                calls.append(("stream_by_id", (on,)))
        found = [answer.rows for answer in self._database.run_statements([("begin_writing", ()), lock, *calls])]
        if not isinstance(on, str | None):
            self._subject_info = next(map(rows.stream, found[-1]), None)
        if isinstance(on, StreamName):
            self._enter_named(on)
        return int(found[2][0][0]) if found[2] else 0

    def _begin_on_log_end(self, on: StreamTail) -> int:
        self._streams.add(on.stream)
        values = {"stream": on.stream, "log": on.log, "writer": on.writer}
        locks: list[StatementCall] = [("lock_shared", (f"stream {on.stream}",)), ("lock_log", (on.log,))]
        *_, log, end = self._database.run_statements([("begin_writing", ()), *locks, ("log_end", values)])
        if not end.rows:
            return 0
        row = end.rows[0]
        stream, extent, progress = row[1:21], row[21 : 21 + rows.EXTENT], row[21 + rows.EXTENT :]
        self._subject_info = None if stream[0] is None else rows.stream(stream)
        if log.rows:
            self._locked.add(on.log)
            last = None if extent[0] is None else rows.extent(extent)
            writer_progress = None if progress[0] is None else rows.progress(progress)
            self._log_end = LogEnd(rows.log(log.rows[0]), last, on.writer, writer_progress)
        return int(row[0])

    def _enter_named(self, name: StreamName) -> None:
        if self._subject_info is not None:
            self._streams.add(self._subject_info.id)
        elif found := self._row_by_alias(name):
            stream = rows.stream(found).id
            self._rows("lock", (f"stream {stream}",))
            self._streams.add(stream)

    def _from_exported(self, table: str, row: Sequence[Value]) -> Sequence[Any]:
        if table not in ("writers", "producers"):
            return row
        *rest, packed, seen_at = row
        assert isinstance(packed, bytes)
        return (*rest, _unpacked(packed), seen_at)

    def wipe(self) -> None:
        # Without it, a concurrent commit could add rows to a table that is empty already.
        with self._database.background(limits.CATALOG_LONG_S):
            self._execute("lock_tables", ())
            super().wipe()

    def skip_ids(self, count: int) -> None:
        for table in ("logs", "blobs", "changes"):
            self._rows(f"skip_{table}", (count,))

    def _encode_recent(self, progress: Progress) -> list[int]:
        return [number for batch in progress.recent for number in batch]

    def _encode_answers(self, producer: ProducerState) -> list[int]:
        return _unpacked(producer.answers.packed)

    def _lock_logs(self, *logs: LogId) -> None:
        """Lock logs before the next query or change."""
        if missing := set(logs) - self._locked:
            if self._locked and min(missing) < max(self._locked):
                self._lock_with_savepoint("lock_logs", sorted(missing))
            else:
                self._unsent.append(("lock_logs", (sorted(missing),)))
            self._locked |= missing

    def _lock_logs_of(self, statement: str, what: object) -> None:
        """Lock the logs of streams, with `statement`. The caller adds them to `_locked` once it has read their ids."""
        if self._locked:
            self._lock_with_savepoint(statement, what)
        else:
            self._unsent.append((statement, (what,)))

    def _lock_with_savepoint(self, statement: str, what: object) -> None:
        while True:
            try:
                self._run_queries([("set_savepoint", ()), (statement, (what,)), ("release_savepoint", ())])
            except pg.DeadlockDetected as exc:
                if not self._retries.again(exc):
                    raise
                self._rows("rollback_to_savepoint")
            else:
                return

    # reads under a lock

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        subject_info = self._subject_info
        if subject_info is not None and stream in (subject_info.id, subject_info.name):
            self._check_found(stream, subject_info)
            return subject_info
        self.prefetch(streams=[stream])
        return super().stream(stream)

    def view(self, stream: StreamId) -> StreamView | None:
        self._lock_logs_of("lock_logs_of_stream", stream)
        view = super().view(stream)
        if view is not None:
            self._locked |= _open_logs(view)
        return view

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        self._lock_logs_of("lock_logs_of_streams", list(streams))
        found = super().views(streams)
        self._locked.update(*map(_open_logs, found.values()))
        return found

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        self._lock_logs(*ids)
        return super().logs(ids)

    def extent_before(self, log: LogId, stop: int) -> Extent | None:
        last = None if self._log_end is None else self._log_end.last
        if last is not None and last.log == log and last.start < stop:
            return last
        return super().extent_before(log, stop)

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        self._lock_logs(log)
        return super().progress(log, writer)

    def producer(self, stream: StreamId, name: str) -> ProducerState | None:
        self._require_subject(stream)
        row = self._row("producer_for_update", (stream, name))
        return None if row is None else rows.producer(row)

    def request(self, request: str) -> tuple[str, str] | None:
        self._lock_before_next(f"request {request}")
        row = self._row("request_for_update", (request,))
        return None if row is None else rows.request(row)

    def leases(self) -> list[Lease]:
        self._lock_before_next("horizon")
        return super().leases()

    def state(self, kind: StateKind[K, V], key: K) -> V | None:
        self._lock_state(kind, key)
        row = self._row("state_for_update", (kind.name, kind.key.encode(key)))
        return None if row is None else kind.decode(rows.state(row)).value

    def _lock_state(self, kind: StateKind[K, Any], key: K) -> None:
        if self._on is not None:
            self._lock_before_next(f"state {kind.name} {kind.key.encode(key)}")

    def changes(self, after: int, limit: int) -> list[Change]:
        self._unsent = self._statements_before_commit()
        return super().changes(after, limit)

    # changes

    def insert_stream(self, info: StreamInfo) -> None:
        super().insert_stream(info)
        self._subject_info = None

    def update_stream(self, info: StreamInfo) -> None:
        super().update_stream(info)
        self._subject_info = None

    def drop_stream(self, stream: StreamId) -> None:
        self._subject_info = None
        super().drop_stream(stream)

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        if not self._prefetched.logs:
            return super().new_log(stream, appended_at=appended_at)
        self._require_subject(stream)
        log = self._prefetched.logs.pop(0)
        self._execute("put_log", (log, stream, appended_at))
        return log

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        self._lock_logs(log)
        super().put_progress(log, writer, progress, now=now)

    def copy_fences(self, log: LogId, successor: LogId) -> None:
        self._lock_logs(log, successor)
        super().copy_fences(log, successor)

    def set_horizon(self, horizon: Micros) -> None:
        self._lock_before_next("horizon")
        super().set_horizon(horizon)

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        end, self._log_end = self._log_end, None
        if end is not None and end.can_decide(unit):
            verdict, written = end.append(unit, now=now)
            if written is not None:
                self._execute("append_part", written)
            return (verdict,)
        values = call_values([unit], blobs, now, lock_timeout_ms=None)
        (answer,) = verdicts([unit], self._row("append", values))
        return answer

    def put_state(self, kind: StateKind[K, V], key: K, value: V) -> None:
        self._lock_state(kind, key)
        super().put_state(kind, key, value)

    def drop_state(self, kind: StateKind[K, Any], key: K) -> None:
        self._lock_state(kind, key)
        super().drop_state(kind, key)

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        if self._on is None:
            super().add_change(stream, kind, detail, now=now)
        else:
            self._changes.append((stream, now, kind, compact_json(dict(detail))))


def _unpacked(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 8}q", packed))


def _open_logs(view: StreamView) -> set[LogId]:
    return {log.id for log in view.logs.values() if not log.sealed}
