"""Conversion between database rows and the model's values, shared by all adapters.

Each row ends with its digest, which is verified before the row is decoded: CorruptCatalog where it does not match.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from anabranch.catalog.digests import damaged, row_digest, verify
from anabranch.catalog.port import Alias, BlobRow, Change, Lease
from anabranch.catalog.state.kind import Entry
from anabranch.core.json_text import parse_object
from anabranch.errors import CorruptCatalog
from anabranch.model.append import Appended, Batch, Batches, BlobLocation, LogState, Part, Progress, TimeBounds
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.producer import ProducerAnswers, ProducerState
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo

Row = tuple[Any, ...]


def stored_json(text: str) -> dict[str, Any]:
    """Parse a JSON object read from the catalog. Raises CorruptCatalog."""
    try:
        return parse_object(text)
    except ValueError as exc:
        raise CorruptCatalog(f"the catalog holds JSON that can't be read: {exc}") from exc


def scope(row: Row) -> Scope:
    """Decode a row of `scopes`: its columns, then its digest. The other functions take rows of the same form."""
    name, tags, created_at, digest = row
    verify("scopes", row[:-1], digest)
    return Scope(name, stored_json(tags), Micros(created_at))


ALIAS = 2  # number of values in a row of `aliases`, without its digest
STREAM = 13  # number of values in a row of `streams`, with its digest; those of its schema follow


def stream(row: Row) -> StreamInfo:
    """Decode a row of `streams` followed by the row of its schema, which is all null if the schema is missing."""
    ident, scope_name, name, schema_version, tags, created_at, sealed, version, epoch, next_number = row[:10]
    verify("streams", row[: STREAM - 1], row[STREAM - 1])
    if row[STREAM] is None:
        raise CorruptCatalog(f"stream {ident:016x} has no schema of version {schema_version}", "schemas")
    return StreamInfo(
        id=StreamId(ident),
        name=StreamName(scope_name, name),
        schema=stream_schema(row[STREAM:]),
        schema_version=schema_version,
        tags=stored_json(tags),
        created_at=Micros(created_at),
        sealed=bool(sealed),
        version=version,
        epoch=epoch,
        next_number=next_number,
    )


def alias_target_row(row: Row) -> Row | None:
    """The stream's row, from an alias's row followed by that row. None if there is no such stream."""
    verify("aliases", row[:ALIAS], row[ALIAS])
    found = row[ALIAS + 1 :]
    return None if found[0] is None else found


def alias(row: Row) -> Alias | None:
    """Decode the same, without the stream's schema. None where the alias's stream does not exist."""
    found = alias_target_row(row)
    if found is None:
        return None
    verify("streams", found[: STREAM - 1], found[STREAM - 1])
    return Alias(StreamName.parse(row[0]), StreamId(found[0]), StreamName(found[1], found[2]))


def alias_name(row: Row) -> StreamName:
    """The name in a row of `aliases`."""
    verify("aliases", row[:ALIAS], row[ALIAS])
    return StreamName.parse(row[0])


def parts_of(row: Row) -> tuple[int, int]:
    """The number of segments and of spans that a stream has according to its row."""
    return row[10], row[11]


def stream_schema(row: Sequence[Any]) -> StreamSchema:
    _, _, columns, key, time, raw, digest = row
    verify("schemas", row[:-1], digest, key=2)
    return StreamSchema.from_bytes(columns, key, time, bool(raw))


def segment(row: Row) -> Segment:
    _, packed, low, high, retired, head, digest = row
    verify("segments", row[:-1], digest, key=2)
    return Segment(SegmentId.unpack(packed), KeyRange(int(low, 16), int(high, 16)), retired, head)


def key_edge(point: int) -> str:
    """An edge of a key range as text: 17 hex digits, so that 2**64 fits and texts sort as numbers."""
    return f"{point:017x}"


def span(row: Row) -> Span:
    _, packed, offset, log, start, stop, digest = row
    verify("spans", row[:-1], digest, key=3)
    return Span(SegmentId.unpack(packed), offset, LogId(log), start, stop)


def log(row: Row) -> LogState:
    ident, stream_id, length, sealed, fence, low_water, size, appended_at, event_high, digest = row
    verify("logs", row[:-1], digest)
    return LogState(
        LogId(ident), StreamId(stream_id), length, bool(sealed), fence, low_water, size, Micros(appended_at), event_high
    )


def unverified_log(row: Row) -> LogState | None:
    """Decode a damaged row of `logs`; None where its values have the wrong types."""
    *values, _ = row
    *numbers, event_high = (int(value) if isinstance(value, bool) else value for value in values)
    if not all(type(number) is int for number in numbers) or type(event_high) not in (int, type(None)):
        return None
    return log((*numbers, event_high, True))


EXTENT = 19  # number of values in a row of `extents`, with the key of its blob, its bytes and its digest
_SUMMED = EXTENT - 2


def extent(row: Row) -> Extent:
    (ident, start, stop, blob, key, encoding, at, length, first, schema, checksum,
     appended_low, appended_high, event_low, event_high, _, size_end, data, digest) = row  # fmt: skip
    if digest is not True and digest != row_digest(row[:_SUMMED]):
        raise damaged("extents", row[:2])
    if data is not None and type(data) is not bytes:
        raise damaged("extents", row[:2])
    # Positional arguments for speed: a plan makes many thousands.
    return Extent(
        ident,
        start,
        stop,
        blob,
        key,
        encoding,
        BlobLocation(at, length, first),
        schema,
        checksum,
        TimeBounds(appended_low, appended_high),
        TimeBounds(event_low, event_high),
        size_end,
        data,
    )


def extent_times(row: Row) -> tuple[int, int, int, int | None]:
    """From the row of an extent without its bytes: start, stop, greatest append time, and the greatest event time in
    the log up to the extent's end."""
    *values, digest = row
    verify("extents", values, digest, key=2)
    return values[1], values[2], values[12], values[15]


