"""Reading a catalog in SQL: what the adapters share. They differ in how a statement is run, and in the statements.

Every adapter has the same named statements, each in its own dialect, with the same parameters in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from anabranch.catalog import rows
from anabranch.catalog.port import Alias, BlobRow, Change, Checkpointed, Lease
from anabranch.catalog.tables import BY_NAME, Value
from anabranch.errors import CorruptCatalog
from anabranch.model.append import LogState, Progress
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Span, StreamInfo, StreamView

_ALL: Final = 1 << 62  # more rows than there are of anything
_BEHIND_ALL: Final = "~"  # greater than what any name begins with


class SqlReading:
    """`catalog.port.Reading` over a transaction of an adapter. Contracts stand there."""

    NO_LIMIT: int | None  # what `limit` takes for all rows

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        """Run a named statement; all its rows."""
        raise NotImplementedError

    def _several(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        """Run several named statements, none of which needs what another gave; all rows of each."""
        return [self._rows(name, values) for name, values in queries]

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        """Run a named statement; its first row."""
        raise NotImplementedError

    def _array(self, values: Sequence[Any]) -> Any:
        """A parameter that holds several values."""
        raise NotImplementedError

    def verify_database(self) -> list[str]:
        raise NotImplementedError

    # scopes and streams

    def scopes(self) -> list[Scope]:
        return [rows.scope(row) for row in self._rows("scopes")]

    def scope(self, name: str) -> Scope | None:
        row = self._row("scope", (name,))
        return None if row is None else rows.scope(row)

    def streams(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        found = self._rows(
            "streams",
            {
                "scope": scope,
                "after_scope": after.scope if after else "",
                "after_name": after.name if after else "",
                "limit": self.NO_LIMIT if limit is None else limit,
            },
        )
        return [rows.stream(row) for row in found]

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        if isinstance(stream, StreamName):
            row = self._row("stream_by_name", (stream.scope, stream.name)) or self._row(
                "stream_by_alias", (str(stream),)
            )
        else:
            row = self._row("stream_by_id", (stream,))
        return None if row is None else rows.stream(row)

    def aliases(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[Alias]:
        # What is in a scope begins with its name and a slash, which is followed by the digit 0.
        first, below = ("", _BEHIND_ALL) if scope is None else (f"{scope}/", f"{scope}0")
        found = self._rows(
            "aliases",
            {
                "after": max(first, str(after) if after else ""),
                "below": below,
                "limit": self.NO_LIMIT if limit is None else limit,
            },
        )
        return [Alias(StreamName.parse(row[0]), StreamId(row[1]), StreamName(row[2], row[3])) for row in found]

    def schema(self, stream: StreamId, version: int) -> StreamSchema:
        row = self._row("schema", (stream, version))
        if row is None:
            raise CorruptCatalog(f"stream {stream:016x} has no schema of version {version}")
        return rows.stream_schema(row)

    def view(self, stream: StreamId) -> StreamView | None:
        names = ("stream_by_id", "segments", "spans", "logs_of_stream")
        found, segments, spans, logs = self._several([(name, (stream,)) for name in names])
        return _view(found[0], segments, spans, logs) if found else None

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        ids = (self._array(list(streams)),)
        names = ("streams_by_id", "segments_of_streams", "spans_of_streams", "logs_of_streams")
        found, *parts = self._several([(name, ids) for name in names])
        segments, spans, logs = (_by_stream(part) for part in parts)
        ordered = {StreamId(row[0]): row for row in found}
        return {
            each: _view(ordered[each], segments.get(each, ()), spans.get(each, ()), logs.get(each, ()))
            for each in streams
            if each in ordered
        }

    # logs

    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        if len(ids) == 1:
            found = self._rows("log", (ids[0],))
        else:
            found = self._rows("logs", (self._array(list(ids)),))
        return {LogId(row[0]): rows.log(row) for row in found}

    def logs_after(self, after: LogId, limit: int) -> list[LogState]:
        return [rows.log(row) for row in self._rows("logs_after", (after, limit))]

    def spans_of_log(self, log: LogId) -> list[tuple[StreamId, Span]]:
        return [(StreamId(row[0]), rows.span(row[1:])) for row in self._rows("spans_of_log", (log,))]

    def fragmented(self, spans_min: int, limit: int) -> list[tuple[StreamId, SegmentId]]:
        found = self._rows("fragmented", (spans_min, limit))
        return [(StreamId(row[0]), SegmentId.unpack(row[1])) for row in found]

    def extents(self, log: LogId, start: int, stop: int, limit: int) -> list[Extent]:
        found = self._rows("extents", {"log": log, "start": start, "stop": stop, "limit": limit})
        return [rows.extent(row) for row in found]

    def extents_of_segment(
        self, stream: StreamId, segment: SegmentId, start: int, stop: int, limit: int
    ) -> list[tuple[int, Extent]]:
        values = {"stream": stream, "segment": segment.packed, "start": start, "stop": stop, "limit": limit}
        return [(row[0], rows.extent(row[1:])) for row in self._rows("extents_of_segment", values)]

    def extent_before(self, log: LogId, stop: int) -> Extent | None:
        row = self._row("extent_before", (log, stop))
        return None if row is None else rows.extent(row)

    def extent_at_time(self, log: LogId, start: int, time: Micros, *, by_event_time: bool) -> Extent | None:
        position = self._first_by_event(log, start, time) if by_event_time else self._halve(log, start, time, 2)
        if position is None:
            return None
        return next(iter(self.extents(log, position, position + 1, 1)), None)

    def _first_by_event(self, log: LogId, start: int, time: Micros) -> int | None:
        position = self._halve(log, start, time, 3)
        if position is None:
            return None
        # Where an event before `start` was that late already (its extent may be dropped by now), the running maximum
        # is above `time` from the first extent on and tells nothing: look at each.
        row = self._row("first_extent_with_event", (log, position, time))
        return None if row is None else int(row[0])

    def _halve(self, log: LogId, start: int, time: Micros, column: int) -> int | None:
        """The start of the first extent behind `start` whose rising `column` reaches `time`, by halving positions."""
        state = self.logs([log]).get(log)
        low, high = start, state.length if state else start
        found = None
        while low < high:
            middle = (low + high) // 2
            row = self._row("times_at", (log, middle))
            if row is None or row[1] <= middle:  # dropped below the low-water mark
                low = middle + 1
            elif row[column] is not None and row[column] >= time:
                found, high = row[0], min(middle, row[0])
            else:
                low = row[1]
        return found

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        row = self._row("progress", (log, writer))
        return None if row is None else rows.progress(row)

    def writers_of_log(self, log: LogId, after: WriterId, limit: int) -> list[tuple[WriterId, Progress]]:
        found = self._rows("writers_of_log", (log, after, limit))
        return [(WriterId(row[0]), rows.progress(row[1:])) for row in found]

    # blobs, leases, requests, changes, pieces

    def blobs_after(self, after: BlobId, limit: int) -> list[BlobRow]:
        return [rows.blob(row) for row in self._rows("blobs_after", (after, limit))]

    def blob_keys(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in self._rows("blob_keys", (self._array(list(keys)),))}

    def blob_in_use(self, blob: BlobId) -> bool:
        row = self._row("blob_in_use", (blob,))
        return bool(row and row[0])

    def extents_of_blob(self, blob: BlobId) -> list[Extent]:
        return [rows.extent(row) for row in self._rows("extents_of_blob", (blob,))]

    def horizon(self) -> Micros:
        row = self._row("meta", ("horizon",))
        return Micros(row[0] if row else 0)

    def leases(self) -> list[Lease]:
        return [Lease(*row) for row in self._rows("leases")]

    def request(self, request: str) -> tuple[str, str] | None:
        row = self._row("request", (request,))
        return None if row is None else (row[0], row[1])

    def changes(self, after: int, limit: int) -> list[Change]:
        return [
            Change(sequence, stream, at, kind, json.loads(detail))
            for sequence, stream, at, kind, detail in self._rows("changes", (after, limit))
        ]

    def pieces(self, kind: str, limit: int | None = None) -> list[Checkpointed]:
        most = _ALL if limit is None else limit
        return [Checkpointed(row[0], row[1], json.loads(row[2])) for row in self._rows("pieces", (kind, most))]

    def piece(self, kind: str, name: str) -> Checkpointed | None:
        row = self._row("piece", (kind, name))
        return None if row is None else Checkpointed(row[0], row[1], json.loads(row[2]))

    # whole tables

    def export(self, table: str, after: Sequence[Value] | None = None) -> list[tuple[Value, ...]]:
        known = BY_NAME[table]
        key = known.before_all if after is None else tuple(after)
        return [self._exported(table, row) for row in self._rows(f"export_{table}", (*key, known.page))]

    def _exported(self, table: str, row: rows.Row) -> rows.Row:
        """A row with the values that every database has in common."""
        raise NotImplementedError


def _view(
    stream: rows.Row, segments: Sequence[rows.Row], spans: Sequence[rows.Row], logs: Sequence[rows.Row]
) -> StreamView:
    by_segment: dict[SegmentId, list[Span]] = {}
    for row in spans:
        span = rows.span(row)
        by_segment.setdefault(span.segment, []).append(span)
    return StreamView(
        rows.stream(stream),
        {segment.id: segment for segment in map(rows.segment, segments)},
        {segment: tuple(of_segment) for segment, of_segment in by_segment.items()},
        {log.id: log for log in map(rows.log, logs)},
    )


def _by_stream(found: Sequence[rows.Row]) -> dict[StreamId, list[rows.Row]]:
    """Rows that begin with their stream's id, by it and without it."""
    parts: dict[StreamId, list[rows.Row]] = {}
    for stream, *row in found:
        parts.setdefault(StreamId(stream), []).append(tuple(row))
    return parts
