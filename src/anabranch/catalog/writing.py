"""Changing a catalog in SQL: what the adapters share, as in `anabranch.catalog.reading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch.catalog import rows
from anabranch.catalog.port import Checkpointed, Lease
from anabranch.catalog.reading import SqlReading
from anabranch.catalog.tables import TABLES, Value
from anabranch.errors import BlobExpired, StreamExists
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo


class SqlWriting(SqlReading):
    """`catalog.port.Writing` over a transaction of an adapter. Contracts stand there."""

    TAKEN: type[Exception]  # what the driver raises where a unique value is there already

    def _do(self, name: str, values: Any) -> int:
        """Run a named statement; how many rows it changed."""
        raise NotImplementedError

    def _many(self, name: str, values: Sequence[Any]) -> None:
        """Run a named statement for each of the values."""
        raise NotImplementedError

    def _loadable(self, table: str, row: Sequence[Value]) -> Sequence[Any]:
        """The inverse of `_exported`."""
        raise NotImplementedError

    def _recent(self, progress: Progress) -> Any:
        """A writer's kept batches as they are stored."""
        raise NotImplementedError

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        raise NotImplementedError

    def ahead(
        self,
        *,
        scopes: Sequence[str] = (),
        streams: Sequence[StreamName | StreamId] = (),
        pieces: Sequence[tuple[str, str]] = (),
        logs_of: Sequence[StreamId] = (),
    ) -> None:
        """Questions cost nothing here."""

    # scopes and streams

    def put_scope(self, scope: Scope) -> None:
        self._do("put_scope", (scope.name, rows.compact_json(dict(scope.tags)), scope.created_at))

    def drop_scope(self, name: str) -> None:
        self._do("drop_scope", (name,))

    def insert_stream(self, info: StreamInfo) -> None:
        tags = rows.compact_json(dict(info.tags))
        try:
            self._do(
                "insert_stream",
                (info.id, info.name.scope, info.name.name, info.schema_version, tags, info.created_at)
                + (info.sealed, info.version, info.epoch, info.next_number),
            )
        except self.TAKEN as exc:
            raise StreamExists(str(info.name)) from exc
        self._put_schema(info)

    def update_stream(self, info: StreamInfo) -> None:
        tags = rows.compact_json(dict(info.tags))
        try:
            self._do(
                "update_stream",
                (info.name.scope, info.name.name, info.schema_version, tags, info.sealed, info.version)
                + (info.epoch, info.next_number, info.id),
            )
        except self.TAKEN as exc:
            raise StreamExists(str(info.name)) from exc
        self._put_schema(info)

    def _put_schema(self, info: StreamInfo) -> None:
        schema = info.schema
        self._do("put_schema", (info.id, info.schema_version, schema.to_bytes(), schema.key, schema.time, schema.raw))

    def drop_stream(self, stream: StreamId) -> None:
        for name in ("drop_stream_spans", "drop_segments", "drop_stream"):
            self._do(name, (stream,))
        self._do("drop_unused_schemas", {"stream": stream})

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        low, high = rows.key_edge(segment.range.low), rows.key_edge(segment.range.high)
        self._do("put_segment", (stream, segment.id.packed, low, high, segment.retired, segment.head))

    def put_span(self, stream: StreamId, span: Span) -> None:
        self._do("put_span", (stream, span.segment.packed, span.offset, span.log, span.start, span.stop))

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        self._do("drop_spans", (stream, segment.packed))

    # logs

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        row = self._row("new_log", (stream, appended_at))
        assert row is not None
        return LogId(row[0])

    def update_log(self, log: LogState) -> None:
        self._do("update_log", rows.log_values(log))

    def drop_log(self, log: LogId) -> None:
        state = self.logs([log]).get(log)
        self.drop_extents(log)
        self._do("drop_log_writers", (log,))
        self._do("drop_log", (log,))
        if state is not None:
            self._do("drop_unused_schemas", {"stream": state.stream})

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        kept = self._recent(progress)
        self._do("put_progress", (log, writer, progress.next, progress.fence, kept, now))

    def inherit_fences(self, log: LogId, heir: LogId) -> None:
        self._do("inherit_fences", {"log": log, "heir": heir})

    def drop_progress_before(self, time: Micros, limit: int) -> int:
        return self._do("drop_progress_before", (time, limit))

    # extents and blobs

    def insert_blob(self, key: str, size: int, begun_at: Micros, encoding: str) -> BlobId:
        row = self._row("insert_blob", (key, size, encoding, begun_at))
        assert row is not None
        return BlobId(row[0])

    def swap_extents(self, log: LogId, old: Sequence[Extent], new: Sequence[Extent]) -> bool:
        start, stop = old[0].start, old[-1].stop
        if (new[0].start, new[-1].stop) != (start, stop):
            raise AssertionError("a swap covers the same positions")
        held = self.extents(log, start, stop, len(old) + 1)
        if [_identity(extent) for extent in held] != [_identity(extent) for extent in old]:
            return False
        row = self._row("reach_before", (log, start))
        reach = row[0] if row else None
        self._do("drop_extents", (log, start, stop))
        for extent in new:
            highs = [high for high in (reach, extent.events.high) if high is not None]
            reach = max(highs) if highs else None
            self._do("insert_extent", rows.extent_values(extent, reach))
        return True

    def extend_log(self, log: LogId, extents: Sequence[Extent]) -> None:
        state = self.logs([log])[log]
        assert not state.sealed, f"log {log} is sealed"
        self._refuse_expired({extent.blob for extent in extents if extent.blob is not None})
        values = []
        for extent in extents:
            state = _extended(state, extent)
            values.append(rows.extent_values(extent, state.event_high))
        self._many("insert_extent", values)
        self.update_log(state)

    def _refuse_expired(self, blobs: set[BlobId]) -> None:
        horizon = self.horizon()
        row = self._row("oldest_blob", (self._array(sorted(blobs)),))
        if row is not None and row[0] < horizon:
            raise BlobExpired(row[0], horizon)

    def drop_extents(self, log: LogId, stop: int | None = None, *, start: int = 0) -> int:
        return self._do("drop_extents", (log, start, (1 << 62) if stop is None else stop))

    def set_blob_dead(self, blob: BlobId, dead_at: Micros | None) -> None:
        self._do("set_blob_dead", (dead_at, blob))

    def drop_blobs(self, blobs: Iterable[BlobId]) -> None:
        for blob in blobs:
            self._do("drop_blob", (blob,))

    def set_horizon(self, horizon: Micros) -> None:
        if horizon > self.horizon():
            self._do("put_meta", ("horizon", horizon))

    # leases, requests, changes, pieces

    def put_lease(self, lease: Lease) -> None:
        self._do("put_lease", (lease.id, lease.kind, lease.holder, lease.begun_at, lease.expires_at))

    def drop_lease(self, lease: str) -> None:
        self._do("drop_lease", (lease,))

    def record_request(self, request: str, operation: str, result: str, *, now: Micros) -> None:
        self._do("record_request", (request, operation, result, now))

    def drop_requests_before(self, time: Micros, limit: int) -> int:
        return self._do("drop_requests_before", (time, limit))

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        self._do("add_change", (stream, now, kind, rows.compact_json(dict(detail))))

    def drop_changes_before(self, time: Micros, limit: int) -> int:
        return self._do("drop_changes_before", (time, limit))

    def put_piece(self, piece: Checkpointed) -> None:
        self._do("put_piece", (piece.kind, piece.name, rows.compact_json(dict(piece.value))))

    def drop_piece(self, kind: str, name: str) -> None:
        self._do("drop_piece", (kind, name))

    # whole tables

    def wipe(self) -> None:
        for table in reversed(TABLES):
            self._do(f"wipe_{table.name}", ())

    def load(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        self._many(f"load_{table}", [self._loadable(table, row) for row in rows])


def _extended(state: LogState, extent: Extent) -> LogState:
    """A log's state behind one more extent."""
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


def _identity(extent: Extent) -> tuple[object, ...]:
    return (extent.start, extent.stop, extent.blob, extent.place, extent.checksum)
