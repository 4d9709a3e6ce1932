"""Reads logs: fetch, verify, decode, slice. Rows come out as Arrow batches; nothing is copied without need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import codec
from anabranch.core.constant_columns import consecutive, constant
from anabranch.core.raw_event import payload_of
from anabranch.errors import CorruptBlob, CorruptCatalog, CorruptStore
from anabranch.log.fetch import Fetcher, name_of
from anabranch.log.plan import PlannedExtent
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import StreamId
from anabranch.model.stream import Extent
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class Selection:
    """What a read yields: `columns` in their order, at most `rows_max` rows at a time. If `between` is given, only
    rows whose column `time` is in `between[0] <= time < between[1]` (µs); rows with a null time are left out."""

    columns: pa.Schema
    rows_max: int = limits.READ_ROWS_MAX
    time: str | None = None
    between: tuple[int, int] | None = None
    decoded: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        decoded = self.columns
        if self.between is not None:
            assert self.time is not None
            if self.time not in decoded.names:
                decoded = decoded.append(pa.field(self.time, TIME_TYPE))
        object.__setattr__(self, "decoded", decoded)


class SegmentRows(NamedTuple):
    """Events of one segment: everything selected from the offsets `first <= offset < stop`.

    Row `i` of the batch has offset `first + i`, or `offsets[i]` if rows were left out. `appended` is the append time
    of all rows in µs, or an array with one time for each.
    """

    first: int
    stop: int
    batch: pa.RecordBatch
    appended: int | pa.Array
    offsets: pa.Array | None

    def split(self, count: int) -> tuple[SegmentRows, SegmentRows]:
        """The first `count` rows, and the others; at least one each."""
        offsets, times = self.offsets, self.appended
        first = self.first + count if offsets is None else offsets[count].as_py()
        stop = first if offsets is None else offsets[count - 1].as_py() + 1
        before, after = (
            SegmentRows(
                begin,
                end,
                self.batch.slice(row, length),
                times if isinstance(times, int) else times.slice(row, length),
                None if offsets is None else offsets.slice(row, length),
            )
            for begin, end, row, length in ((self.first, stop, 0, count), (first, self.stop, count, None))
        )
        return before, after


class LogReader:
    """Returns the rows of planned extents. One per store; any number of readers may share it, each through a
    `SegmentReader`."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime) -> None:
        self.times = runtime.settings.times  # how a time is interpreted that a caller gives as a position
        self.catalog = catalog
        self.fetcher = Fetcher(blobs, runtime)
        self._settings = runtime.settings
        self._columns: dict[tuple[StreamId, int], pa.Schema] = {}

    @property
    def _batch_bytes_max(self) -> int:
        return min(self._settings.read_batch_bytes_max, limits.READ_BYTES_MAX)

    def columns(self, reading: Reading, stream: StreamId, version: int) -> pa.Schema:
        """A schema version of a stream, cached: versions never change."""
        known = self._columns.get((stream, version))
        if known is None:
            if len(self._columns) >= limits.SCHEMAS_KEPT_MAX:
                self._columns.clear()
            known = self._columns[stream, version] = reading.schema(stream, version).columns
        return known

    def rows(self, pieces: Sequence[PlannedExtent], selection: Selection) -> Iterator[SegmentRows]:
        """The rows of planned extents in order; small neighbours are concatenated. Raises BlobMissing, CorruptBlob."""
        small: list[SegmentRows] = []
        bytes_max = self._batch_bytes_max
        row_count = weight = 0
        try:
            for rows, size in self._pieces(pieces, selection):
                count = rows.batch.num_rows
                full = row_count + count > selection.rows_max or weight + size > bytes_max
                if small and (count >= limits.SMALL_ROWS or full):
                    ready, small, row_count, weight = _concatenate(small), [], 0, 0
                    yield ready
                if count >= limits.SMALL_ROWS:
                    yield rows
                else:
                    small.append(rows)
                    row_count, weight = row_count + count, weight + size
        except CorruptStore:
            if small:  # these rows precede the damage
                yield _concatenate(small)
            raise
        if small:
            yield _concatenate(small)

    def _pieces(self, pieces: Sequence[PlannedExtent], selection: Selection) -> Iterator[tuple[SegmentRows, int]]:
        """The rows of each planned extent, with their approximate size in bytes."""
        for piece, following in zip_longest(pieces, pieces[1:]):
            message = self.fetcher.message(piece.extent)
            if following is not None:
                self.fetcher.prepare(following.extent)
            yield from self._decode(piece, message, selection)

    def raw_payload(self, extent: Extent) -> bytes | None:
        """The payload of the event of an inlined extent that holds a single raw event, appended without a key. None for
        any other extent, which must be read with `rows`. Raises CorruptBlob."""
        if extent.data is None or extent.stop - extent.start != 1:
            return None
        message = self.fetcher.message(extent)
        return None if message is None else payload_of(message.to_pybytes())

    def append_times(self, piece: PlannedExtent) -> Iterator[tuple[int, pa.Array]]:
        """The append times of a planned tier-2 extent, as pairs of first position and array. Yields nothing for a
        tier-1 extent, whose single append time is in the catalog."""
        extent, first = piece.extent, piece.start
        if extent.encoding == "arrow":
            return
        for _, appended in self.fetcher.parquet(extent, piece.row, piece.stop - piece.start, pa.schema([])):
            yield first, appended
            first += len(appended)

    def _decode(
        self, piece: PlannedExtent, message: pa.Buffer | None, selection: Selection
    ) -> Iterator[tuple[SegmentRows, int]]:
        """The rows of one planned extent; `message` holds them if it is an Arrow extent."""
        extent, first = piece.extent, piece.start
        if message is None:
            for batch, appended in self.fetcher.parquet(extent, piece.row, piece.stop - piece.start, selection.decoded):
                yield from _cut(batch, first + piece.shift, appended, selection, batch.nbytes, self._batch_bytes_max)
                first += batch.num_rows
            return
        batch = self.fetcher.decode(extent, message, piece.columns)
        row, count = piece.row, piece.stop - piece.start
        if row + count > batch.num_rows:
            raise CorruptBlob(name_of(extent), f"expected {row + count} rows in its message, found {batch.num_rows}")
        size = message.size  # already known; computing the batch's size takes as long as decoding it
        if count != batch.num_rows:
            size = size * count // batch.num_rows
            batch = batch.slice(row, count)
        if not piece.columns.equals(selection.decoded):
            batch = codec.widen(batch, selection.decoded)
        low, high = extent.appended.low, extent.appended.high
        if low is None or low != high:
            raise CorruptCatalog(f"{name_of(extent)} is one commit, but its append times differ: {low} to {high} µs")
        yield from _cut(batch, first + piece.shift, low, selection, size, self._batch_bytes_max)


