"""Reading logs: plan, fetch, verify, decode, slice. Rows come out as Arrow batches; nothing is copied that need not be."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import codec
from anabranch.core.raw_event import payload_of
from anabranch.core.shared import constant, rising
from anabranch.errors import BlobMissing, CorruptBlob, CorruptStore
from anabranch.log.fetch import Fetcher, name_of
from anabranch.log.plan import Piece, Plan, plan
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import Extent, StreamView
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class Selection:
    """What a read yields: `columns` in their order, at most `rows_max` rows at a time, and of the rows only those
    whose column `time` lies in `between[0] <= time < between[1]` (µs; null times never do) if that is given."""

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


class Rows(NamedTuple):
    """Events of one segment: all that was asked for of the offsets `first <= offset < stop`.

    Row `i` of the batch has offset `first + i`, or `offsets[i]` where rows were left out. `appended` is the append time
    of all of them in µs, or an array with one for each.
    """

    first: int
    stop: int
    batch: pa.RecordBatch
    appended: int | pa.Array
    offsets: pa.Array | None


class LogReader:
    """Reads segments through their spans. One for a store; any number of readers may share it."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime) -> None:
        self._catalog = catalog
        self._fetcher = Fetcher(blobs, runtime)
        self._columns: dict[tuple[StreamId, int], pa.Schema] = {}

    def plan(
        self,
        reading: Reading,
        view: StreamView,
        segment: SegmentId,
        start: int,
        stop: int,
        *,
        extents_max: int | None = None,
        between: tuple[int, int] | None = None,
    ) -> Plan:
        """One page of a plan; see `anabranch.log.plan.plan`."""
        return plan(
            reading,
            view,
            segment,
            start,
            stop,
            extents_max=limits.EXTENTS_PER_PLAN_MAX if extents_max is None else extents_max,
            columns=self.columns,
            between=between,
        )

    def columns(self, reading: Reading, stream: StreamId, version: int) -> pa.Schema:
        """A schema version of a stream, remembered, since versions never change."""
        known = self._columns.get((stream, version))
        if known is None:
            if len(self._columns) >= limits.SCHEMAS_KEPT_MAX:
                self._columns.clear()
            known = self._columns[stream, version] = reading.schema(stream, version).columns
        return known

    def read(self, pages: Callable[[int], Plan], start: int, stop: int, selection: Selection) -> Generator[Rows]:
        """The rows of the offsets `start <= offset < stop` of a segment, in order. `pages(offset)` plans the next page.

        Raises CorruptBlob where bytes are not those that were written, and BlobMissing where a blob is gone that a
        second plan still names. A batch may be empty, if all its rows were left out.
        """
        offset, missing = start, None
        while offset < stop:
            page = pages(offset)
            if missing is not None and any(piece.extent.key == missing.key for piece in page.pieces):
                raise missing
            try:
                for rows in self.rows(page.pieces, selection):
                    yield rows
                    offset, missing = rows.stop, None
            except BlobMissing as exc:
                # The plan may be older than a compaction whose old blobs were collected since: plan again, once.
                missing = exc
                continue
            offset = page.stop

    def rows(self, pieces: Sequence[Piece], selection: Selection) -> Iterator[Rows]:
        """The rows of pieces in order, neighbours put together where they are few. Raises BlobMissing, CorruptBlob."""
        small: list[Rows] = []
        held = weight = 0
        try:
            for rows, size in self._pieces(pieces, selection):
                count = rows.batch.num_rows
                full = held + count > selection.rows_max or weight + size > limits.READ_BYTES_MAX
                if small and (count >= limits.SMALL_ROWS or full):
                    ready, small, held, weight = _together(small), [], 0, 0
                    yield ready
                if count >= limits.SMALL_ROWS:
                    yield rows
                else:
                    small.append(rows)
                    held, weight = held + count, weight + size
        except CorruptStore:
            if small:  # they lie before the damage
                yield _together(small)
            raise
        if small:
            yield _together(small)

    def _pieces(self, pieces: Sequence[Piece], selection: Selection) -> Iterator[tuple[Rows, int]]:
        """Their rows, with about how many bytes they are."""
        for piece, following in zip_longest(pieces, pieces[1:]):
            message = self._fetcher.message(piece.extent)
            if following is not None:
                self._fetcher.prepare(following.extent)
            yield from self._decode(piece, message, selection)

    def raw_payload(self, extent: Extent) -> bytes | None:
        """The payload of the only event of an inlined extent of a raw stream, as it was appended without a key. None of any
        other, which is to be read as `rows`. Raises CorruptBlob."""
        if extent.data is None or extent.stop - extent.start != 1:
            return None
        message = self._fetcher.message(extent)
        return None if message is None else payload_of(message.to_pybytes())

    def append_times(self, piece: Piece) -> Iterator[tuple[int, pa.Array]]:
        """The append times of a piece of a tier-2 extent, in runs that begin at a position. Nothing for a tier-1
        extent, whose only append time stands in the catalog."""
        extent, first = piece.extent, piece.start
        if extent.encoding == "arrow":
            return
        row = extent.place.row + piece.start - extent.start
        for _, appended in self._fetcher.parquet(extent, row, piece.stop - piece.start, pa.schema([])):
            yield first, appended
            first += len(appended)

    def _decode(self, piece: Piece, message: pa.Buffer | None, selection: Selection) -> Iterator[tuple[Rows, int]]:
        """The rows of one piece; `message` holds them if it is an Arrow extent."""
        extent, first = piece.extent, piece.start
        if message is None:
            row = extent.place.row + piece.start - extent.start
            for batch, appended in self._fetcher.parquet(extent, row, piece.stop - piece.start, selection.decoded):
                yield from _cut(batch, first + piece.shift, appended, selection, batch.nbytes)
                first += batch.num_rows
            return
        batch = codec.decode(message, piece.columns, key=name_of(extent))
        row, count = extent.place.row + piece.start - extent.start, piece.stop - piece.start
        if row + count > batch.num_rows:
            raise CorruptBlob(name_of(extent), f"its message holds {batch.num_rows} rows, {row + count} were expected")
        size = message.size  # which is at hand: asking a batch takes as long as decoding it
        if count != batch.num_rows:
            size = size * count // batch.num_rows
            batch = batch.slice(row, count)
        if not piece.columns.equals(selection.decoded):
            batch = codec.widen(batch, selection.decoded)
        low, high = extent.appended.low, extent.appended.high
        assert low is not None, "an extent always has an append time"
        assert low == high, "a tier-1 extent has one append time"
        yield from _cut(batch, first + piece.shift, low, selection, size)


