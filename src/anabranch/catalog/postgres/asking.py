"""What a changing transaction asks and sends, in few round trips: changes wait for the next question or for the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.catalog import rows
from anabranch.catalog.port import Subject
from anabranch.catalog.postgres.flight import Asked, Connection
from anabranch.catalog.postgres.foreseen import Foreseen
from anabranch.catalog.postgres.log_end import LogEnd
from anabranch.catalog.postgres.reading import PostgresReading
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo

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
    *("put_log", "drop_stream_spans", "drop_segments", "drop_stream", "drop_unused_schemas", "append_part"),
}


class PostgresAsking(PostgresReading):
    """The statements of a transaction that may be `on` something. Beside one that is on nothing nobody changes what it asks."""

    def __init__(self, database: Connection, on: Subject | None = None) -> None:
        super().__init__(database)
        self._on = on
        self._changes: list[tuple[Any, ...]] = []  # not written yet
        self._unsent: list[tuple[str, Any]] = []  # what goes out with the next question, in one round trip
        self._known: StreamInfo | None = None  # the stream it is on, as it was read behind its lock
        self._end: LogEnd | None = None  # of the log that it is on, until something is changed
        self._foreseen = Foreseen()  # on nothing: of what others can't change meanwhile

    def ahead(
        self,
        *,
        scopes: Sequence[str] = (),
        streams: Sequence[StreamName | StreamId] = (),
        pieces: Sequence[tuple[str, str]] = (),
        logs_of: Sequence[StreamId] = (),
    ) -> None:
        if self._on is not None:  # of what others may change meanwhile, nothing is asked before its lock is there
            return
        asked: list[Asked] = [("scope", (scope,)) for scope in scopes]
        for stream in streams:
            if isinstance(stream, StreamName):
                asked += [("stream_by_name", (stream.scope, stream.name)), ("stream_by_alias", (str(stream),))]
            else:
                asked.append(("stream_by_id", (stream,)))
        self._foreseen.expect([*asked, *(("piece_again", piece) for piece in pieces)])
        for stream in logs_of:
            self._foreseen.expect_logs(stream)

    def commit(self) -> bool:
        """Commit, in one round trip with all that was not sent yet. False where the database undid the transaction
        instead. May be called once; whatever it raises but a lost connection, nothing was changed."""
        return self._database.fly([*self._last(), ("commit", ())])[-1].done == "COMMIT"

    def _last(self) -> list[tuple[str, Any]]:
        """What is to be sent where only the commit follows: behind all else the rows of the outbox, and their lock."""
        asked, self._unsent = self._unsent, []
        changes, self._changes = self._changes, []
        if changes:
            asked += [("lock", ("changes",)), *(("add_change", values) for values in changes)]
        return asked

    def _take(self, lock: str) -> None:
        """Take a lock before the next question or change."""
        self._unsent.append(("lock", (lock,)))

    def _allow(self, statement: str) -> None:
        assert self._on is None or statement not in _WHOLE, f"a transaction on {self._on} asked for '{statement}'"

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        return self._several([(name, values)])[0]

    def _several(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        for name, _ in queries:
            self._allow(name)
        if self._on is not None:
            unsent, self._unsent = self._unsent, []
            return super()._several([*unsent, *queries])[len(unsent) :]
        known = [self._foreseen.get(query) for query in queries]
        missing = [query for query, answer in zip(queries, known, strict=True) if answer is None]
        if not missing:
            return [answer for answer in known if answer is not None]
        soon = [query for query in self._foreseen.take() if query not in missing]
        unsent, self._unsent = self._unsent, []
        asked = [*missing, *soon]
        found = super()._several([*unsent, *asked])[len(unsent) :]
        for query, answer in zip(asked, found, strict=True):
            self._foreseen.found(query, answer)
        answers = iter(found)
        return [next(answers) if answer is None else answer for answer in known]

    def _do(self, name: str, values: Any) -> int:
        self._allow(name)
        self._end = None
        sure = name in _UNANSWERED or self._is_sure(name, values)
        self._foreseen.changed(name, values)
        if sure:
            self._unsent.append((name, values))
            return 0
        unsent, self._unsent = self._unsent, []
        return self._database.fly([*unsent, (name, values)])[-1].affected

    def _is_sure(self, name: str, values: Any) -> bool:
        """True of a stream that is given a name which is known to be free, or its own: so nothing can be said against it."""
        match name:
            case "insert_stream":
                stream, scope, called, *_ = values
            case "update_stream":
                scope, called, *_, stream = values
            case _:
                return False
        known = self._known
        own = known is not None and (known.id, known.name) == (stream, StreamName(scope, called))
        return own or self._foreseen.is_free(scope, called, stream)

    def _many(self, name: str, values: Sequence[Any]) -> None:
        self._end = None
        self._foreseen.changed(name, ())
        unsent, self._unsent = self._unsent, []
        self._database.fly([*unsent, *((name, each) for each in values)])
