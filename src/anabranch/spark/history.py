"""What of a stream lies in Parquet files that Spark can read by itself, and what does not.

Offsets and segments stand in no file: a file holds rows of logs, and streams are views of logs. They follow from the
file's name and a row's number in it. Here the catalog's extents become files, each with the pieces that a scan wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.blobs.port import Blobs
from anabranch.core import cuts
from anabranch.errors import BlobMissing
from anabranch.log.parquet import METADATA_KEY
from anabranch.log.view import readable
from anabranch.model.columns import plain_type
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView
from anabranch.spark.scan import Range
from anabranch.spark.stores import Opened

__all__ = ["File", "History", "Piece", "native_types", "plan_history"]

_TAKEN: Final = ("_metadata", "_tmp_metadata_row_index", "_anabranch_file_name")
_FOOTER_BYTES: Final = 64 * 1024  # asked for at once: most footers are smaller
_TRAILER_BYTES: Final = 8  # the footer's length, 4 bytes, and the format's name
_WORTH_SHARE: Final = 0.5  # of a file's rows; below, Spark would read much that is not wanted


class Piece(NamedTuple):
    """Rows `row <= r < stop` of a file; row `r` is the event `r + shift` of the segment."""

    row: int
    stop: int
    segment: SegmentId
    shift: int


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file of `rows` rows, and the pieces of it that are wanted: in order, none overlapping another. An attached
    file that no store has written does not tell append times: `appended` (µs) is that of all its events."""

    key: str
    path: str
    rows: int
    pieces: tuple[Piece, ...]
    appended: int | None = None

    @property
    def wanted(self) -> int:
        """How many rows are wanted."""
        return sum(piece.stop - piece.row for piece in self.pieces)

    @property
    def whole(self) -> bool:
        """True if every row of the file is wanted."""
        return self.wanted == self.rows


@dataclass(frozen=True, slots=True)
class History:
    """A part of a stream: `layers` of files, each layer holding a file at most once, and what is to be read as Arrow:
    `rest`, about `rest_bytes` logical bytes. `turned_away` files are in the rest because they may not be read natively."""

    layers: tuple[tuple[File, ...], ...]
    rest: tuple[Range, ...]
    rest_bytes: int
    turned_away: int


def native_types(columns: pa.Schema) -> bool:
    """True if Spark's Parquet reader understands all these columns as the store writes them."""
    names = [name.lower() for name in columns.names]
    # Spark looks columns up without regard to case, and some names are taken.
    return len({*names, *_TAKEN}) == len(names) + len(_TAKEN) and all(_native(field.type) for field in columns)


def _native(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind):
        return _native(kind.value_type)
    if types.is_struct(kind):
        return kind.num_fields > 0 and all(_native(field.type) for field in kind)
    if types.is_map(kind):
        return _native(kind.key_type) and _native(kind.item_type)
    plain = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_boolean(kind)
    text = types.is_string(kind) or types.is_binary(kind)
    return bool(plain or text or types.is_date32(kind) or types.is_timestamp(kind) or types.is_decimal128(kind))


def same_types(columns: pa.Schema, wanted: pa.Schema) -> bool:
    """True if a file's columns have the types that the stream's have by now: Spark reads only some of those that were
    widened since."""
    return all(wanted.field(field.name).type.equals(field.type) for field in columns)


def plan_history(
    opened: Opened,
    view: StreamView,
    start: StreamCut,
    end: StreamCut,
    *,
    native: Callable[[str], bool],
    between: tuple[int, int] | None = None,
) -> History:
    """What lies between two cuts; `between` leaves out what surely holds no event time from the one (µs) to before the
    other. The caller holds a lease, or the files may go. `native` tells of a file's path or URL whether Spark may read
    it by itself; what it may not is `rest`."""
    fits: dict[str, bool] = {}
    pieces: dict[str, list[Piece]] = {}
    appended: dict[str, int] = {}
    rest: list[Range] = []
    rest_bytes = 0
    for segment, low, high in cuts.ranges(view, start, end):
        for key, piece, size, at in _pieces(opened, view, segment, low, high, between):
            if key is not None and key not in fits:
                fits[key] = native(opened.store.blobs.path(key))
            if key is None or not fits[key]:
                rest.append(_range(piece))
                rest_bytes += size
            else:
                pieces.setdefault(key, []).append(piece)
                appended[key] = at
    layers: list[list[File]] = []
    for key in sorted(pieces):
        for depth, layer in enumerate(_layers(pieces[key])):
            file = _file(opened, key, layer, appended[key], view.info.schema.columns)
            if file is None or file.wanted < _WORTH_SHARE * file.rows:
                rest += [_range(piece) for piece in layer]
                rest_bytes += opened.store.blobs.size(key) or 0
                continue
            if depth >= len(layers):
                layers.append([])
            layers[min(depth, len(layers) - 1)].append(file)
    return History(
        tuple(tuple(layer) for layer in layers),
        tuple(_joined(rest)),
        rest_bytes,
        sum(not each for each in fits.values()),
    )