def _cut(
    batch: pa.RecordBatch, first: int, appended: int | pa.Array, selection: Selection, size: int
) -> Iterator[tuple[Rows, int]]:
    """A batch of about `size` bytes in pieces of at most `rows_max` rows and about `limits.READ_BYTES_MAX` bytes, filtered;
    each with its bytes."""
    for start, count, weight in _portions(batch, 0, selection.rows_max, size):
        whole = count == batch.num_rows
        part = batch if whole else batch.slice(start, count)
        times = appended if whole or isinstance(appended, int) else appended.slice(start, count)
        rows = Rows(first + start, first + start + count, part, times, None)
        yield rows if selection.between is None else _filtered(rows, selection), weight


def _portions(batch: pa.RecordBatch, first: int, rows_max: int, size: int) -> Iterator[tuple[int, int, int]]:
    """First row, number of rows and bytes of each piece; the rows of `batch` are counted from `first`."""
    count = batch.num_rows
    step = rows_max if count > rows_max else count
    if count > 1 and size > limits.READ_BYTES_MAX:
        step = min(step, count // 2)
    if step == count:
        if count:
            yield first, count, size
        return
    for start in range(0, count, step):
        part = batch.slice(start, step)
        share = part.nbytes if size > limits.READ_BYTES_MAX else size * part.num_rows // count
        yield from _portions(part, first + start, rows_max, share)


def _filtered(rows: Rows, selection: Selection) -> Rows:
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
    return Rows(rows.first, rows.stop, batch.take(kept), appended, offsets)


def _together(pieces: list[Rows]) -> Rows:
    """Neighbouring rows as one batch."""
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
    return Rows(pieces[0].first, pieces[-1].stop, batch, appended, offsets)


def offsets_of(rows: Rows, *, shared: bool = False) -> pa.Array:
    """The offset of each row, int64. `shared`: segments are read side by side, so others are about to have the same."""
    if rows.offsets is not None:
        return rows.offsets
    return rising(rows.first, rows.batch.num_rows, shared=shared)


def appended_of(rows: Rows, *, shared: bool = False) -> pa.Array:
    """The append time of each row, timestamp[us, UTC]. `shared`: as for offsets."""
    if not isinstance(rows.appended, int):
        return rows.appended
    return constant(rows.appended, rows.batch.num_rows, TIME_TYPE, shared=shared)
