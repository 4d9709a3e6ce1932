"""Checks bytes: that a blob exists, is complete, and holds the events that its extents claim."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.blobs import keys, layout
from anabranch.blobs.encryption_contexts import decrypt_extent
from anabranch.blobs.file_checksum import file_checksum
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import BlobRow
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.core.compaction import ARROW
from anabranch.errors import AnabranchError, BlobMissing, KeyMissing, WrongKey
from anabranch.log.fetch import name_of
from anabranch.log.parquet.file_format import APPENDED
from anabranch.log.parquet.reader import ParquetReader
from anabranch.model.append import TimeBounds
from anabranch.model.ids import LogId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent
from anabranch.runtime.sealing import Sealer

Schemas = Mapping[tuple[LogId, int], StreamSchema | None]
BlobFlaw = tuple[LogId | None, str]  # None: the blob as a whole


def inline_flaws(extent: Extent, schema: StreamSchema, sealer: Sealer | None) -> Iterator[str]:
    """The defects of an extent's inlined bytes."""
    assert extent.data is not None
    for what in _rows_flaws(extent, _Message(extent, pa.py_buffer(extent.data), sealer), schema):
        yield f"the extent {extent.start} … {extent.stop}: {what}"


def blob_flaws(
    blobs: Blobs,
    row: BlobRow,
    extents: Sequence[Extent],
    schemas: Schemas,
    *,
    deep: bool,
    sealer: Sealer | None,
) -> Iterator[BlobFlaw]:
    """The defects of a blob that `extents` are in. `schemas` has the schemas of the extents, None if unknown (which is
    reported elsewhere). Without `deep`, no byte is read. May raise any error that damaged bytes cause."""
    if keys.begun_at(row.key) != row.begun_at:
        yield None, f"its row has another begin time ({row.begun_at} µs) than its key"
    for extent in extents:
        if extent.encoding != row.encoding:
            yield extent.log, f"the extent {extent.start} … {extent.stop} is {extent.encoding}, the blob {row.encoding}"
            return
    size = blobs.size(row.key)
    if size is None:
        yield None, f"{_missing(blobs, row.key)}; {len(extents)} extent(s) are in it"
        return
    if size != row.size:
        yield None, f"it holds {size} bytes, not {row.size}"
        return  # a truncated file must not be mapped
    if deep:
        data = blobs.get(row.key)
        yield from (_arrow_flaws if row.encoding == ARROW else _parquet_flaws)(row.key, data, extents, schemas, sealer)


def _missing(blobs: Blobs, key: str) -> str:
    if not keys.is_attached(key):
        return "it is missing"
    try:
        return f"the attached file {blobs.path(key)} is missing"
    except BlobMissing as exc:
        return str(exc)


def _arrow_flaws(
    key: str, data: pa.Buffer, extents: Sequence[Extent], schemas: Schemas, sealer: Sealer | None
) -> Iterator[BlobFlaw]:
    places: set[tuple[int, int]] | None = None
    try:
        index = layout.read_index(key, data)
        places = {(part["at"], part["length"]) for part in index["parts"]}
    except (AnabranchError, KeyError, TypeError) as exc:
        yield None, str(exc)
    messages: dict[tuple[int, int], _Message] = {}  # staged rows: many extents may be slices of one message
    for extent in extents:
        label = f"the extent {extent.start} … {extent.stop}"
        at, length = extent.location.offset, extent.location.length
        if at < 0 or length <= 0 or at + length > data.size:
            yield extent.log, f"{label} lies at byte {at}, length {length}, beyond the blob's {data.size}"
            continue
        if places is not None and (at, length) not in places:
            yield extent.log, f"{label} lies at byte {at}, where the blob's index has no part of {length} bytes"
        schema = schemas.get((extent.log, extent.schema))
        if schema is not None:
            message = messages.get((at, length))
            if message is None:
                message = messages[at, length] = _Message(extent, data.slice(at, length), sealer)
            for what in _rows_flaws(extent, message, schema):
                yield extent.log, f"{label}: {what}"