def _pieces(
    opened: Opened,
    view: StreamView,
    segment: SegmentId,
    start: int,
    stop: int,
    between: tuple[int, int] | None,
) -> Iterator[tuple[str | None, Piece, int, int]]:
    """The pieces of a segment range with the keys of their files, None for what is no file, logical bytes, and the first
    append time. Raises Truncated where events of it are gone by now."""
    while start < stop:
        with opened.store.catalog.reading() as reading:
            now = readable(reading, view, segment, start)
            page = opened.logs.plan(reading, now, segment, start, stop, between=between)
        for extent, low, high, shift, columns in page.pieces:
            row = extent.place.row + low - extent.start if extent.encoding == "parquet" else low + shift
            piece = Piece(row, row + high - low, segment, low + shift - row)
            native = extent.encoding == "parquet" and same_types(columns, view.info.schema.columns)
            yield (extent.key if native else None), piece, extent.place.length, extent.appended.low or 0
        start = page.stop


def _range(piece: Piece) -> Range:
    return Range(piece.segment, piece.row + piece.shift, piece.stop + piece.shift)


def _joined(ranges: Iterable[Range]) -> list[Range]:
    joined: list[Range] = []
    for each in sorted(ranges):
        if joined and joined[-1].segment == each.segment and joined[-1].stop == each.start:
            joined[-1] = Range(each.segment, joined[-1].start, each.stop)
        else:
            joined.append(each)
    return joined


def _layers(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces of one file, in row order, without overlaps: a stream that views rows twice needs two layers."""
    layers: list[list[Piece]] = []
    for piece in sorted(pieces):
        for layer in layers:
            if layer[-1].stop <= piece.row:
                layer.append(piece)
                break
        else:
            layers.append([piece])
    return layers


def _file(opened: Opened, key: str, pieces: Sequence[Piece], appended: int, columns: pa.Schema) -> File | None:
    """The file; None for an attached one with columns that Spark's reader takes for others."""
    metadata = _metadata(opened.store.blobs, key)
    own = METADATA_KEY in (metadata.metadata or {})
    if not own and not _fits(metadata.schema.to_arrow_schema(), columns):
        return None
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.stop, last.segment, last.shift) == (piece.row, piece.segment, piece.shift):
            joined[-1] = last._replace(stop=piece.stop)
        else:
            joined.append(piece)
    path = opened.store.blobs.path(key)
    return File(key, path, int(metadata.num_rows), tuple(joined), None if own else appended)


def _fits(file: pa.Schema, columns: pa.Schema) -> bool:
    """True if Parquet holds the columns of an attached file as it would hold those of the stream."""
    for field in file:
        index = columns.get_field_index(field.name)
        if index < 0 or field.type.equals(columns.field(index).type):
            continue
        told = str(field.type)
        if "timestamp" in told or "fixed_size" in told or not plain_type(field.type).equals(columns.field(index).type):
            return False
    return True


def _metadata(blobs: Blobs, key: str) -> Any:
    """What a file's footer tells. That alone is read, for a file in a bucket may be large."""
    size = blobs.size(key)
    if size is None:
        raise BlobMissing(key)
    start = max(size - _FOOTER_BYTES, 0)
    end = blobs.get(key, start, size - start)
    length = _TRAILER_BYTES + int.from_bytes(memoryview(end)[-_TRAILER_BYTES:-4], "little")
    if length > len(memoryview(end)):
        end = blobs.get(key, size - length, length)
    return pq.read_metadata(pa.BufferReader(end))
