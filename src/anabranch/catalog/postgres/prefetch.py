"""A cache of a transaction's query results, and the queries queued by `Writing.prefetch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anabranch.catalog import rows
from anabranch.catalog.postgres.pipeline import StatementCall
from anabranch.model.ids import LogId

_STREAMS: Final = frozenset({"stream_by_name", "stream_by_alias", "stream_by_id"})
_CACHED: Final = _STREAMS | {"scope", "state_for_update"}
_RESERVE: Final = "reserve_logs"

# For each statement, the queries whose results it may change. Statements that are not listed affect no cached result.
_INVALIDATES: Final = {
    **dict.fromkeys(("insert_stream", "update_stream", "drop_stream", "put_schema", "count_parts"), _STREAMS),
    **dict.fromkeys(("put_alias", "drop_alias"), frozenset({"stream_by_alias"})),
    **dict.fromkeys(("put_scope", "drop_scope"), frozenset({"scope"})),
}


class PrefetchCache:
    """Cached query results of a transaction without a subject, until it changes them, and log ids reserved for it. No
    other transaction runs at the same time."""

    def __init__(self) -> None:
        self._answers: dict[StatementCall, list[rows.Row]] = {}
        self._queued: dict[StatementCall, None] = {}  # queries to send with the next one
        self.logs: list[LogId] = []

    def queue(self, calls: Sequence[StatementCall]) -> None:
        """Send these queries with the next one, unless their results are cached."""
        self._queued.update(dict.fromkeys(each for each in calls if each not in self._answers))

    def queue_log_ids(self, stream: int) -> None:
        """Reserve as many log ids as the stream has open segments, with the next query."""
        self._queued[_RESERVE, (stream,)] = None

    def take_queued(self) -> list[StatementCall]:
        """Remove and return the queries to send with one that is sent now."""
        queued, self._queued = list(self._queued), {}
        return queued

    def store(self, calls: StatementCall, answer: list[rows.Row]) -> None:
        """Store a query's result."""
        name, values = calls
        if name == _RESERVE:
            self.logs += (LogId(row[0]) for row in answer)
        elif name in _CACHED:
            self._answers[name, values] = answer
            if name in _STREAMS and answer:
                self._answers["stream_by_id", (answer[0][0],)] = answer

    def get(self, calls: StatementCall) -> list[rows.Row] | None:
        """The cached result of a query, or None."""
        return self._answers.get(calls) if calls[0] in _CACHED else None

    def invalidate(self, statement: str, values: Any) -> None:
        """Remove the results that a statement may change."""
        if statement in _INVALIDATES:
            invalidated = _INVALIDATES[statement]
            self._answers = {calls: answer for calls, answer in self._answers.items() if calls[0] not in invalidated}
        if statement in ("put_state", "drop_state"):
            self._answers.pop(("state_for_update", tuple(values[:2])), None)
        elif statement.startswith(("wipe_", "load_")):
            self._answers.clear()

    def is_free(self, scope: str, name: str, stream: int) -> bool:
        """True if it is known that no other stream has this name."""
        answer = self._answers.get(("stream_by_name", (scope, name)))
        return answer is not None and all(row[0] == stream for row in answer)
