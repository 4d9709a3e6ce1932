"""Changing the catalog on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import apsw

from anabranch.catalog.port import Checkpointed, Lease
from anabranch.catalog.sqlite import rows
from anabranch.catalog.sqlite.append import Appending, insert_blob, log_row
from anabranch.catalog.sqlite.reading import SQL, SqliteReading
from anabranch.errors import StreamExists
from anabranch.model.append import BlobEntry, LogState, Progress, Unit, Verdict
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo


class SqliteWriting(SqliteReading):
    """`catalog.port.Writing` over a connection inside `begin immediate`. Contracts stand there."""

    def _do(self, name: str, values: Sequence[object]) -> int:
        self._database.execute(SQL[name], tuple(values))
        return self._database.changes()

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
        except apsw.ConstraintError as exc:
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
        except apsw.ConstraintError as exc:
            raise StreamExists(str(info.name)) from exc
        self._put_schema(info)

    def _put_schema(self, info: StreamInfo) -> None:
        schema = info.schema
        self._do("put_schema", (info.id, info.schema_version, schema.to_bytes(), schema.key, schema.time, schema.raw))

    def drop_stream(self, stream: StreamId) -> None:
        for name in ("drop_stream_spans", "drop_segments", "drop_stream"):
            self._do(name, (stream,))
        self._database.execute(SQL["drop_unused_schemas"], {"stream": stream})

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
        self._do("update_log", log_row(log))

    def drop_log(self, log: LogId) -> None:
        state = self.logs([log]).get(log)
        self.drop_extents(log)
        self._do("drop_log_writers", (log,))
        self._do("drop_log", (log,))
        if state is not None:
            self._database.execute(SQL["drop_unused_schemas"], {"stream": state.stream})

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        appending = Appending(self._database, now, [unit], blobs)
        verdicts = appending.unit(unit)
        appending.flush()
        return verdicts

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        kept = rows.pack_recent(progress.recent)
        self._do("put_progress", (log, writer, progress.next, progress.fence, kept, now))

    def inherit_fences(self, log: LogId, heir: LogId) -> None:
        self._database.execute(SQL["inherit_fences"], {"log": log, "heir": heir})

    def drop_progress_before(self, time: Micros, limit: int) -> int:
        return self._do("drop_progress_before", (time, limit))

    # extents and blobs

    def insert_blob(self, key: str, size: int, begun_at: Micros, encoding: str) -> BlobId:
        return insert_blob(self._database, BlobEntry(key, size, begun_at, encoding))

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
            self._do("insert_extent", _extent_row(extent, reach))
        return True

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


def _identity(extent: Extent) -> tuple[object, ...]:
    return (extent.start, extent.stop, extent.blob, extent.place, extent.checksum)


def _extent_row(extent: Extent, reach: int | None) -> tuple[object, ...]:
    place = extent.place
    return (
        (extent.log, extent.start, extent.stop, extent.blob, extent.encoding, place.offset, place.length, place.row)
        + (extent.schema, extent.checksum, extent.appended.low, extent.appended.high)
        + (extent.events.low, extent.events.high, reach, extent.size_end, extent.data)
    )
