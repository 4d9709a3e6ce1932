"""Changing a catalog in SQL: the code that the adapters share, as in `anabranch.catalog.reading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from anabranch.catalog import rows
from anabranch.catalog.port import BlobRow, Lease
from anabranch.catalog.reading import SqlReading
from anabranch.catalog.state.kind import StateKind, compact_json
from anabranch.catalog.state.kinds import KINDS
from anabranch.catalog.tables import TABLES, Value
from anabranch.errors import BlobExpired, CorruptCatalog, StreamExists
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.producer import ProducerState
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo

K = TypeVar("K")
V = TypeVar("V")


class SqlWriting(SqlReading):
    """`catalog.port.Writing` over a transaction of an adapter. The port documents the methods."""

    UNIQUE_VIOLATION: type[Exception]  # the driver's error for a unique value that exists already
    CONSTRAINT_VIOLATIONS: tuple[type[Exception], ...]  # the driver's errors for a row that violates a constraint

    def _execute(self, name: str, values: Any) -> int:
        """Run a named statement and return how many rows it changed."""
        raise NotImplementedError

    def _execute_many(self, name: str, values: Sequence[Any]) -> None:
        """Run a named statement for each of the values."""
        raise NotImplementedError

    def _from_exported(self, table: str, row: Sequence[Value]) -> Sequence[Any]:
        """The inverse of `_exported`."""
        raise NotImplementedError

    def _encode_recent(self, progress: Progress) -> Any:
        """A writer's remembered batches as the database stores them."""
        raise NotImplementedError

    def _encode_answers(self, producer: ProducerState) -> Any:
        """A producer's answers as the database stores them."""
        raise NotImplementedError

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        raise NotImplementedError

    _changed_streams: set[StreamId]  # streams whose segments or spans changed since they were last counted

    def _update_counts(self) -> None:
        """Update the counts of segments and spans in the rows of changed streams. Must also be called before the
        commit."""
        changed, self._changed_streams = self._changed_streams, set()
        for stream in sorted(changed):
            self._execute("count_parts", (stream,))

    def prefetch(
        self,
        *,
        scopes: Sequence[str] = (),
        streams: Sequence[StreamName | StreamId] = (),
        states: Sequence[tuple[StateKind[Any, Any], Any]] = (),
        logs_of: Sequence[StreamId] = (),
    ) -> None:
        """Does nothing, because a query costs no round trip without a server."""

    # scopes and streams

    def put_scope(self, scope: Scope) -> None:
        self._execute("put_scope", (scope.name, compact_json(dict(scope.tags)), scope.created_at))

    def drop_scope(self, name: str) -> None:
        self._execute("drop_scope", (name,))

    def insert_stream(self, info: StreamInfo) -> None:
        tags = compact_json(dict(info.tags))
        try:
            self._execute(
                "insert_stream",
                (info.id, info.name.scope, info.name.name, info.schema_version, tags, info.created_at)
                + (info.sealed, info.version, info.epoch, info.next_number),
            )
        except self.UNIQUE_VIOLATION as exc:
            raise StreamExists(str(info.name)) from exc
        self._put_schema(info)

    def update_stream(self, info: StreamInfo) -> None:
        tags = compact_json(dict(info.tags))
        try:
            self._execute(
                "update_stream",
                (info.name.scope, info.name.name, info.schema_version, tags, info.sealed, info.version)
                + (info.epoch, info.next_number, info.id),
            )
        except self.UNIQUE_VIOLATION as exc:
            raise StreamExists(str(info.name)) from exc
        self._put_schema(info)

    def _put_schema(self, info: StreamInfo) -> None:
        schema = info.schema
        self._execute(
            "put_schema", (info.id, info.schema_version, schema.to_bytes(), schema.key, schema.time, schema.raw)
        )

    def drop_stream(self, stream: StreamId) -> None:
        self._changed_streams.discard(stream)
        for name in ("drop_stream_spans", "drop_segments", "drop_stream_producers", "drop_stream"):
            self._execute(name, (stream,))
        self._execute("drop_unused_schemas", {"stream": stream})

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        low, high = rows.key_edge(segment.range.low), rows.key_edge(segment.range.high)
        self._execute("put_segment", (stream, segment.id.packed, low, high, segment.retired, segment.head))
        self._changed_streams.add(stream)

    def put_span(self, stream: StreamId, span: Span) -> None:
        self._execute("put_span", (stream, span.segment.packed, span.offset, span.log, span.start, span.stop))
        self._changed_streams.add(stream)

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        self._execute("drop_spans", (stream, segment.packed))
        self._changed_streams.add(stream)

    def drop_segments(self, stream: StreamId) -> None:
        for name in ("drop_stream_spans", "drop_segments"):
            self._execute(name, (stream,))

    # logs

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        row = self._row("new_log", (stream, appended_at))
        assert row is not None
        return LogId(row[0])

    def update_log(self, log: LogState) -> None:
        self._execute("update_log", rows.log_values(log))

    def drop_log(self, log: LogId) -> None:
        state = self.logs([log]).get(log)
        self.drop_extents(log)
        self._execute("drop_log_writers", (log,))
        self._execute("drop_log", (log,))
        if state is not None:
            self._execute("drop_unused_schemas", {"stream": state.stream})

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        recent = self._encode_recent(progress)
        self._execute("put_progress", (log, writer, progress.next, progress.fence, recent, now))

    def copy_fences(self, log: LogId, successor: LogId) -> None:
        self._execute("copy_fences", {"log": log, "successor": successor})

    def drop_progress_before(self, time: Micros, limit: int) -> int:
        return self._execute("drop_progress_before", (time, limit))

    def put_producer(self, stream: StreamId, name: str, producer: ProducerState) -> None:
        answers = self._encode_answers(producer)
        self._execute("put_producer", (stream, name, producer.epoch, producer.last, answers, producer.seen_at))

    def drop_producer(self, stream: StreamId, name: str) -> bool:
        return self._execute("drop_producer", (stream, name)) > 0

    # extents and blobs

    def insert_blob(self, key: str, size: int, begun_at: Micros, encoding: str) -> BlobId:
        row = self._row("insert_blob", (key, size, encoding, begun_at))
        assert row is not None
        return BlobId(row[0])

    def swap_extents(self, log: LogId, old: Sequence[Extent], new: Sequence[Extent]) -> bool:
        start, stop = old[0].start, old[-1].stop
        if (new[0].start, new[-1].stop) != (start, stop):
            raise AssertionError("a swap covers the same positions")
        current = self.extents(log, start, stop, len(old) + 1)
        if [_identity(extent) for extent in current] != [_identity(extent) for extent in old]:
            return False
        row = self._row("extent_times_before", (log, start))
        reach = rows.extent_times(row)[3] if row else None
        blob_rows = self._blob_rows(new)
        self._execute("drop_extents", (log, start, stop))
        for extent in new:
            highs = [high for high in (reach, extent.events.high) if high is not None]
            reach = max(highs) if highs else None
            self._execute("insert_extent", rows.extent_values(extent, reach, _key(extent, blob_rows)))
        return True

    def extend_log(self, log: LogId, extents: Sequence[Extent]) -> None:
        state = self.logs([log])[log]
        assert not state.sealed, f"log {log} is sealed"
        blob_rows = self._blob_rows(extents)
        self._refuse_expired(blob_rows)
        values = []
        for extent in extents:
            state = _extended(state, extent)
            values.append(rows.extent_values(extent, state.event_high, _key(extent, blob_rows)))
        self._execute_many("insert_extent", values)
        self.update_log(state)

    def _blob_rows(self, extents: Sequence[Extent]) -> dict[BlobId, BlobRow]:
        """The blobs in which the extents lie, as the catalog lists them, ordered by `begun_at`."""
        blobs = sorted({extent.blob for extent in extents if extent.blob is not None})
        found = map(rows.blob, self._rows("blobs", (self._array(blobs),))) if blobs else ()
        return {row.id: row for row in found}

    def _refuse_expired(self, blobs: Mapping[BlobId, BlobRow]) -> None:
        horizon = self.horizon()
        for blob in blobs.values():
            if blob.begun_at < horizon:
                raise BlobExpired(blob.begun_at, horizon)

    def drop_extents(self, log: LogId, stop: int | None = None, *, start: int = 0) -> int:
        return self._execute("drop_extents", (log, start, (1 << 62) if stop is None else stop))

    def set_blob_dead(self, blob: BlobId, dead_at: Micros | None) -> None:
        self._execute("set_blob_dead", (dead_at, blob))

    def drop_blobs(self, blobs: Iterable[BlobId]) -> None:
        for blob in blobs:
            self._execute("drop_blob", (blob,))

    def set_horizon(self, horizon: Micros) -> None:
        if horizon > self.horizon():
            self._execute("put_meta", ("horizon", horizon))

    # leases, requests, changes, state

    def put_lease(self, lease: Lease) -> None:
        self._execute("put_lease", (lease.id, lease.kind, lease.holder, lease.begun_at, lease.expires_at))

    def drop_lease(self, lease: str) -> None:
        self._execute("drop_lease", (lease,))

    def record_request(self, request: str, operation: str, result: str, *, now: Micros) -> None:
        self._execute("record_request", (request, operation, result, now))

    def drop_requests_before(self, time: Micros, limit: int) -> int:
        return self._execute("drop_requests_before", (time, limit))

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        self._execute("add_change", (stream, now, kind, compact_json(dict(detail))))

    def drop_changes_before(self, time: Micros, limit: int) -> int:
        return self._execute("drop_changes_before", (time, limit))

    def put_alias(self, name: StreamName, stream: StreamId) -> None:
        self._execute("put_alias", (str(name), stream))

    def drop_alias(self, name: StreamName) -> None:
        self._execute("drop_alias", (str(name),))

    def put_state(self, kind: StateKind[K, V], key: K, value: V) -> None:
        assert KINDS.get(kind.name) is kind, f"the kind {kind.name} is not listed in catalog.state.kinds"
        self._execute("put_state", kind.entry(key, value))

    def drop_state(self, kind: StateKind[K, Any], key: K) -> None:
        self._execute("drop_state", (kind.name, kind.key.encode(key)))

    # whole tables

    def wipe(self) -> None:
        for table in reversed(TABLES):
            self._execute(f"wipe_{table.name}", ())

    def load(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        try:
            self._execute_many(f"load_{table}", [self._from_exported(table, row) for row in rows])
        except self.CONSTRAINT_VIOLATIONS as exc:
            what = " ".join(str(exc).split())
            raise CorruptCatalog(
                f"rows of the table {table} contradict each other, or rows of other tables: {what}", table
            ) from exc


def _extended(state: LogState, extent: Extent) -> LogState:
    """A log's state after one more extent."""
    low, high = extent.appended.low, extent.appended.high
    assert low is not None
    assert high is not None
    assert (extent.log, extent.start) == (state.id, state.length), "extents follow the end of their log"
    assert state.appended_at <= low <= high, "append times never fall"
    assert state.size <= extent.size_end, "running sizes never fall"
    reached = [time for time in (state.event_high, extent.events.high) if time is not None]
    return replace(
        state, length=extent.stop, size=extent.size_end, appended_at=high, event_high=max(reached, default=None)
    )


def _key(extent: Extent, blob_rows: Mapping[BlobId, BlobRow]) -> str | None:
    """The key of an extent's blob, as the catalog lists it: the caller's extent may not carry it."""
    blob = None if extent.blob is None else blob_rows.get(extent.blob)
    return None if blob is None else blob.key


def _identity(extent: Extent) -> tuple[object, ...]:
    return (extent.start, extent.stop, extent.blob, extent.location, extent.checksum)
