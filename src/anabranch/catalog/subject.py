"""What a transaction with a subject may read and change, as `Catalog.writing` says; both adapters assert it.

SQLite has one writer at a time, so nothing would go wrong there; on PostgreSQL such a transaction would not be isolated
from others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.catalog.port import Subject
from anabranch.catalog.writing import SqlWriting
from anabranch.model.append import LogState
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView

# Statements that concern more than one stream: only a transaction without a subject may use them.
ALL_STREAMS_STATEMENTS: Final = {
    "scopes",
    "put_scope",
    "drop_scope",
    "streams",
    "stream_ids_after",
    "aliases",
    "logs_after",
    "spans_of_log",
    "fragmented",
    "drop_log",
    "drop_extents",
    "leases",
    "states",
    "states_between",
    "states_among",
    "states_found",
    "states_found_between",
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


def check_statement(on: Subject | None, name: str) -> None:
    """Assert that a transaction on this subject, or on none, may use a statement."""
    assert on is None or name not in ALL_STREAMS_STATEMENTS, f"a transaction on {on} asked for '{name}'"


class SubjectWriting(SqlWriting):
    """A transaction with the subject `_on`, or None. `_streams` has its subject's stream, as soon as that exists, and
    `_names` the names of that stream."""

    _on: Subject | None
    _streams: set[StreamId]
    _names: set[StreamName]

    def _require_subject(self, stream: StreamId) -> None:
        assert self._on is None or stream in self._streams, f"a transaction on {self._on} touched stream {stream:016x}"

    def _require_name(self, info: StreamInfo) -> None:
        assert self._on is None or info.name in self._names, f"a transaction on {self._on} named a stream {info.name}"

    def _check_found(self, stream: StreamName | StreamId, found: StreamInfo | None) -> None:
        if self._on is not None:
            own = stream in self._names or stream in self._streams or (found is not None and found.id in self._streams)
            assert own, f"a transaction on {self._on} read {stream}"
            if found is not None:
                self._names.add(found.name)

    # reads

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        found = super().stream(stream)
        self._check_found(stream, found)
        return found

    def view(self, stream: StreamId) -> StreamView | None:
        self._require_subject(stream)
        view = super().view(stream)
        if view is not None and self._on is not None:
            self._names.add(view.info.name)
        return view

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        assert self._on is None, f"a transaction on {self._on} read several streams"
        return super().views(streams)

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        found = super().logs(ids)
        for log in found.values():
            if not log.sealed:
                self._require_subject(log.stream)
        return found

    def aliases_of(self, stream: StreamId) -> tuple[StreamName, ...]:
        self._require_subject(stream)  # only a transaction on the stream, or on none, gives it aliases
        return super().aliases_of(stream)

    # changes

    def insert_stream(self, info: StreamInfo) -> None:
        self._require_name(info)
        super().insert_stream(info)
        self._streams.add(info.id)

    def update_stream(self, info: StreamInfo) -> None:
        self._require_subject(info.id)
        self._require_name(info)
        super().update_stream(info)

    def drop_stream(self, stream: StreamId) -> None:
        self._require_subject(stream)
        super().drop_stream(stream)

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        self._require_subject(stream)
        super().put_segment(stream, segment)

    def put_span(self, stream: StreamId, span: Span) -> None:
        self._require_subject(stream)
        super().put_span(stream, span)

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        self._require_subject(stream)
        super().drop_spans(stream, segment)

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        self._require_subject(stream)
        return super().new_log(stream, appended_at=appended_at)

    def put_alias(self, name: StreamName, stream: StreamId) -> None:
        self._require_subject(stream)
        super().put_alias(name, stream)
