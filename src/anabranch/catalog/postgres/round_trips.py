"""Sends a writing transaction's statements in few round trips: changes wait for the next query or the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.catalog import rows
from anabranch.catalog.port import Subject
from anabranch.catalog.postgres.log_end import LogEnd
from anabranch.catalog.postgres.pipeline import PipelineConnection, StatementCall
from anabranch.catalog.postgres.prefetch import PrefetchCache
from anabranch.catalog.postgres.reading import PostgresReading
from anabranch.catalog.state.kind import StateKind
from anabranch.catalog.subject import check_statement
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo

# Changes whose result is not needed: they may be sent with the next query.
_RESULT_NOT_NEEDED = frozenset(
    [
        "put_schema",
        "put_segment",
        "put_span",
        "drop_spans",
        "update_log",
        "put_progress",
        "copy_fences",
        "put_producer",
        "drop_stream_producers",
        "put_alias",
        "drop_alias",
        "put_state",
        "drop_state",
        "record_request",
        "add_change",
        "insert_extent",
        "set_blob_dead",
        "drop_blob",
        "put_log",
        "count_parts",
        "drop_stream_spans",
        "drop_segments",
        "drop_stream",
        "drop_unused_schemas",
        "append_part",
    ]
)


class PostgresRoundTrips(PostgresReading):
    """The statements of a transaction that may have a subject `on`. Without a subject, no other transaction
    changes what this one reads, so answers are cached."""

    def __init__(self, database: PipelineConnection, on: Subject | None = None) -> None:
        super().__init__(database)
        self._on = on
        self._changes: list[tuple[Any, ...]] = []  # rows of the outbox that are not written yet
        self._unsent: list[tuple[str, Any]] = []  # statements to send with the next query, in one round trip
        self._subject_info: StreamInfo | None = None  # the subject's stream, as read under its lock
        self._log_end: LogEnd | None = None  # the end of the subject's log; None once something was changed
        self._prefetched = PrefetchCache()  # without a subject only: results that no other transaction can change

    def prefetch(
        self,
        *,
        scopes: Sequence[str] = (),
        streams: Sequence[StreamName | StreamId] = (),
        states: Sequence[tuple[StateKind[Any, Any], Any]] = (),
        logs_of: Sequence[StreamId] = (),
    ) -> None:
        if self._on is not None:  # others may change these until this transaction has locked them
            return
        calls: list[StatementCall] = [("scope", (scope,)) for scope in scopes]
        for stream in streams:
            if isinstance(stream, StreamName):
                calls += [("stream_by_name", (stream.scope, stream.name)), ("stream_by_alias", (str(stream),))]
            else:
                calls.append(("stream_by_id", (stream,)))
        calls += [("state_for_update", (kind.name, kind.key.encode(key))) for kind, key in states]
        self._prefetched.queue(calls)
        for stream in logs_of:
            self._prefetched.queue_log_ids(stream)

    def commit(self) -> bool:
        """Commit, in one round trip with all unsent changes. Returns False if the database rolled the transaction back
        instead. May be called once. If it raises, nothing was changed, unless the connection was lost."""
        return self._database.run_statements([*self._statements_before_commit(), ("commit", ())])[-1].done == "COMMIT"

    def _statements_before_commit(self) -> list[tuple[str, Any]]:
        """The statements to send before the commit: all unsent ones, then the lock of the outbox and its rows."""
        self._update_counts()
        calls, self._unsent = self._unsent, []
        changes, self._changes = self._changes, []
        if changes:
            calls += [("lock", ("changes",)), *(("add_change", values) for values in changes)]
        return calls

    def _lock_before_next(self, lock: str) -> None:
        """Take a lock before the next query or change."""
        self._unsent.append(("lock", (lock,)))

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        return self._run_queries([(name, values)])[0]

    def _run_queries(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        for name, _ in queries:
            check_statement(self._on, name)
        if self._on is not None:
            unsent, self._unsent = self._unsent, []
            return super()._run_queries([*unsent, *queries])[len(unsent) :]
        cached = [self._prefetched.get(query) for query in queries]
        missing = [query for query, answer in zip(queries, cached, strict=True) if answer is None]
        if not missing:
            return [answer for answer in cached if answer is not None]
        queued = [query for query in self._prefetched.take_queued() if query not in missing]
        unsent, self._unsent = self._unsent, []
        calls = [*missing, *queued]
        found = super()._run_queries([*unsent, *calls])[len(unsent) :]
        for query, answer in zip(calls, found, strict=True):
            self._prefetched.store(query, answer)
        answers = iter(found)
        return [next(answers) if answer is None else answer for answer in cached]

    def _execute(self, name: str, values: Any) -> int:
        check_statement(self._on, name)
        self._log_end = None
        deferred = name in _RESULT_NOT_NEEDED or self._cannot_fail(name, values)
        self._prefetched.invalidate(name, values)
        if deferred:
            self._unsent.append((name, values))
            return 0
        unsent, self._unsent = self._unsent, []
        return self._database.run_statements([*unsent, (name, values)])[-1].affected

    def _cannot_fail(self, name: str, values: Any) -> bool:
        """True if a stream is given a name that is known to be free or its own, so that the statement can't fail."""
        match name:
            case "insert_stream":
                stream, scope, called, *_ = values
            case "update_stream":
                scope, called, *_, stream = values
            case _:
                return False
        cached = self._subject_info
        keeps_name = cached is not None and (cached.id, cached.name) == (stream, StreamName(scope, called))
        return keeps_name or self._prefetched.is_free(scope, called, stream)

    def _execute_many(self, name: str, values: Sequence[Any]) -> None:
        self._log_end = None
        self._prefetched.invalidate(name, ())
        unsent, self._unsent = self._unsent, []
        self._database.run_statements([*unsent, *((name, each) for each in values)])
