"""Moving tier 2. A Parquet file that holds exactly the requested events is moved unchanged. From a file that many logs
share, the requested row groups are copied, together with row groups of other files. Everything else is rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from anabranch import limits
from anabranch.blobs.keys import history_key, is_attached
from anabranch.core.compaction import PARQUET
from anabranch.errors import CorruptBlob
from anabranch.log.lease import HeldLease
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.parquet.replace_parts import with_parts
from anabranch.log.parquet.row_groups import GroupedFile, GroupsBuilder
from anabranch.model.append import BlobLocation, TimeBounds
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import Extent
from anabranch.runtime.ids import token
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.memory import HeldMemory
from anabranch.transfer.jobs.range_reader import RangeReader, RangeRun


class StoredRun(NamedTuple):
    """A run as stored in the target: in the blob of its step, or inline as `data`."""

    run: RangeRun
    encoding: str
    place: BlobLocation
    version: int
    checksum: int
    appended: TimeBounds
    data: bytes | None = None


class DurableBlob(NamedTuple):
    """A durable blob in the target store."""

    key: str
    size: int
    begun_at: Micros
    encoding: str


Append = Callable[[Sequence[StoredRun], DurableBlob | None], None]


class _SourceFile:
    """A verified file of the source, with its parts and its number of rows."""

    def __init__(self, key: str, data: pa.Buffer) -> None:
        reader = ParquetReader(key, data)
        self.key = key
        self.data = data
        self.parts: list[dict[str, Any]] = reader.parts()
        self.rows = reader.rows

    @cached_property
    def groups(self) -> GroupedFile:
        """Its row groups. Not read for a file that is moved whole."""
        return GroupedFile(self.key, self.data)


class ParquetMover:
    """Moves runs of tier 2 in the order in which they are added; `close` finishes. Holds one source file, and one that
    is being written."""

    def __init__(
        self,
        range_reader: RangeReader,
        target: JobStore,
        stage: StreamId,
        hold: HeldLease,
        held: HeldMemory,
        append: Append,
    ) -> None:
        self._range_reader = range_reader
        self._target = target
        self._stage = stage
        self._hold = hold
        self._held = held
        self._append = append
        self._built: list[StoredRun] = []  # in the file being written; its checksum is not known yet
        self._builder: ParquetBuilder | None = None
        self._version = self._size = 0
        self._key = ""
        self._groups: GroupsBuilder | None = None  # the file being assembled from row groups of other files
        self._source: _SourceFile | None = None  # the last file read

    def add(self, run: RangeRun) -> None:
        """Move a run, or write it after earlier ones into one file. Raises BlobMissing, CorruptBlob."""
        if self._as_it_is(run):
            return
        version = self._range_reader.version(run.piece.columns) or self._range_reader.latest
        if self._groups is not None or version != self._version or self._size + run.size > limits.JOB_RANGE_BYTES:
            self.flush()
        if self._builder is None:
            self._begin(version)
        self._held.add(run.size)
        self._size += run.size
        self._build(run)

    def close(self) -> None:
        """Make durable and append what was written, and release the source's file."""
        self.flush()
        self._release()

    def flush(self) -> None:
        """Make durable and append what was written."""
        if self._groups is not None:
            self._flush_groups(self._groups)
        if self._builder is None:
            return
        file = self._builder.finish()
        self._target.blobs.put(self._key, [file.data])
        built = [each._replace(checksum=file.checksum) for each in self._built]
        self._append(built, DurableBlob(self._key, file.data.size, self._hold.begun_at, PARQUET))
        self._held.add(-self._size)
        self._builder, self._built, self._size = None, [], 0

    def _new_key(self) -> str:
        return history_key(self._hold.begun_at, token(self._target.runtime.ids))

    # files of several runs, or of a part of one

    def _begin(self, version: int) -> None:
        self._key, self._version = self._new_key(), version
        sealer = self._target.runtime.sealer
        encryption = None if sealer is None else sealer.file_encryption(self._key)
        self._builder = ParquetBuilder(self._range_reader.columns_of(version), encryption=encryption)

    def _build(self, run: RangeRun) -> None:
        assert self._builder is not None
        piece, extent = run.piece, run.piece.extent
        row = self._builder.begin(self._stage, run.range.log, run.at, self._version)
        columns = self._range_reader.columns_of(self._version)
        count = piece.stop - piece.start
        rows, low, high = 0, None, None
        for batch, appended in self._range_reader.fetcher.parquet(extent, piece.row, count, columns):
            first, rows = rows, rows + batch.num_rows
            if run.keep is not None:
                keep = run.keep.slice(first, batch.num_rows)
                batch, appended = batch.filter(keep), appended.filter(keep)
                if not batch.num_rows:
                    continue
            self._builder.write(batch, appended)
            low = appended[0].value if low is None else low
            high = appended[-1].value
        if rows != count:
            raise CorruptBlob(str(extent.key), f"expected {count} events, found {rows}")
        self._builder.end()
        # Not the bounds of the extent: for a part of it they would overlap the next part's.
        bounds = TimeBounds(_micros(low), _micros(high))
        self._built.append(StoredRun(run, PARQUET, BlobLocation(0, 0, row), self._version, 0, bounds))

    # pages copied unchanged

    def _as_it_is(self, run: RangeRun) -> bool:
        """Move the run without decoding its pages, if whole row groups hold it and neither store is encrypted. Returns
        whether it did."""
        piece, extent = run.piece, run.piece.extent
        version = self._range_reader.version(piece.columns)
        whole = (piece.start, piece.stop) == (extent.start, extent.stop)  # so the extent's time bounds are the run's
        clear = self._range_reader.clear and self._target.runtime.sealer is None
        if version is None or not whole or not clear or run.keep is not None or is_attached(str(extent.key)):
            return False  # an attached file may come from anywhere, with other columns than the stream's
        source = self._opened(extent)
        if len(source.parts) == 1 and source.rows == run.events and extent.location.row == 0:
            self.flush()
            self._put(run, source.data, source.parts[0], version)
            return True
        groups = source.groups.groups_of(extent.location.row, run.events)
        if groups is None:
            return False
        self._gather(run, source.groups, groups, version)
        return True

    def _opened(self, extent: Extent) -> _SourceFile:
        """The file that holds an extent; it is kept until another one is needed."""
        key = str(extent.key)
        if self._source is None or self._source.key != key:
            self._release()
            data = self._range_reader.whole(extent)
            self._held.add(data.size)
            self._source = _SourceFile(key, data)
        return self._source

    def _release(self) -> None:
        if self._source is not None:
            self._held.add(-self._source.data.size)
            self._source = None

    # row groups

    def _gather(self, run: RangeRun, file: GroupedFile, groups: range, version: int) -> None:
        full = self._size + run.size > limits.JOB_RANGE_BYTES
        if self._groups is None or version != self._version or full or not self._groups.accepts(file):
            self.flush()
            self._groups, self._version = GroupsBuilder(file), version
        self._held.add(run.size)
        self._size += run.size
        place = {"start": run.at, "stop": run.at + run.events}
        part = {"stream": f"{self._stage:016x}", "log": run.range.log, "schema": version, **place}
        row = self._groups.add(file, groups, part)
        self._built.append(StoredRun(run, PARQUET, BlobLocation(0, 0, row), version, 0, run.piece.extent.appended))

    def _flush_groups(self, groups: GroupsBuilder) -> None:
        chunks, key = groups.finish(), self._new_key()
        self._target.blobs.put(key, chunks)
        built = [each._replace(checksum=_checksum(chunks)) for each in self._built]
        self._append(built, DurableBlob(key, sum(map(len, chunks)), self._hold.begun_at, PARQUET))
        self._held.add(-self._size)
        self._groups, self._built, self._size = None, [], 0

    # whole files

    def _put(self, run: RangeRun, data: pa.Buffer, part: dict[str, Any], version: int) -> None:
        key = self._new_key()
        own = {"stream": f"{self._stage:016x}", "log": run.range.log, "schema": version}
        place = {"start": run.at, "stop": run.at + run.events}
        chunks = with_parts(str(run.piece.extent.key), data, [{**part, **own, **place}])
        self._target.blobs.put(key, chunks)
        stored = StoredRun(run, PARQUET, BlobLocation(0, 0, 0), version, _checksum(chunks), run.piece.extent.appended)
        size = sum(len(memoryview(chunk)) for chunk in chunks)
        self._append([stored], DurableBlob(key, size, self._hold.begun_at, PARQUET))


def _checksum(chunks: Sequence[pa.Buffer | bytes]) -> int:
    """`core.checksum` of all chunks together."""
    digest = xxhash.xxh3_64()
    for chunk in chunks:
        digest.update(chunk)
    number = digest.intdigest()
    return number - (1 << 64) if number >> 63 else number


def _micros(value: int | None) -> Micros | None:
    return None if value is None else Micros(value)
