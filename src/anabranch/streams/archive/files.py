"""Data files of archives: writing one, and reading one back.

Each is a tier-2 file (`log.parquet`) of one part, whose rows also tell their segment and offset. It ends where a block of
the digest ends, or where the segment does, so files and blocks can be looked at one by one; a block of large events may lie in
several, of which each sums up what it holds, and the block is summed up over them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.core import codec
from anabranch.core.archive import ArchivedFile, sum_of
from anabranch.core.checksum import checksum
from anabranch.core.digest import BLOCK_ROWS, BlockSums
from anabranch.core.shared import constant
from anabranch.errors import CorruptBlob
from anabranch.log.parquet import ParquetBuilder, ParquetReader
from anabranch.model.append import Bounds
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.streams.archive.source import Run

ADDED: Final = (pa.field("_segment", pa.int64()), pa.field("_offset", pa.int64()))

_CONTENT: Final = "content"  # SHA-256 over the digests of the file's blocks, in its own metadata


class Part(NamedTuple):
    """What a data file holds: of a stream's segment, encoded with a version of its schema."""

    stream: StreamId
    segment: SegmentId
    schema: StreamSchema
    version: int


class Summed(NamedTuple):
    """A data file as the metadata names it, and the digests of its blocks, of those at its edges as much as it holds."""

    file: ArchivedFile
    blocks: list[bytes]


ReadFile = Callable[[ArchivedFile], Iterable[tuple[pa.RecordBatch, pa.Array]]]


def blocks_of(files: Sequence[Summed], read: ReadFile) -> list[bytes]:
    """The digests of the blocks that files of a segment hold, in order. Those in which a block goes on are read again: `read`
    yields a file's columns and append times."""
    blocks: list[bytes] = []
    parts: list[Summed] = []
    for number, summed in enumerate(files, 1):
        parts.append(summed)
        if summed.file.stop % BLOCK_ROWS and number < len(files):
            continue
        blocks += parts[0].blocks if len(parts) == 1 else _spanning(parts, read)
        parts = []
    return blocks


def _spanning(parts: Sequence[Summed], read: ReadFile) -> list[bytes]:
    sums = BlockSums(parts[0].file.start)
    for part in parts:
        for batch, appended in read(part.file):
            sums.add(batch, appended)
    return sums.blocks()


class Writing:
    """A data file under construction. Memory: the file, of at most about `limits.ARCHIVE_FILE_BYTES_MAX` of events before they
    are compressed or of one that weighs more, and a row group."""

    def __init__(self, part: Part, start: int) -> None:
        self._part = part
        self._builder = ParquetBuilder(pa.schema([*part.schema.columns, *ADDED]))
        self._builder.begin(part.stream, None, start, part.version, segment=part.segment)
        self._rows = _Rows(part, start)

    def add(self, run: Run) -> None:
        """Add the events that follow."""
        batch, count = run.batch, run.batch.num_rows
        segment, offsets = constant(self._part.segment.packed, count), pa.array(np.arange(run.first, run.stop))
        columns = pa.schema([*self._part.schema.columns, *ADDED])
        self._builder.write(pa.record_batch([*batch.columns, segment, offsets], schema=columns), run.appended)
        self._rows.add(run)

    def finish(self, name: str) -> tuple[pa.Buffer, Summed]:
        """The file's bytes, and what the metadata is to say of it."""
        self._builder.end()
        blocks = self._rows.sums.blocks()
        written = self._builder.finish(**{_CONTENT: sum_of(blocks)})
        return written.data, self._rows.summed(name, written.data, blocks)


def read_back(name: str, data: pa.Buffer, part: Part, start: int, stop: int) -> Summed:
    """Read a data file again and sum it up. Raises CorruptBlob where it is damaged, or holds something else than the
    `part` from `start` to some offset before or at `stop`."""
    reader = ParquetReader(name, data)
    parts = reader.parts()
    told = parts[0] if len(parts) == 1 else {}
    asked = {"stream": f"{part.stream:016x}", "segment": str(part.segment), "start": start, "schema": part.version}
    if {each: told.get(each) for each in asked} != asked or reader.rows != told["stop"] - start:
        raise CorruptBlob(name, "it holds other events than its name says")
    end = int(told["stop"])
    if not start < end <= stop:
        raise CorruptBlob(name, f"it ends at offset {end}, which is no place to end at")
    rows = _Rows(part, start)
    for batch, appended in reader.read(0, reader.rows, part.schema.columns):
        rows.add(Run(rows.sums.offset, batch, appended))
    blocks = rows.sums.blocks()
    if reader.told(_CONTENT) != sum_of(blocks):
        raise CorruptBlob(name, "its events are not those that were written")
    return rows.summed(name, data, blocks)


class _Rows:
    """What is to be told of the events of a file."""

    def __init__(self, part: Part, start: int) -> None:
        self._part = part
        self._start = start
        self.sums = BlockSums(start)
        self.logical = 0
        self._appended: list[Bounds] = []
        self._events: list[Bounds] = []

    def add(self, run: Run) -> None:
        self.sums.add(run.batch, run.appended)
        self.logical += run.batch.nbytes
        self._appended.append(Bounds(run.appended[0].value, run.appended[-1].value))
        self._events.append(codec.event_bounds(run.batch, self._part.schema))

    def summed(self, name: str, data: pa.Buffer, blocks: list[bytes]) -> Summed:
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
        return Summed(file, blocks)


def joined(bounds: Iterable[Bounds]) -> Bounds:
    """Bounds of all that the given ones hold."""
    known = [(each.low, each.high) for each in bounds if each.low is not None and each.high is not None]
    if not known:
        return Bounds(None, None)
    return Bounds(Micros(min(low for low, _ in known)), Micros(max(high for _, high in known)))
