"""Reading a catalog in SQL: the code that the adapters share. They differ in the statements and in how they run them.

Every adapter has the same named statements, each in its own dialect, with the same parameters in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from anabranch.catalog import rows
from anabranch.catalog.digests import verify
from anabranch.catalog.port import Alias, BlobRow, Change, Lease
from anabranch.catalog.state import kinds
from anabranch.catalog.state.kind import Entry, State, StateKind
from anabranch.catalog.tables import BY_NAME, CatalogTable, Value
from anabranch.errors import CorruptCatalog
from anabranch.model.append import LogState, Progress
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.producer import ProducerState
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Span, StreamInfo, StreamView

_ALL: Final = 1 << 62  # a limit that no table reaches
_AFTER_ALL_NAMES: Final = "~"  # sorts after every name

K = TypeVar("K")
V = TypeVar("V")


class SqlReading:
    """`catalog.port.Reading` over a transaction of an adapter. The port documents the methods."""

    NO_LIMIT: int | None  # the value of `limit` that means all rows

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        """Run a named statement and return all its rows."""
        raise NotImplementedError

    def _run_queries(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        """Run several named statements that do not depend on each other's results. Returns all rows of each."""
        return [self._rows(name, values) for name, values in queries]

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        """Run a named statement and return its first row, or None."""
        raise NotImplementedError

    def _array(self, values: Sequence[Any]) -> Any:
        """Several values as one parameter."""
        raise NotImplementedError

    def verify_database(self) -> list[str]:
        raise NotImplementedError

    def _empty_keys(self) -> list[str]:
        return [f"a row of table {table} has an empty key" for (table,) in self._rows("empty_keys")]

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
            row = self._row("stream_by_name", (stream.scope, stream.name)) or self._row_by_alias(stream)
        else:
            row = self._row("stream_by_id", (stream,))
        return None if row is None else rows.stream(row)

    def _row_by_alias(self, name: StreamName) -> rows.Row | None:
        """The row of the stream that an alias points to, or None."""
        row = self._row("stream_by_alias", (str(name),))
        return None if row is None else rows.alias_target_row(row)

    def aliases(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[Alias]:
        # Names in a scope begin with `scope/`, and the character after the slash is the digit 0.
        first, below = ("", _AFTER_ALL_NAMES) if scope is None else (f"{scope}/", f"{scope}0")
        found = self._rows(
            "aliases",
            {
                "after": max(first, str(after) if after else ""),
                "below": below,
                "limit": self.NO_LIMIT if limit is None else limit,
            },
        )
        return [alias for alias in map(rows.alias, found) if alias is not None]

    def aliases_of(self, stream: StreamId) -> tuple[StreamName, ...]:
        return tuple(map(rows.alias_name, self._rows("aliases_of", (stream,))))

    def schema(self, stream: StreamId, version: int) -> StreamSchema:
        row = self._row("schema", (stream, version))
        if row is None:
            raise CorruptCatalog(f"stream {stream:016x} has no schema of version {version}", "schemas")
        return rows.stream_schema(row)

    def view(self, stream: StreamId) -> StreamView | None:
        self._update_counts()
        names = ("stream_by_id", "segments", "spans", "logs_of_stream")
        found, segments, spans, logs = self._run_queries([(name, (stream,)) for name in names])
        return _checked_view(found[0], segments, spans, logs) if found else None

    def inspect(self, stream: StreamId) -> tuple[StreamView | None, list[str]]:
        self._update_counts()
        names = ("stream_by_id", "segments", "spans", "logs_of_stream")
        found, segments, spans, logs = self._run_queries([(name, (stream,)) for name in names])
        if not found:
            return None, []
        view = _view(found[0], segments, spans, logs)
        return view, list(_missing_rows(view, found[0]))

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        self._update_counts()
        ids = (self._array(list(streams)),)
        names = ("streams_by_id", "segments_of_streams", "spans_of_streams", "logs_of_streams")
        found, *parts = self._run_queries([(name, ids) for name in names])
        segments, spans, logs = map(_by_stream, parts)
        ordered = {StreamId(row[0]): row for row in found}
        return {
            each: _checked_view(
                ordered[each], segments.get(each, ()), spans.get(each, ()), [row[1:] for row in logs.get(each, ())]
            )
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

    def log_ids_after(self, after: LogId, limit: int) -> list[LogId]:
        return [LogId(row[0]) for row in self._rows("logs_after", (after, limit))]

    def stream_ids_after(self, after: StreamId, limit: int) -> list[StreamId]:
        return [StreamId(row[0]) for row in self._rows("stream_ids_after", (after, limit))]

    def blob_ids_after(self, after: BlobId, limit: int) -> list[BlobId]:
        return [BlobId(row[1]) for row in self._rows("blobs_after", (after, limit))]

    def damaged_log(self, log: LogId) -> LogState | None:
        row = self._row("log", (log,))
        if row is None:
            return None
        try:
            rows.log(row)
        except CorruptCatalog:
            return rows.unverified_log(row)
        return None

    def matches_log(self, state: LogState) -> bool:
        raise NotImplementedError

    def logs_after(self, after: LogId, limit: int) -> list[LogState]:
        return [rows.log(row) for row in self._rows("logs_after", (after, limit))]

    def spans_of_log(self, log: LogId) -> list[tuple[StreamId, Span]]:
        return [(StreamId(row[0]), rows.span(row)) for row in self._rows("spans_of_log", (log,))]

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
        position = self._first_by_event(log, start, time) if by_event_time else self._search_times(log, start, time, 2)
        if position is None:
            return None
        return next(iter(self.extents(log, position, position + 1, 1)), None)

    def _first_by_event(self, log: LogId, start: int, time: Micros) -> int | None:
        position = self._search_times(log, start, time, 3)
        if position is None:
            return None
        # If an event before `start` already reached `time` (its extent may have been dropped), the running maximum is at
        # or above `time` from the first extent on. So the extents are checked one by one.
        row = self._row("first_extent_with_event", (log, position, time))
        return None if row is None else int(row[0])

    def _search_times(self, log: LogId, start: int, time: Micros, column: int) -> int | None:
        """The start of the first extent after `start` whose `column`, which never decreases, reaches `time`; None where
        none does. Binary search over positions."""
        state = self.logs([log]).get(log)
        low, high = start, state.length if state else start
        found = None
        while low < high:
            middle = (low + high) // 2
            row = self._row("times_at", (log, middle))
            times = None if row is None else rows.extent_times(row)
            if times is None or times[1] <= middle:
                if state is not None and middle >= state.low_water:
                    raise CorruptCatalog(f"log {log} has no extent for position {middle}", "extents")
                low = middle + 1  # dropped below the low-water mark
                continue
            reached = times[column]
            if reached is not None and reached >= time:
                found, high = times[0], min(middle, times[0])
            else:
                low = times[1]
        return found

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        row = self._row("progress", (log, writer))
        return None if row is None else rows.progress(row)

    def writers_of_log(self, log: LogId, after: WriterId, limit: int) -> list[tuple[WriterId, Progress]]:
        found = self._rows("writers_of_log", (log, after, limit))
        return [(WriterId(row[1]), rows.progress(row)) for row in found]

    def producer(self, stream: StreamId, name: str) -> ProducerState | None:
        row = self._row("producer", (stream, name))
        return None if row is None else rows.producer(row)

    def producers(self, stream: StreamId, after: str, limit: int) -> list[tuple[str, ProducerState]]:
        return [(row[1], rows.producer(row)) for row in self._rows("producers_of_stream", (stream, after, limit))]

    def count_producers(self, stream: StreamId) -> int:
        ((count,),) = self._rows("count_producers", (stream,))
        return int(count)

    # blobs, leases, requests, changes, state

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
        return Micros(rows.meta(row) if row else 0)

    def leases(self) -> list[Lease]:
        return [rows.lease(row) for row in self._rows("leases")]

    def request(self, request: str) -> tuple[str, str] | None:
        row = self._row("request", (request,))
        return None if row is None else rows.request(row)

    def changes(self, after: int, limit: int) -> list[Change]:
        return [rows.change(row) for row in self._rows("changes", (after, limit))]

    def state(self, kind: StateKind[K, V], key: K) -> V | None:
        row = self._row("state", (kind.name, kind.key.encode(key)))
        return None if row is None else kind.decode(rows.state(row)).value

    def states(self, kind: StateKind[K, V], *, prefix: str = "", limit: int | None = None) -> list[State[K, V]]:
        row_limit = _ALL if limit is None else limit
        if prefix:
            # The first text that does not begin with the prefix, of those that sort after it.
            below = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            found = self._rows("states_between", (kind.name, prefix, below, row_limit))
        else:
            found = self._rows("states", (kind.name, row_limit))
        return [kind.decode(rows.state(row)) for row in found]

    def states_among(self, kind: StateKind[K, V], keys: Sequence[K]) -> dict[K, V]:
        found = self._rows("states_among", (kind.name, self._array([kind.key.encode(key) for key in keys])))
        return dict(kind.decode(rows.state(row)) for row in found)

    def states_found(
        self, kind: StateKind[K, V], lookup: str, *, below: str | None = None, limit: int | None = None
    ) -> list[State[K, V]]:
        row_limit = _ALL if limit is None else limit
        if below is None:
            found = self._rows("states_found", (kind.name, lookup, row_limit))
        else:
            found = self._rows("states_found_between", (kind.name, lookup, below, row_limit))
        return [kind.decode(rows.state(row)) for row in found]

    # whole tables

    def export(self, table: str, after: Sequence[Value] | None = None) -> list[tuple[Value, ...]]:
        table_definition = BY_NAME[table]
        key = table_definition.first_key if after is None else tuple(after)
        return [
            self._verified(table_definition, row)
            for row in self._rows(f"export_{table}", (*key, table_definition.page))
        ]

    def _verified(self, table: CatalogTable, row: rows.Row) -> rows.Row:
        *values, digest = row
        if table.name == "extents":
            *values, key = values
            verify(table.name, (*values[:4], key, *values[4:-1]), digest, key=table.key)
        else:
            verify(table.name, values[: table.loaded], digest, key=table.key)
        return self._exported(table.name, tuple(values))

    def _exported(self, table: str, row: rows.Row) -> rows.Row:
        """A row with its values converted to the types that all databases share."""
        raise NotImplementedError

    def audit(
        self, table: str, after: Sequence[Value] | None = None
    ) -> tuple[Sequence[Value] | None, list[CorruptCatalog]]:
        table_definition = BY_NAME[table]
        key = table_definition.first_key if after is None else tuple(after)
        statement = "audit_extents" if table == "extents" else f"export_{table}"
        found = self._rows(statement, (*key, table_definition.page))
        flaws = []
        for *values, digest in found:
            try:
                verify(
                    table,
                    values if table == "extents" else values[: table_definition.loaded],
                    digest,
                    key=table_definition.key,
                )
                if table == "states":
                    kinds.decode(Entry(*values))
            except CorruptCatalog as exc:
                flaws.append(exc)
        return (tuple(found[-1][: table_definition.key]) if found else None), flaws

    def _update_counts(self) -> None:
        """Update derived values that the transaction's changes have made stale."""


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


def _checked_view(
    stream: rows.Row, segments: Sequence[rows.Row], spans: Sequence[rows.Row], logs: Sequence[rows.Row]
) -> StreamView:
    """The view of a stream. Raises CorruptCatalog where a row is missing."""
    view = _view(stream, segments, spans, logs)
    for what in _missing_rows(view, stream):
        raise CorruptCatalog(f"stream '{view.info.name}' is damaged: {what}")
    return view


def _missing_rows(view: StreamView, stream: rows.Row) -> Iterator[str]:
    """The rows that are missing in a view, as sentences. A row whose key was damaged counts as missing here."""
    found = len(view.segments), sum(map(len, view.spans.values()))
    for what, count, written in zip(("segments", "spans"), found, rows.parts_of(stream), strict=True):
        if count != written:
            yield f"expected {written} {what}, found {count}"
    for segment, spans in view.spans.items():
        if segment not in view.segments:
            yield f"segment {segment} has spans, but no row"
        for span in spans:
            if span.log not in view.logs:
                yield f"log {span.log} of a span of segment {segment} has no row"


def _by_stream(found: Sequence[rows.Row]) -> dict[StreamId, list[rows.Row]]:
    """Group rows by the stream's id, their first value."""
    parts: dict[StreamId, list[rows.Row]] = {}
    for row in found:
        parts.setdefault(StreamId(row[0]), []).append(row)
    return parts
