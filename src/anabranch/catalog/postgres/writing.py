"""Changing the catalog on PostgreSQL, and which locks that takes.

A transaction that does not say what it is on holds the lock `writing` alone: what it reads of names, segments, spans,
leases, pieces and marks of blobs stays as it is until it ends, as on SQLite. One that says so shares `writing` and takes
a lock on its subject, so that it excludes those on the same subject and those on everything, and nobody else: a name's
lock before its stream's. It may not look further (`_WHOLE`, `_own`); what it touches besides has a lock of its own. Each
of them has one subject, taken first, so no two of them can wait for each other.

Rows of the outbox are numbered in the order of their commits. Side by side, they are written last of all, behind the lock
`changes`, which the next transaction gets when this one has ended.

Commits do not take the lock `writing`. They run beside it and touch
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

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import errors as pg

from anabranch.catalog import rows
from anabranch.catalog.port import Change, Checkpointed, Lease, Subject
from anabranch.catalog.postgres.append import call_values, verdicts
from anabranch.catalog.postgres.connection import SQL, Connection
from anabranch.catalog.postgres.patience import Patience
from anabranch.catalog.postgres.reading import PostgresReading
from anabranch.catalog.tables import Value
from anabranch.catalog.writing import SqlWriting
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView

# Statements that concern more than one stream: only for who holds the lock `writing` alone.
_WHOLE = {
    "scopes",
    "put_scope",
    "drop_scope",
    "streams",
    "aliases",
    "logs_after",
    "spans_of_log",
    "fragmented",
    "drop_log",
    "drop_extents",
    "leases",
    "pieces",
    "put_meta",
    "blobs_after",
    "blob_in_use",
    "extents_of_blob",
    "set_blob_dead",
    "drop_blob",
    "drop_progress_before",
    "drop_requests_before",
    "drop_changes_before",
}


# Changes of which nobody asks what came of them: they may wait for the next question.
_UNANSWERED = {
    *("put_schema", "put_segment", "put_span", "drop_spans", "update_log", "put_progress", "inherit_fences"),
    *("put_piece", "drop_piece", "record_request", "add_change", "insert_extent", "set_blob_dead", "drop_blob"),
}


class PostgresWriting(PostgresReading, SqlWriting):
    """`catalog.port.Writing` over a connection inside a transaction that holds the lock `writing`: alone, or shared
    where it is `on` something. Waits for that to be free."""

    TAKEN = pg.UniqueViolation

    def __init__(self, database: Connection, patience: Patience, on: Subject | None = None) -> None:
        super().__init__(database)
        self._patience = patience
        self._locked: set[LogId] = set()
        self._on = on
        self._streams: set[StreamId] = set()  # those it is on: one, as soon as that exists
        self._names: set[StreamName] = set()
        self._changes: list[tuple[Any, ...]] = []  # not written yet
        self._unsent: list[tuple[str, Any]] = []  # changes that go out with the next question, in one round trip
        if on is not None:
            self._enter(on)

    def _enter(self, on: Subject) -> None:
        if isinstance(on, str):
            self._take(f"on {on}")
            return
        stream: StreamId | None
        if isinstance(on, StreamName):
            self._take(f"name {on}")
            self._names.add(on)
            found = super().stream(on)
            stream = None if found is None else found.id
        else:
            stream = on
        if stream is not None:
            self._take(f"stream {stream}")
            self._streams.add(stream)

    def finish(self) -> None:
        """Write what is written last. To be called when nothing follows but the commit."""
        if self._changes:
            self._take("changes")
        for values in self._changes:
            self._do("add_change", values)
        self._changes.clear()
        self._send()

    def _take(self, lock: str) -> None:
        super()._rows("lock", (lock,))

    def _own(self, stream: StreamId) -> None:
        assert self._on is None or stream in self._streams, f"a transaction on {self._on} touched stream {stream:016x}"

    def _allow(self, statement: str) -> None:
        assert self._on is None or statement not in _WHOLE, f"a transaction on {self._on} asked for '{statement}'"

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        return self._several([(name, values)])[0]

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        return next(iter(self._rows(name, values)), None)

    def _several(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        for name, _ in queries:
            self._allow(name)
        unsent, self._unsent = self._unsent, []
        if not unsent and len(queries) == 1:
            return [super()._rows(*queries[0])]
        return super()._several([*unsent, *queries])[len(unsent) :]

    def _do(self, name: str, values: Any) -> int:
        self._allow(name)
        if name in _UNANSWERED:
            self._unsent.append((name, values))
            return 0
        if not self._unsent:
            return self._database.execute(SQL[name], values).rowcount
        unsent, self._unsent = self._unsent, []
        return self._flight([*unsent, (name, values)])[-1].rowcount

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent:
            self._flight(unsent)

    def _many(self, name: str, values: Sequence[Any]) -> None:
        self._send()
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
        asked: list[tuple[str, Any]] = [(statement, (what,))]
        if disordered:
            asked = [("set_savepoint", ()), *asked, ("release_savepoint", ())]
        while True:
            try:
                found = self._several(asked)[1 if disordered else 0]
            except pg.DeadlockDetected:
                if not disordered or not self._patience.pause():
                    raise
                self._rows("undo_to_savepoint")
            else:
                self._locked.update(log for (log,) in found)
                return

    # what is read behind a lock

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        found = super().stream(stream)
        if self._on is not None:
            own = stream in self._names or stream in self._streams or (found is not None and found.id in self._streams)
            assert own, f"a transaction on {self._on} looked at {stream}"
            if found is not None:
                self._names.add(found.name)
        return found

    def view(self, stream: StreamId) -> StreamView | None:
        self._own(stream)
        self._lock("lock_logs_of_stream", stream, disordered=bool(self._locked))
        view = super().view(stream)
        if view is not None and self._on is not None:
            self._names.add(view.info.name)
        return view

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        assert self._on is None, f"a transaction on {self._on} looked at several streams"
        self._lock("lock_logs_of_streams", list(streams), disordered=bool(self._locked))
        return super().views(streams)

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        self._lock_logs(*ids)
        found = super().logs(ids)
        for log in found.values():
            if not log.sealed:
                self._own(log.stream)
        return found

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        self._lock_logs(log)
        return super().progress(log, writer)

    def request(self, request: str) -> tuple[str, str] | None:
        self._take(f"request {request}")
        row = self._row("request_again", (request,))
        return None if row is None else (row[0], row[1])

    def leases(self) -> list[Lease]:
        self._take("horizon")
        return super().leases()

    def piece(self, kind: str, name: str) -> Checkpointed | None:
        self._take_piece(kind, name)
        row = self._row("piece_again", (kind, name))
        return None if row is None else Checkpointed(row[0], row[1], json.loads(row[2]))

    def _take_piece(self, kind: str, name: str) -> None:
        if self._on is not None:
            self._take(f"piece {kind} {name}")

    def changes(self, after: int, limit: int) -> list[Change]:
        self.finish()
        return super().changes(after, limit)

    # what is changed

    def insert_stream(self, info: StreamInfo) -> None:
        assert self._on is None or info.name in self._names, f"a transaction on {self._on} made {info.name}"
        super().insert_stream(info)
        self._streams.add(info.id)

    def update_stream(self, info: StreamInfo) -> None:
        self._own(info.id)
        assert self._on is None or info.name in self._names, f"a transaction on {self._on} renamed it {info.name}"
        super().update_stream(info)

    def drop_stream(self, stream: StreamId) -> None:
        self._own(stream)
        super().drop_stream(stream)

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        self._own(stream)
        super().put_segment(stream, segment)

    def put_span(self, stream: StreamId, span: Span) -> None:
        self._own(stream)
        super().put_span(stream, span)

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        self._own(stream)
        super().drop_spans(stream, segment)

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        self._own(stream)
        return super().new_log(stream, appended_at=appended_at)

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        self._lock_logs(log)
        super().put_progress(log, writer, progress, now=now)

    def inherit_fences(self, log: LogId, heir: LogId) -> None:
        self._lock_logs(log, heir)
        super().inherit_fences(log, heir)

    def set_horizon(self, horizon: Micros) -> None:
        self._take("horizon")
        super().set_horizon(horizon)

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        values = call_values([unit], blobs, now, patience_ms=None)
        (answer,) = verdicts([unit], self._row("append", values))
        return answer

    def put_piece(self, piece: Checkpointed) -> None:
        self._take_piece(piece.kind, piece.name)
        super().put_piece(piece)

    def drop_piece(self, kind: str, name: str) -> None:
        self._take_piece(kind, name)
        super().drop_piece(kind, name)

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        if self._on is None:
            super().add_change(stream, kind, detail, now=now)
        else:
            self._changes.append((stream, now, kind, rows.compact_json(dict(detail))))
