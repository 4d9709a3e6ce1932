"""A writing transaction with a subject: asserts that it touches nothing else.

SQLite has one writer at a time, so nothing would go wrong here; on PostgreSQL such a transaction would not be isolated
from others. The assertions are those of `catalog.postgres.writing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from anabranch.catalog import rows
from anabranch.catalog.port import StreamTail, Subject
from anabranch.catalog.sqlite.writing import SqliteWriting
from anabranch.catalog.subject import ALL_STREAMS_STATEMENTS
from anabranch.model.append import LogState
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView


class SqliteSubjectWriting(SqliteWriting):
    """`SqliteWriting` of a transaction on `subject`."""

    def __init__(self, database: apsw.Connection, subject: Subject) -> None:
        super().__init__(database)
        self._subject = subject
        self._streams: set[StreamId] = set()  # the subject's stream, once it exists
        self._names: set[StreamName] = set()
        match subject:
            case StreamName():
                self._names.add(subject)
                found = super().stream(subject)
                if found is not None:
                    self._streams.add(found.id)
            case StreamTail():
                self._streams.add(subject.stream)
            case int():
                self._streams.add(subject)

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        self._check_statement(name)
        return super()._rows(name, values)

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        self._check_statement(name)
        return super()._row(name, values)

    def _execute(self, name: str, values: Any) -> int:
        self._check_statement(name)
        return super()._execute(name, values)

    def _execute_many(self, name: str, values: Sequence[Any]) -> None:
        self._check_statement(name)
        super()._execute_many(name, values)

    def _check_statement(self, name: str) -> None:
        assert name not in ALL_STREAMS_STATEMENTS, f"a transaction on {self._subject} asked for '{name}'"

    def _check_stream(self, stream: StreamId) -> None:
        assert stream in self._streams, f"a transaction on {self._subject} touched stream {stream:016x}"

    # reads

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        found = super().stream(stream)
        own = stream in self._names or stream in self._streams or (found is not None and found.id in self._streams)
        assert own, f"a transaction on {self._subject} read {stream}"
        if found is not None:
            self._names.add(found.name)
        return found

    def view(self, stream: StreamId) -> StreamView | None:
        self._check_stream(stream)
        view = super().view(stream)
        if view is not None:
            self._names.add(view.info.name)
        return view

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        raise AssertionError(f"a transaction on {self._subject} read several streams")

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        found = super().logs(ids)
        for log in found.values():
            if not log.sealed:
                self._check_stream(log.stream)
        return found

    def aliases_of(self, stream: StreamId) -> tuple[StreamName, ...]:
        self._check_stream(stream)
        return super().aliases_of(stream)

    # changes

    def insert_stream(self, info: StreamInfo) -> None:
        assert info.name in self._names, f"a transaction on {self._subject} created {info.name}"
        super().insert_stream(info)
        self._streams.add(info.id)

    def update_stream(self, info: StreamInfo) -> None:
        self._check_stream(info.id)
        assert info.name in self._names, f"a transaction on {self._subject} renamed it {info.name}"
        super().update_stream(info)

    def drop_stream(self, stream: StreamId) -> None:
        self._check_stream(stream)
        super().drop_stream(stream)

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        self._check_stream(stream)
        super().put_segment(stream, segment)

    def put_span(self, stream: StreamId, span: Span) -> None:
        self._check_stream(stream)
        super().put_span(stream, span)

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        self._check_stream(stream)
        super().drop_spans(stream, segment)

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        self._check_stream(stream)
        return super().new_log(stream, appended_at=appended_at)

    def put_alias(self, name: StreamName, stream: StreamId) -> None:
        self._check_stream(stream)
        super().put_alias(name, stream)