def blob(row: Row) -> BlobRow:
    key, ident, size, encoding, begun_at, dead_at, digest = row
    verify("blobs", row[:-1], digest)
    return BlobRow(BlobId(ident), key, size, encoding, Micros(begun_at), dead_at)


def progress(row: Row) -> Progress:
    """Decode a row of `writers`. `recent` is packed (see `pack_recent`), or a list of the same numbers."""
    _, _, following, fence, recent, _, digest = row
    verify("writers", row[:-1], digest, key=2)
    if isinstance(recent, bytes):
        return Progress(following, fence, Batches(recent))
    return Progress(following, fence, Batches(struct.pack(f"<{len(recent)}q", *recent)))


def producer(row: Row) -> ProducerState:
    """Decode a row of `producers`. `answers` is packed, or a list of the same numbers."""
    _, _, epoch, last, answers, seen_at, digest = row
    verify("producers", row[:-1], digest, key=2)
    packed = answers if isinstance(answers, bytes) else struct.pack(f"<{len(answers)}q", *answers)
    return ProducerState(epoch, last, ProducerAnswers(packed), Micros(seen_at))


def lease(row: Row) -> Lease:
    verify("leases", row[:-1], row[-1])
    return Lease(*row[:-1])


def request(row: Row) -> tuple[str, str]:
    _, operation, result, _, digest = row
    verify("requests", row[:-1], digest)
    return operation, result


def change(row: Row) -> Change:
    sequence, stream_id, at, kind, detail, digest = row
    verify("changes", row[:-1], digest)
    return Change(sequence, stream_id, at, kind, stored_json(detail))


def state(row: Row) -> Entry:
    verify("states", row[:-1], row[-1], key=2)
    return Entry(*row[:-1])


def meta(row: Row) -> Any:
    """The value of a row of `meta`."""
    _, value, digest = row
    verify("meta", row[:-1], digest)
    return value


def pack_recent(batches: Sequence[Batch]) -> bytes:
    """A writer's remembered batches as bytes, oldest first."""
    return Batches.of(batches).packed


def log_values(log: LogState) -> tuple[object, ...]:
    """The parameters of the statement `update_log`."""
    return (
        log.length,
        log.sealed,
        log.fence,
        log.low_water,
        log.size,
        log.appended_at,
        log.event_high,
        log.id,
        log.stream,
    )


def log_row(log: LogState) -> tuple[object, ...]:
    """A row of `logs` without its digest, in SQLite's form."""
    numbers = (log.length, int(log.sealed), log.fence, log.low_water, log.size, log.appended_at, log.event_high)
    return (log.id, log.stream, *numbers)


def appended_values(part: Part, appended: Appended, after: LogState, blob: BlobId | None) -> tuple[object, ...]:
    """The parameters of `insert_extent` for an accepted part; `after` is the log's state after it. The last one is the
    blob's key, as in `extent_values`."""
    place = part.location
    return (
        (part.log, appended.start, appended.start + part.count, blob, "arrow", place.offset, place.length, place.row)
        + (part.schema, part.checksum, appended.appended_at, appended.appended_at)
        + (part.bounds.low, part.bounds.high, after.event_high, after.size, part.data, part.blob)
    )


def extent_values(extent: Extent, reach: int | None, key: str | None) -> tuple[object, ...]:
    """The parameters of `insert_extent`; `reach` is the greatest event time in the log up to the extent's end. The last
    one is the key of its blob: not a column, but part of the digest, so that an extent can't move to another blob."""
    place = extent.location
    return (
        (extent.log, extent.start, extent.stop, extent.blob, extent.encoding, place.offset, place.length, place.row)
        + (extent.schema, extent.checksum, extent.appended.low, extent.appended.high)
        + (extent.events.low, extent.events.high, reach, extent.size_end, extent.data, key)
    )
