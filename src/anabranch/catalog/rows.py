"""Rows as values and back, as every adapter has them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from anabranch.catalog.port import BlobRow
from anabranch.model.append import Appended, Batch, Batches, Bounds, LogState, Part, Place, Progress
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo

Row = tuple[Any, ...]


def compact_json(value: object) -> str:
    """JSON without spaces, keys in order: equal values have equal text."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def scope(row: Row) -> Scope:
    name, tags, created_at = row
    return Scope(name, json.loads(tags), Micros(created_at))


def stream(row: Row) -> StreamInfo:
    ident, scope_name, name, schema_version, tags, created_at, sealed, version, epoch, next_number, *schema = row
    return StreamInfo(
        id=StreamId(ident),
        name=StreamName(scope_name, name),
        schema=stream_schema(schema),
        schema_version=schema_version,
        tags=json.loads(tags),
        created_at=Micros(created_at),
        sealed=bool(sealed),
        version=version,
        epoch=epoch,
        next_number=next_number,
    )


def stream_schema(row: Sequence[Any]) -> StreamSchema:
    columns, key, time, raw = row
    return StreamSchema.from_bytes(columns, key, time, bool(raw))


def segment(row: Row) -> Segment:
    packed, low, high, retired, head = row
    return Segment(SegmentId.unpack(packed), KeyRange(int(low, 16), int(high, 16)), retired, head)


def key_edge(point: int) -> str:
    """An edge of a key range as text: 17 hex digits, so that 2**64 fits and texts sort as numbers."""
    return f"{point:017x}"


def span(row: Row) -> Span:
    packed, offset, log, start, stop = row
    return Span(SegmentId.unpack(packed), offset, LogId(log), start, stop)


def log(row: Row) -> LogState:
    ident, stream_id, length, sealed, fence, low_water, size, appended_at, event_high = row
    return LogState(
        LogId(ident), StreamId(stream_id), length, bool(sealed), fence, low_water, size, Micros(appended_at), event_high
    )


def extent(row: Row) -> Extent:
    (ident, start, stop, blob, key, encoding, at, length, first, schema, checksum) = row[:11]
    appended_low, appended_high, event_low, event_high, size_end, data = row[11:]
    return Extent(
        log=LogId(ident),
        start=start,
        stop=stop,
        blob=None if blob is None else BlobId(blob),
        key=key,
        encoding=encoding,
        place=Place(at, length, first),
        schema=schema,
        checksum=checksum,
        appended=Bounds(appended_low, appended_high),
        events=Bounds(event_low, event_high),
        size_end=size_end,
        data=data,
    )


def blob(row: Row) -> BlobRow:
    ident, key, size, encoding, begun_at, dead_at = row
    return BlobRow(BlobId(ident), key, size, encoding, Micros(begun_at), dead_at)


def progress(row: Row) -> Progress:
    """`recent` comes packed (see `pack_recent`), or as the same numbers in a list."""
    following, fence, recent = row
    if isinstance(recent, bytes):
        return Progress(following, fence, Batches(recent))
    return Progress(following, fence, Batches(struct.pack(f"<{len(recent)}q", *recent)))


def pack_recent(batches: Sequence[Batch]) -> bytes:
    """A writer's kept batches, oldest first."""
    return Batches.of(batches).packed


def log_values(log: LogState) -> tuple[object, ...]:
    """The values of `update_log`."""
    return (log.length, log.sealed, log.fence, log.low_water, log.size, log.appended_at, log.event_high, log.id)


def appended_values(part: Part, appended: Appended, after: LogState, blob: BlobId | None) -> tuple[object, ...]:
    """The values of `insert_extent` for an accepted part, behind which the log is `after`."""
    place = part.place
    return (
        (part.log, appended.start, appended.start + part.count, blob, "arrow", place.offset, place.length, place.row)
        + (part.schema, part.checksum, appended.appended_at, appended.appended_at)
        + (part.bounds.low, part.bounds.high, after.event_high, after.size, part.data)
    )


def extent_values(extent: Extent, reach: int | None) -> tuple[object, ...]:
    """The values of `insert_extent`; `reach` is the log's greatest event time up to there."""
    place = extent.place
    return (
        (extent.log, extent.start, extent.stop, extent.blob, extent.encoding, place.offset, place.length, place.row)
        + (extent.schema, extent.checksum, extent.appended.low, extent.appended.high)
        + (extent.events.low, extent.events.high, reach, extent.size_end, extent.data)
    )
