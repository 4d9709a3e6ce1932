"""Splits a part of a stream into Parquet files that Spark can read by itself, and the rest.

Files contain no offsets and segments: a file holds rows of logs, and streams are views of logs. A row's segment and
offset follow from the file's name and the row's number in it. This module converts the catalog's extents to files, each
with the pieces to scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.core import cuts
from anabranch.model.columns import plain_type
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView
from anabranch.spark.source.scan import ScanRange
from anabranch.store import Store
from anabranch.store.engine_api import METADATA_KEY, SegmentReader, read_footer

__all__ = ["HistoryPiece", "HistoryPlan", "NativeFile", "native_types", "plan_history"]

_TAKEN: Final = ("_metadata", "_tmp_metadata_row_index", "_anabranch_file_name")
_WORTH_SHARE: Final = 0.5  # of a file's rows; below this share Spark would read too many unneeded rows


class HistoryPiece(NamedTuple):
    """Rows `row <= r < stop` of a file; row `r` is the event `r + shift` of the segment."""

    row: int
    stop: int
    segment: SegmentId
    shift: int


@dataclass(frozen=True, slots=True)
class NativeFile:
    """A Parquet file of `rows` rows, and the pieces of it to read, in row order and without overlaps.

    An attached file that was not written by a store contains no append times; `appended` (µs) is then that of all its
    events. None for a file of a store.
    """

    key: str
    path: str
    rows: int
    pieces: tuple[HistoryPiece, ...]
    appended: int | None = None

    @property
    def wanted(self) -> int:
        """How many rows are to be read."""
        return sum(piece.stop - piece.row for piece in self.pieces)

    @property
    def whole(self) -> bool:
        """True if every row of the file is to be read."""
        return self.wanted == self.rows


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """How to read a part of a stream: `layers` of files, each file at most once in a layer, and the `rest`, about
    `rest_bytes` logical bytes, which is read as Arrow. `turned_away` counts the files that are in the rest because
    Spark can't read them natively."""

    layers: tuple[tuple[NativeFile, ...], ...]
    rest: tuple[ScanRange, ...]
    rest_bytes: int
    turned_away: int


def native_types(columns: pa.Schema) -> bool:
    """True if Spark's Parquet reader can read all these columns as the store writes them."""
    names = [name.lower() for name in columns.names]
    # Spark looks up columns case-insensitively, and some names are reserved.
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
    """True if a file's columns have the stream's present types. Spark can read only some types that were widened."""
    return all(wanted.field(field.name).type.equals(field.type) for field in columns)


def plan_history(
    opened: Store,
    view: StreamView,
    start: StreamCut,
    end: StreamCut,
    *,
    native: Callable[[str], bool],
    between: tuple[int, int] | None = None,
) -> HistoryPlan:
    """The plan for the events between two cuts. `between=(low, high)` leaves out what certainly contains no event time
    in `low <= time < high` (µs). `native` returns, for a file's path or URL, whether Spark can read it by itself; other
    files become `rest`. The caller must hold a lease, else the files may be collected."""
    fits: dict[str, bool] = {}
    pieces: dict[str, list[HistoryPiece]] = {}
    appended: dict[str, int] = {}
    rest: list[ScanRange] = []
    rest_bytes = 0
    for segment, low, high in cuts.ranges(view, start, end):
        for key, piece, size, at in _pieces(opened, view, segment, low, high, between):
            if key is not None and key not in fits:
                fits[key] = native(opened.blobs.path(key))
            if key is None or not fits[key]:
                rest.append(_range(piece))
                rest_bytes += size
            else:
                pieces.setdefault(key, []).append(piece)
                appended[key] = at
    layers: list[list[NativeFile]] = []
    for key in sorted(pieces):
        for depth, layer in enumerate(_layers(pieces[key])):
            file = _file(opened, key, layer, appended[key], view.info.schema.columns)
            if file is None or file.wanted < _WORTH_SHARE * file.rows:
                rest += [_range(piece) for piece in layer]
                rest_bytes += opened.blobs.size(key) or 0
                continue
            if depth >= len(layers):
                layers.append([])
            layers[min(depth, len(layers) - 1)].append(file)
    return HistoryPlan(
        tuple(tuple(layer) for layer in layers),
        tuple(_joined(rest)),
        rest_bytes,
        sum(not each for each in fits.values()),
    )


def _pieces(
    opened: Store,
    view: StreamView,
    segment: SegmentId,
    start: int,
    stop: int,
    between: tuple[int, int] | None,
) -> Iterator[tuple[str | None, HistoryPiece, int, int]]:
    """The pieces of a segment range: for each the key of its file (None if Spark can't read it natively), the piece,
    its logical bytes, and its first append time. Raises Truncated if events of the range are truncated by now."""
    for page in SegmentReader(opened.internals.logs, view, segment).pages(start, stop, between=between):
        for extent, low, high, shift, columns in page.extents:
            row = extent.location.row + low - extent.start if extent.encoding == "parquet" else low + shift
            piece = HistoryPiece(row, row + high - low, segment, low + shift - row)
            native = extent.encoding == "parquet" and same_types(columns, view.info.schema.columns)
            yield (extent.key if native else None), piece, extent.location.length, extent.appended.low or 0


def _range(piece: HistoryPiece) -> ScanRange:
    return ScanRange(piece.segment, piece.row + piece.shift, piece.stop + piece.shift)


def _joined(ranges: Iterable[ScanRange]) -> list[ScanRange]:
    joined: list[ScanRange] = []
    for each in sorted(ranges):
        if joined and joined[-1].segment == each.segment and joined[-1].stop == each.start:
            joined[-1] = ScanRange(each.segment, joined[-1].start, each.stop)
        else:
            joined.append(each)
    return joined


def _layers(pieces: Sequence[HistoryPiece]) -> list[list[HistoryPiece]]:
    """The pieces of one file in layers, each in row order without overlaps. Rows that a stream views twice need two."""
    layers: list[list[HistoryPiece]] = []
    for piece in sorted(pieces):
        for layer in layers:
            if layer[-1].stop <= piece.row:
                layer.append(piece)
                break
        else:
            layers.append([piece])
    return layers


def _file(
    opened: Store, key: str, pieces: Sequence[HistoryPiece], appended: int, columns: pa.Schema
) -> NativeFile | None:
    """The file with its pieces; None for an attached file whose columns Spark's reader would read as other types."""
    metadata = read_footer(opened.blobs, key)
    own = METADATA_KEY in (metadata.metadata or {})
    if not own and not _fits(metadata.schema.to_arrow_schema(), columns):
        return None
    joined: list[HistoryPiece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.stop, last.segment, last.shift) == (piece.row, piece.segment, piece.shift):
            joined[-1] = last._replace(stop=piece.stop)
        else:
            joined.append(piece)
    path = opened.blobs.path(key)
    return NativeFile(key, path, int(metadata.num_rows), tuple(joined), None if own else appended)


def _fits(file: pa.Schema, columns: pa.Schema) -> bool:
    """True if Parquet stores the columns of an attached file as it would store those of the stream."""
    for field in file:
        index = columns.get_field_index(field.name)
        if index < 0 or field.type.equals(columns.field(index).type):
            continue
        type_name = str(field.type)
        if (
            "timestamp" in type_name
            or "fixed_size" in type_name
            or not plain_type(field.type).equals(columns.field(index).type)
        ):
            return False
    return True