def _cut(
    batch: pa.RecordBatch, first: int, appended: int | pa.Array, selection: Selection, size: int, bytes_max: int
) -> Iterator[tuple[SegmentRows, int]]:
    """Splits a batch of about `size` bytes into parts of at most `rows_max` rows and about `bytes_max`
    bytes, filtered; yields each with its size in bytes."""
    for start, count, weight in _portions(batch, 0, selection.rows_max, size, bytes_max):
        whole = count == batch.num_rows
        part = batch if whole else batch.slice(start, count)
        times = appended if whole or isinstance(appended, int) else appended.slice(start, count)
        rows = SegmentRows(first + start, first + start + count, part, times, None)
        yield rows if selection.between is None else _filter_rows(rows, selection), weight


def _portions(
    batch: pa.RecordBatch, first: int, rows_max: int, size: int, bytes_max: int
) -> Iterator[tuple[int, int, int]]:
    """The first row, the number of rows and the bytes of each part. The first row of `batch` has the number `first`."""
    count = batch.num_rows
    step = rows_max if count > rows_max else count
    if count > 1 and size > bytes_max:
        step = min(step, count // 2)
    if step == count:
        if count:
            yield first, count, size
        return
    for start in range(0, count, step):
        part = batch.slice(start, step)
        share = part.nbytes if size > bytes_max else size * part.num_rows // count
        yield from _portions(part, first + start, rows_max, share, bytes_max)


def _filter_rows(rows: SegmentRows, selection: Selection) -> SegmentRows:
    assert selection.time is not None
    assert selection.between is not None
    low, high = selection.between
    times = rows.batch.column(selection.time).cast(pa.int64())
    wanted = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
    batch = rows.batch.select(selection.columns.names)
    if pc.all(wanted, skip_nulls=False).as_py():
        return rows._replace(batch=batch)
    kept = pc.indices_nonzero(wanted)
    appended = rows.appended if isinstance(rows.appended, int) else rows.appended.take(kept)
    offsets = pc.add(kept.cast(pa.int64()), rows.first)
    return SegmentRows(rows.first, rows.stop, batch.take(kept), appended, offsets)


def _concatenate(pieces: list[SegmentRows]) -> SegmentRows:
    """Concatenates neighbouring rows into one batch."""
    if len(pieces) == 1:
        return pieces[0]
    batch = pa.concat_batches([rows.batch for rows in pieces])
    offsets = None
    gaps = any(left.stop != right.first for left, right in pairwise(pieces))
    if gaps or any(rows.offsets is not None for rows in pieces):
        offsets = pa.concat_arrays([offsets_of(rows) for rows in pieces])
    appended: int | pa.Array = pieces[0].appended
    if not isinstance(appended, int) or any(rows.appended != appended for rows in pieces):
        appended = pa.concat_arrays([appended_of(rows) for rows in pieces])
    return SegmentRows(pieces[0].first, pieces[-1].stop, batch, appended, offsets)


def no_rows(first: int, stop: int, selection: Selection) -> SegmentRows:
    """Records that no row of these offsets was selected."""
    return SegmentRows(first, stop, pa.RecordBatch.from_pylist([], schema=selection.columns), 0, None)


def offsets_of(rows: SegmentRows, *, shared: bool = False) -> pa.Array:
    """The offset of each row, int64. `shared`: other batches will soon need equal values, because segments are
    read in parallel."""
    if rows.offsets is not None:
        return rows.offsets
    return consecutive(rows.first, rows.batch.num_rows, shared=shared)


def appended_of(rows: SegmentRows, *, shared: bool = False) -> pa.Array:
    """The append time of each row, timestamp[us, UTC]. `shared`: as in `offsets_of`."""
    if not isinstance(rows.appended, int):
        return rows.appended
    return constant(rows.appended, rows.batch.num_rows, TIME_TYPE, shared=shared)
