"""Reading a range as runs of events that keep their append time. Where possible, messages are read as stored in the
source, without decoding, and Parquet files whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.errors import CorruptBlob, CorruptCatalog
from anabranch.log.fetch import name_of
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.view import load
from anabranch.model.ids import StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, StreamView
from anabranch.streams.algebra.copy import schemas_of
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.record import JobRange

_SPARE_BYTES = 4 * limits.KIB  # overhead of a message beyond its events


class RangeRun(NamedTuple):
    """Events of one extent that belong to a range, of `size` logical bytes, which get the positions from `at` on in the
    log of their range. `keep` marks the events of `piece` that are kept; None keeps all."""

    range: JobRange
    piece: PlannedExtent
    size: int
    at: int
    keep: pa.Array | None = None

    @property
    def events(self) -> int:
        """The number of events it holds."""
        return self.piece.stop - self.piece.start if self.keep is None else self.keep.true_count


class LoadedRun(NamedTuple):
    """A run with its bytes: a message that holds it from row `row` on, encoded with the target's schema `version`, and
    the message's checksum if known."""

    run: RangeRun
    message: pa.Buffer
    row: int
    version: int
    checksum: int


class RangeReader:
    """Reads one source stream of a job. Thread-safe. `schemas` are those of the target, by version from 1 on."""

    def __init__(self, source: JobStore, stream: StreamId, schemas: Sequence[StreamSchema]) -> None:
        self._logs = LogReader(source.catalog, source.blobs, source.runtime)
        self.fetcher = self._logs.fetcher
        self._source = source
        self._stream = stream
        self._schemas = [schema.columns for schema in schemas]
        self._view: StreamView | None = None  # as of the last plan
        self._known: dict[int, tuple[pa.Schema, int | None]] = {}

    @classmethod
    def into(cls, target: JobStore, stage: StreamId, versions: int, source: JobStore, stream: StreamId) -> RangeReader:
        """A reader for a stage of the target, which has this many schemas."""
        with target.catalog.reading() as reading:
            return cls(source, stream, schemas_of(reading, stage, versions))

    @property
    def stream(self) -> StreamId:
        """The source stream."""
        return self._stream

    @property
    def catalog(self) -> Catalog:
        """The source's catalog."""
        return self._source.catalog

    @property
    def clear(self) -> bool:
        """True if the source is not encrypted."""
        return self._source.runtime.sealer is None

    @property
    def latest(self) -> int:
        """The target's newest schema version."""
        return len(self._schemas)

    def columns_of(self, version: int) -> pa.Schema:
        """The target's columns in a schema version."""
        return self._schemas[version - 1]

    def runs(self, range_: JobRange, offset: int) -> Iterator[RangeRun]:
        """The runs of a range from `offset` on, in order. Raises StreamNotFound, Truncated, CorruptCatalog."""
        source: SegmentReader | None = None
        while offset < range_.stop:
            with self._source.catalog.reading() as reading:
                if source is None:
                    source = SegmentReader(self._logs, self._view or load(reading, self._stream), range_.segment)
                page = source.plan_in(reading, offset, range_.stop)
                sized = list(_runs_with_sizes(reading, range_, page.extents))
            self._view = source.view
            yield from sized
            offset = page.stop

    def version(self, columns: pa.Schema) -> int | None:
        """The target's schema version with these columns, or None."""
        known = self._known.get(id(columns))
        if known is None:
            equal = (number for number, own in enumerate(self._schemas, 1) if own.equals(columns))
            known = self._known[id(columns)] = (columns, next(equal, None))
        return known[1]

    def load(self, run: RangeRun) -> LoadedRun:
        """The verified bytes of a tier-1 run. A message is kept as it is if the run is most of it; otherwise the events
        are encoded again. Raises BlobMissing, CorruptBlob."""
        piece, extent = run.piece, run.piece.extent
        message = self.fetcher.message(extent)
        if message is None:
            raise CorruptCatalog(f"an extent of log {extent.log} is {extent.encoding}, arrow was expected", "extents")
        row = piece.row
        version = self.version(piece.columns)
        if run.keep is None and version is not None and message.size <= 2 * run.size + _SPARE_BYTES:
            digest = extent.checksum if self.clear else checksum(message)
            return LoadedRun(run, message, row, version, digest)
        name = name_of(extent)
        count = piece.stop - piece.start
        batch = self.fetcher.decode(extent, message, piece.columns).slice(row, count)
        if batch.num_rows != count:
            raise CorruptBlob(name, f"expected {count} events in its message, found {batch.num_rows}")
        if run.keep is not None:
            batch = batch.filter(run.keep)
        if version is None:
            version = self.latest
            batch = codec.widen(batch, self.columns_of(version))
        message = codec.encode(batch)
        return LoadedRun(run, message, 0, version, checksum(message))

    def whole(self, extent: Extent) -> pa.Buffer:
        """The verified bytes of a whole tier-2 file. Raises BlobMissing, CorruptBlob."""
        if extent.key is None:
            raise CorruptCatalog(
                f"log {extent.log} refers to blob {extent.blob}, which the catalog does not have",
                "blobs",
                str(extent.blob),
            )
        data = self._source.blobs.get(extent.key)
        if checksum(data) != extent.checksum:
            raise CorruptBlob(extent.key, "its checksum does not match its bytes")
        return data


def _runs_with_sizes(reading: Reading, range_: JobRange, pieces: Sequence[PlannedExtent]) -> Iterator[RangeRun]:
    """Pieces with their logical bytes: those of their extent, or the piece's share of them."""
    before = None
    for piece in pieces:
        extent = piece.extent
        follows = before is not None and (before.log, before.stop) == (extent.log, extent.start)
        last = before if follows else reading.extent_before(extent.log, extent.start)
        size = extent.size_end - (last.size_end if last is not None else 0)
        before = extent
        share = size * (piece.stop - piece.start) // (extent.stop - extent.start)
        yield RangeRun(range_, piece, share, piece.start + piece.shift - range_.start)
