"""Data files of archives: writing one, and reading one back.

Each is a tier-2 file (`log.parquet`) of one part, whose rows also hold their segment and offset. It ends where a block
of the digest or the segment ends, so files and blocks can be verified one by one. A block of large events may span
several files: each digests its part of the block, and the digest of the whole block covers all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.core.constant_columns import constant
from anabranch.errors import CorruptBlob
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.model.append import TimeBounds
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.transfer.archives.digest import BLOCK_ROWS, BlockSums
from anabranch.transfer.archives.format import ArchivedFile, sha256_of
from anabranch.transfer.archives.source import SourceRun

ADDED: Final = (pa.field("_segment", pa.int64()), pa.field("_offset", pa.int64()))

_CONTENT: Final = "content"  # in the file's own metadata: SHA-256 over the digests of its blocks


class DataFilePart(NamedTuple):
    """What a data file holds: events of one segment of a stream, encoded with one version of its schema."""

    stream: StreamId
    segment: SegmentId
    schema: StreamSchema
    version: int


class DigestedFile(NamedTuple):
    """A data file as named in the metadata, and the digests of its blocks; for blocks at its edges, of the part it
    holds."""

    file: ArchivedFile
    blocks: list[bytes]


ReadFile = Callable[[ArchivedFile], Iterable[tuple[pa.RecordBatch, pa.Array]]]


def blocks_of(files: Sequence[DigestedFile], read: ReadFile) -> list[bytes]:
    """The digests of the blocks in the files of a segment, in order. Blocks that span files are read again: `read`
    yields a file's columns and append times."""
    blocks: list[bytes] = []
    parts: list[DigestedFile] = []
    for number, summary in enumerate(files, 1):
        parts.append(summary)
        if summary.file.stop % BLOCK_ROWS and number < len(files):
            continue
        blocks += parts[0].blocks if len(parts) == 1 else _spanning(parts, read)
        parts = []
    return blocks


def _spanning(parts: Sequence[DigestedFile], read: ReadFile) -> list[bytes]:
    sums = BlockSums(parts[0].file.start)
    for part in parts:
        for batch, appended in read(part.file):
            sums.add(batch, appended)
    return sums.blocks()


class DataFileWriter:
    """A data file being written. Memory: one row group and the file, which holds at most about
    `limits.ARCHIVE_FILE_BYTES_MAX` of uncompressed events, or one event that is larger."""

    def __init__(self, part: DataFilePart, start: int) -> None:
        self._part = part
        self._builder = ParquetBuilder(pa.schema([*part.schema.columns, *ADDED]))
        self._builder.begin(part.stream, None, start, part.version, segment=part.segment)
        self._rows = _Rows(part, start)

    def add(self, run: SourceRun) -> None:
        """Add the events that follow."""
        batch, count = run.batch, run.batch.num_rows
        segment, offsets = constant(self._part.segment.packed, count), pa.array(np.arange(run.first, run.stop))
        columns = pa.schema([*self._part.schema.columns, *ADDED])
        self._builder.write(pa.record_batch([*batch.columns, segment, offsets], schema=columns), run.appended)
        self._rows.add(run)

    def finish(self, name: str) -> tuple[pa.Buffer, DigestedFile]:
        """The file's bytes, and its entry in the metadata."""
        self._builder.end()
        blocks = self._rows.sums.blocks()
        written = self._builder.finish(**{_CONTENT: sha256_of(blocks)})
        return written.data, self._rows.summary(name, written.data, blocks)


def read_back(name: str, data: pa.Buffer, part: DataFilePart, start: int, stop: int) -> DigestedFile:
    """Read a data file again and digest it. Raises CorruptBlob if it is damaged, or holds anything other than events of
    `part` from `start` to some offset at or before `stop`."""
    reader = ParquetReader(name, data)
    parts = reader.parts()
    recorded = parts[0] if len(parts) == 1 else {}
    asked = {"stream": f"{part.stream:016x}", "segment": str(part.segment), "start": start, "schema": part.version}
    if {each: recorded.get(each) for each in asked} != asked or reader.rows != recorded["stop"] - start:
        raise CorruptBlob(name, "its events are not those that its name states")
    end = int(recorded["stop"])
    if not start < end <= stop:
        raise CorruptBlob(name, f"it ends at offset {end}, which is not a possible end")
    rows = _Rows(part, start)
    for batch, appended in reader.read(0, reader.rows, part.schema.columns):
        rows.add(SourceRun(rows.sums.offset, batch, appended))
    blocks = rows.sums.blocks()
    if reader.metadata_value(_CONTENT) != sha256_of(blocks):
        raise CorruptBlob(name, "its events are not those that were written")
    return rows.summary(name, data, blocks)


class _Rows:
    """Collects the metadata about the events of a file."""

    def __init__(self, part: DataFilePart, start: int) -> None:
        self._part = part
        self._start = start
        self.sums = BlockSums(start)
        self.logical = 0
        self._appended: list[TimeBounds] = []
        self._events: list[TimeBounds] = []

    def add(self, run: SourceRun) -> None:
        self.sums.add(run.batch, run.appended)
        self.logical += run.batch.nbytes
        self._appended.append(TimeBounds(run.appended[0].value, run.appended[-1].value))
        self._events.append(codec.event_bounds(run.batch, self._part.schema))

    def summary(self, name: str, data: pa.Buffer, blocks: list[bytes]) -> DigestedFile:
        file = ArchivedFile(
            name,
            self._start,
            self.sums.offset,
            data.size,
            self.logical,
            hashlib.sha256(data).hexdigest(),
            checksum(data),
            self._part.version,
            joined(self._appended),
            joined(self._events),
        )
        return DigestedFile(file, blocks)


def joined(bounds: Iterable[TimeBounds]) -> TimeBounds:
    """Bounds that cover all the given ones."""
    bounded = [(each.low, each.high) for each in bounds if each.low is not None and each.high is not None]
    if not bounded:
        return TimeBounds(None, None)
    return TimeBounds(Micros(min(low for low, _ in bounded)), Micros(max(high for _, high in bounded)))
