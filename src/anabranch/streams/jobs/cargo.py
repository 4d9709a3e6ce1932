"""Reading what a range holds, as runs of events that keep their append time: the messages as they lie in the source,
where that can be, so that nothing is decoded; whole Parquet files as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.core.cuts import truncated
from anabranch.errors import CorruptBlob
from anabranch.log.fetch import Fetcher, name_of
from anabranch.log.plan import Piece, plan
from anabranch.log.view import load
from anabranch.model.ids import StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, StreamView
from anabranch.streams.jobs.row import Range
from anabranch.streams.jobs.site import Site

_SPARE_BYTES = 4 * limits.KIB  # what a message weighs beyond its events


class Run(NamedTuple):
    """Events of one extent that belong to a range: `size` logical bytes, which get the positions from `at` on in the log
    of their range. Of the piece those stay for which `keep` is true, or all."""

    range: Range
    piece: Piece
    size: int
    at: int
    keep: pa.Array | None = None

    @property
    def events(self) -> int:
        """How many events it holds."""
        return self.piece.stop - self.piece.start if self.keep is None else self.keep.true_count


class Load(NamedTuple):
    """A run with its bytes: the message that holds it from row `row` on, encoded with the target's schema `version`;
    its checksum where that is known already."""

    run: Run
    message: pa.Buffer
    row: int
    version: int
    checksum: int


class Cargo:
    """Reads one source stream of a job. Thread-safe. `schemas` are those of the target, by version from 1 on."""

    def __init__(self, source: Site, stream: StreamId, schemas: Sequence[StreamSchema]) -> None:
        self.fetcher = Fetcher(source.blobs, source.runtime)
        self._source = source
        self._stream = stream
        self._schemas = [schema.columns for schema in schemas]
        self._columns: dict[tuple[StreamId, int], pa.Schema] = {}
        self._known: dict[int, tuple[pa.Schema, int | None]] = {}

    @property
    def stream(self) -> StreamId:
        """The source."""
        return self._stream

    @property
    def catalog(self) -> Catalog:
        """The source's."""
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
        """The target's columns of a version."""
        return self._schemas[version - 1]

    def runs(self, range_: Range, offset: int) -> Iterator[Run]:
        """The runs of a range from `offset` on, in order. Raises StreamNotFound, Truncated, CorruptCatalog."""
        while offset < range_.stop:
            with self._source.catalog.reading() as reading:
                view = load(reading, self._stream)
                _refuse_truncated(view, range_, offset)
                page = plan(
                    reading,
                    view,
                    range_.segment,
                    offset,
                    range_.stop,
                    extents_max=limits.EXTENTS_PER_PLAN_MAX,
                    columns=self._schema,
                )
                sized = list(_sized(reading, range_, page.pieces))
            yield from sized
            offset = page.stop

    def version(self, columns: pa.Schema) -> int | None:
        """The target's schema version with these columns, or None."""
        known = self._known.get(id(columns))
        if known is None:
            equal = (number for number, own in enumerate(self._schemas, 1) if own.equals(columns))
            known = self._known[id(columns)] = (columns, next(equal, None))
        return known[1]

    def load(self, run: Run) -> Load:
        """The bytes of a run of tier 1, verified. A message of which most is wanted stays as it is; else the events are
        encoded anew. Raises BlobMissing, CorruptBlob."""
        piece, extent = run.piece, run.piece.extent
        message = self.fetcher.message(extent)
        assert message is not None
        row = extent.place.row + piece.start - extent.start
        version = self.version(piece.columns)
        if run.keep is None and version is not None and message.size <= 2 * run.size + _SPARE_BYTES:
            digest = extent.checksum if self.clear else checksum(message)
            return Load(run, message, row, version, digest)
        name = name_of(extent)
        count = piece.stop - piece.start
        batch = codec.decode(message, piece.columns, key=name).slice(row, count)
        if batch.num_rows != count:
            raise CorruptBlob(name, f"{count} events were expected, its message holds {batch.num_rows}")
        if run.keep is not None:
            batch = batch.filter(run.keep)
        if version is None:
            version = self.latest
            batch = codec.widen(batch, self.columns_of(version))
        message = codec.encode(batch)
        return Load(run, message, 0, version, checksum(message))

    def whole(self, extent: Extent) -> pa.Buffer:
        """The verified bytes of a whole file of tier 2. Raises BlobMissing, CorruptBlob."""
        assert extent.key is not None
        data = self._source.blobs.get(extent.key)
        if checksum(data) != extent.checksum:
            raise CorruptBlob(extent.key, "its checksum does not match its bytes")
        return data

    def _schema(self, reading: Reading, stream: StreamId, version: int) -> pa.Schema:
        known = self._columns.get((stream, version))
        if known is None:
            known = self._columns[stream, version] = reading.schema(stream, version).columns
        return known


def _refuse_truncated(view: StreamView, range_: Range, offset: int) -> None:
    segment = view.segments.get(range_.segment)
    if segment is None or segment.head > offset:
        raise truncated(view)


def _sized(reading: Reading, range_: Range, pieces: Sequence[Piece]) -> Iterator[Run]:
    """Pieces with their logical bytes: those of their extent, or as much of them as is wanted."""
    before = None
    for piece in pieces:
        extent = piece.extent
        follows = before is not None and (before.log, before.stop) == (extent.log, extent.start)
        last = before if follows else reading.extent_before(extent.log, extent.start)
        size = extent.size_end - (last.size_end if last is not None else 0)
        before = extent
        share = size * (piece.stop - piece.start) // (extent.stop - extent.start)
        yield Run(range_, piece, share, piece.start + piece.shift - range_.start)