class _Message:
    """The stored bytes of an encoded batch; hashed, decrypted, decoded and validated once."""

    def __init__(self, extent: Extent, data: pa.Buffer, sealer: Sealer | None) -> None:
        self._extent = extent
        self._data = data
        self._sealer = sealer
        self.checksum = checksum(data)
        self._batch: pa.RecordBatch | None = None

    def batch(self, schema: StreamSchema) -> pa.RecordBatch:
        """The whole batch. Raises what decoding and validating bad bytes raises."""
        if self._batch is None:
            message = decrypt_extent(self._sealer, self._extent, self._data, name_of(self._extent))
            self._batch = codec.decode(message, schema.columns, key=name_of(self._extent))
        return self._batch


def _rows_flaws(extent: Extent, message: _Message, schema: StreamSchema) -> Iterator[str]:
    if message.checksum != extent.checksum:
        yield "its bytes do not match its checksum"
        return
    try:
        batch = message.batch(schema)
    except (KeyMissing, WrongKey):  # the store is not at fault
        raise
    except (AnabranchError, pa.ArrowException, ValueError) as exc:
        yield str(exc)
        return
    count = extent.stop - extent.start
    rows = batch.slice(extent.location.row, count)
    if rows.num_rows != count:
        yield f"it has rows {extent.location.row} … of a batch that holds {batch.num_rows}, which are not {count}"
        return
    yield from _bounds_flaws("event times", codec.event_bounds(rows, schema), extent.events)


def _bounds_flaws(what: str, found: TimeBounds, recorded: TimeBounds) -> Iterator[str]:
    if found.low is None or found.high is None:
        return
    if recorded.low is None or recorded.high is None or not recorded.low <= found.low <= found.high <= recorded.high:
        yield f"its {what} are {found.low} … {found.high} µs, its row says {recorded.low} … {recorded.high}"


def _parquet_flaws(
    key: str, data: pa.Buffer, extents: Sequence[Extent], schemas: Schemas, sealer: Sealer | None
) -> Iterator[BlobFlaw]:
    digest = file_checksum(key, data)
    wrong = [extent for extent in extents if extent.checksum != digest]
    if wrong:
        yield wrong[0].log, f"its bytes do not match the checksum of {len(wrong)} extent(s)"
        return
    reader = ParquetReader(key, data, sealer)
    parts = {int(part["row"]): part for part in reader.parts()}
    firsts = sorted(parts)  # a file may hold a thousand
    for extent in extents:
        label = f"the extent {extent.start} … {extent.stop}"
        nearest = bisect_right(firsts, extent.location.row) - 1
        part = parts[firsts[nearest]] if nearest >= 0 else None
        # For a file from elsewhere, only the catalog knows the positions of its rows.
        foreign = part is not None and (part["log"] is None or keys.is_attached(key))
        if part is None or not (_lies_in_part(extent, part) if foreign else _matches_part(extent, part)):
            yield extent.log, f"{label} lies at row {extent.location.row}, where the file has no such part"
            continue
        if int(part["row"]) + int(part["rows"]) > reader.rows:
            yield extent.log, f"{label} ends at row {part['row'] + part['rows']} of a file that holds {reader.rows}"
            continue
        schema = schemas.get((extent.log, extent.schema))
        whole = (extent.location.row, extent.stop - extent.start) == (part["row"], part["rows"])
        if schema is not None and whole:
            for what in _statistics_flaws(reader, extent, part, schema):
                yield extent.log, f"{label}: {what}"


def _matches_part(extent: Extent, part: dict[str, Any]) -> bool:
    row = int(part["row"]) + extent.start - int(part["start"])
    return part["log"] == extent.log and row == extent.location.row and extent.stop <= part["stop"]


def _lies_in_part(extent: Extent, part: dict[str, Any]) -> bool:
    stop = int(part["row"]) + int(part["rows"])
    return int(part["row"]) <= extent.location.row and extent.location.row + extent.stop - extent.start <= stop


def _statistics_flaws(
    reader: ParquetReader, extent: Extent, part: dict[str, Any], schema: StreamSchema
) -> Iterator[str]:
    """Compares the extent's bounds with the statistics of its row groups; the bytes are already verified."""
    groups = range(int(part["group"]), int(part["group"]) + int(part["groups"]))
    if reader.metadata_value("parts") is not None:
        yield from _bounds_flaws("append times", reader.bounds(groups, APPENDED), extent.appended)
    if schema.time is not None:
        yield from _bounds_flaws("event times", reader.bounds(groups, schema.time), extent.events)
