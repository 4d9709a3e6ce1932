"""Changing the catalog on PostgreSQL, and which locks that takes.

A transaction that does not say what it is on holds the lock `writing` alone: what it reads of names, segments, spans,
leases, pieces and marks of blobs stays as it is until it ends, as on SQLite. One that says so shares `writing` and takes
a lock on its subject, so that it excludes those on the same subject and those on everything, and nobody else: a name's
lock before its stream's. It may not look further (`asking._WHOLE`, `_own`); what it touches besides has a lock of its own. Each
of them has one subject, taken first, so no two of them can wait for each other.

Rows of the outbox are numbered in the order of their commits. Side by side, they are written last of all, behind the lock
`changes`, which the next transaction gets when this one has ended.

Commits do not take the lock `writing`. They run beside it and touch
logs, writers, extents, blobs and requests, behind the row locks of their logs. So a transaction locks a log before it
reads what a commit may change of it: `view`, `logs` and `progress` lock the unsealed logs they answer with, in ascending
id, and from then on no length moves and no progress changes until the transaction ends. `extents` needs no lock: commits only add
behind the length. One that is on the end of a log locks that log when it begins. A request id is locked before it is looked
up, because a unit of a commit may carry it.

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
from anabranch.catalog.port import Change, Checkpointed, Lease, StreamEnd, Subject
from anabranch.catalog.postgres.append import call_values, verdicts
from anabranch.catalog.postgres.asking import PostgresAsking
from anabranch.catalog.postgres.flight import Asked, Connection
from anabranch.catalog.postgres.log_end import LogEnd
from anabranch.catalog.postgres.patience import Patience
from anabranch.catalog.tables import Value
from anabranch.catalog.writing import SqlWriting
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.stream import Extent, Segment, Span, StreamInfo, StreamView


class PostgresWriting(PostgresAsking, SqlWriting):
    """`catalog.port.Writing` over a connection inside a transaction that holds the lock `writing`: alone, or shared
    where it is `on` something. It has begun when `enter` returns, which waits for those locks."""

    TAKEN = pg.UniqueViolation

    def __init__(self, database: Connection, patience: Patience, on: Subject | None = None) -> None:
        super().__init__(database, on)
        self._patience = patience
        self._locked: set[LogId] = set()
        self._streams: set[StreamId] = set()  # those it is on: one, as soon as that exists
        self._names: set[StreamName] = set()

    def enter(self) -> int:
        """Begin the transaction and take the locks it needs from its start, in one round trip. Returns the catalog's format,
        0 where it has none. To be called once, before all else; where it raises, the transaction may have begun."""
        on = self._on
        asked: list[Asked] = [("format", ())]
        match on:
            case None:
                lock: Asked = ("lock", ("writing",))
            case StreamEnd():
                return self._enter_end(on)
            case str():
                lock = ("lock_beside", (f"on {on}",))
            case StreamName():
                self._names.add(on)
                lock = ("lock_beside", (f"name {on}",))
                asked += [("lock_stream_named", (on.scope, on.name)), ("stream_by_name", (on.scope, on.name))]
            case _:
                self._streams.add(on)
                lock = ("lock_beside", (f"stream {on}",))
                asked.append(("stream_by_id", (on,)))
        found = [answer.rows for answer in self._database.fly([("begin_writing", ()), lock, *asked])]
        if not isinstance(on, str | None):
            self._known = next(map(rows.stream, found[-1]), None)
        if isinstance(on, StreamName):
            self._enter_named(on)
        return int(found[2][0][0]) if found[2] else 0

    def _enter_end(self, on: StreamEnd) -> int:
        self._streams.add(on.stream)
        values = {"stream": on.stream, "log": on.log, "writer": on.writer}
        locks: list[Asked] = [("lock_beside", (f"stream {on.stream}",)), ("lock_log", (on.log,))]
        *_, log, end = self._database.fly([("begin_writing", ()), *locks, ("stream_end", values)])
        if not end.rows:
            return 0
        row = end.rows[0]
        stream, extent, progress = row[1:15], row[15:32], row[32:]
        self._known = None if stream[0] is None else rows.stream(stream)
        if log.rows:
            self._locked.add(on.log)
            last = None if extent[0] is None else rows.extent(extent)
            known = None if progress[0] is None else rows.progress(progress)
            self._end = LogEnd(rows.log(log.rows[0]), last, on.writer, known)
        return int(row[0])

    def _enter_named(self, name: StreamName) -> None:
        if self._known is not None:
            self._streams.add(self._known.id)
        elif alias := self._rows("stream_by_alias", (str(name),)):
            stream = rows.stream(alias[0]).id
            self._rows("lock", (f"stream {stream}",))
            self._streams.add(stream)

    def _own(self, stream: StreamId) -> None:
        assert self._on is None or stream in self._streams, f"a transaction on {self._on} touched stream {stream:016x}"

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
        """Lock logs before the next question or change."""
        if missing := set(logs) - self._locked:
            if self._locked and min(missing) < max(self._locked):
                self._lock_disordered("lock_logs", sorted(missing))
            else:
                self._unsent.append(("lock_logs", (sorted(missing),)))
            self._locked |= missing

    def _lock_logs_of(self, statement: str, what: object) -> None:
        """The same for those of streams. They are told to `_locked` by who reads what they are."""
        if self._locked:
            self._lock_disordered(statement, what)
        else:
            self._unsent.append((statement, (what,)))

    def _lock_disordered(self, statement: str, what: object) -> None:
        while True:
            try:
                self._several([("set_savepoint", ()), (statement, (what,)), ("release_savepoint", ())])
            except pg.DeadlockDetected:
                if not self._patience.pause():
                    raise
                self._rows("undo_to_savepoint")
            else:
                return

    # what is read behind a lock

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        known = self._known
        if known is not None and stream in (known.id, known.name):
            found: StreamInfo | None = known
        else:
            self.ahead(streams=[stream])
            found = super().stream(stream)
        if self._on is not None:
            own = stream in self._names or stream in self._streams or (found is not None and found.id in self._streams)
            assert own, f"a transaction on {self._on} looked at {stream}"
            if found is not None:
                self._names.add(found.name)
        return found

    def view(self, stream: StreamId) -> StreamView | None:
        self._own(stream)
        self._lock_logs_of("lock_logs_of_stream", stream)
        view = super().view(stream)
        if view is not None:
            self._locked |= _open_logs(view)
            if self._on is not None:
                self._names.add(view.info.name)
        return view

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        assert self._on is None, f"a transaction on {self._on} looked at several streams"
        self._lock_logs_of("lock_logs_of_streams", list(streams))
        found = super().views(streams)
        self._locked.update(*map(_open_logs, found.values()))
        return found

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        self._lock_logs(*ids)
        found = super().logs(ids)
        for log in found.values():
            if not log.sealed:
                self._own(log.stream)
        return found

    def extent_before(self, log: LogId, stop: int) -> Extent | None:
        last = None if self._end is None else self._end.last
        if last is not None and last.log == log and last.start < stop:
            return last
        return super().extent_before(log, stop)

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
        self._unsent = self._last()
        return super().changes(after, limit)

    # what is changed

    def insert_stream(self, info: StreamInfo) -> None:
        assert self._on is None or info.name in self._names, f"a transaction on {self._on} made {info.name}"
        super().insert_stream(info)
        self._known = None
        self._streams.add(info.id)

    def update_stream(self, info: StreamInfo) -> None:
        self._own(info.id)
        assert self._on is None or info.name in self._names, f"a transaction on {self._on} renamed it {info.name}"
        super().update_stream(info)
        self._known = None

    def drop_stream(self, stream: StreamId) -> None:
        self._own(stream)
        self._known = None
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
        if not self._foreseen.logs:
            return super().new_log(stream, appended_at=appended_at)
        log = self._foreseen.logs.pop(0)
        self._do("put_log", (log, stream, appended_at))
        return log

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
        end, self._end = self._end, None
        if end is not None and end.takes(unit):
            verdict, written = end.append(unit, now=now)
            if written is not None:
                self._do("append_part", written)
            return (verdict,)
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


def _open_logs(view: StreamView) -> set[LogId]:
    return {log.id for log in view.logs.values() if not log.sealed}
