"""Moving tier 2: a Parquet file that holds just what is wanted is moved as it is; of one that many logs share the row groups
that are wanted, with those of other files together. All else is written anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import xxhash

from anabranch import limits
from anabranch.blobs.keys import history_key, is_attached
from anabranch.core.compaction import PARQUET
from anabranch.errors import CorruptBlob
from anabranch.log.lease import Hold
from anabranch.log.parquet import ParquetBuilder, ParquetReader
from anabranch.log.parquet_groups import GroupedFile, GroupsBuilder
from anabranch.log.parquet_parts import with_parts
from anabranch.model.append import Bounds, Place
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import Extent
from anabranch.runtime.ids import token
from anabranch.streams.jobs.cargo import Cargo, Run
from anabranch.streams.jobs.gauge import Held
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.stored import Lasting, Stored

Append = Callable[[Sequence[Stored], Lasting | None], None]


class _Source:
    """A file of the source, verified, with what it tells of its parts, and how many rows it holds."""

    def __init__(self, key: str, data: pa.Buffer) -> None:
        reader = ParquetReader(key, data)
        self.key = key
        self.data = data
        self.parts: list[dict[str, Any]] = reader.parts()
        self.rows = reader.rows

    @cached_property
    def groups(self) -> GroupedFile:
        """Its row groups. Those of a file that is moved whole are not asked for."""
        return GroupedFile(self.key, self.data)


class Files:
    """Moves runs of tier 2 in the order in which they are added; `close` ends it. Holds one source file, and one that
    is being written."""

    def __init__(self, cargo: Cargo, target: Site, stage: StreamId, hold: Hold, held: Held, append: Append) -> None:
        self._cargo = cargo
        self._target = target
        self._stage = stage
        self._hold = hold
        self._held = held
        self._append = append
        self._built: list[Stored] = []  # in the file that is being written; its checksum is not known yet
        self._builder: ParquetBuilder | None = None
        self._version = self._size = 0
        self._key = ""
        self._groups: GroupsBuilder | None = None  # of the file that is being put together of others' row groups
        self._source: _Source | None = None  # the file that was looked at last

    def add(self, run: Run) -> None:
        """Move a run, or write it behind its neighbours into one file. Raises BlobMissing, CorruptBlob."""
        if self._as_it_is(run):
            return
        version = self._cargo.version(run.piece.columns) or self._cargo.latest
        if self._groups is not None or version != self._version or self._size + run.size > limits.JOB_RANGE_BYTES:
            self.flush()
        if self._builder is None:
            self._begin(version)
        self._held.add(run.size)
        self._size += run.size
        self._build(run)

    def close(self) -> None:
        """Make durable and append what was written, and let go of the source's file."""
        self.flush()
        self._let_go()

    def flush(self) -> None:
        """Make durable and append what was written."""
        if self._groups is not None:
            self._flush_groups(self._groups)
        if self._builder is None:
            return
        file = self._builder.finish()
        self._target.blobs.put(self._key, [file.data])
        built = [each._replace(checksum=file.checksum) for each in self._built]
        self._append(built, Lasting(self._key, file.data.size, self._hold.begun_at, PARQUET))
        self._held.add(-self._size)
        self._builder, self._built, self._size = None, [], 0

    def _new_key(self) -> str:
        return history_key(self._hold.begun_at, token(self._target.runtime.ids))

    # files of several runs, or of a part of one

    def _begin(self, version: int) -> None:
        self._key, self._version = self._new_key(), version
        sealer = self._target.runtime.sealer
        encryption = None if sealer is None else sealer.file_encryption(self._key)
        self._builder = ParquetBuilder(self._cargo.columns_of(version), encryption=encryption)

    def _build(self, run: Run) -> None:
        assert self._builder is not None
        piece, extent = run.piece, run.piece.extent
        row = self._builder.begin(self._stage, run.range.log, run.at, self._version)
        source_row = extent.place.row + piece.start - extent.start
        columns = self._cargo.columns_of(self._version)
        count = piece.stop - piece.start
        rows, low, high = 0, None, None
        for batch, appended in self._cargo.fetcher.parquet(extent, source_row, count, columns):
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
            raise CorruptBlob(str(extent.key), f"{count} events were expected, it holds {rows}")
        self._builder.end()
        # Not those of the extent: of a part of it they would overlap what follows.
        bounds = Bounds(_micros(low), _micros(high))
        self._built.append(Stored(run, PARQUET, Place(0, 0, row), self._version, 0, bounds))

    # pages as they are

    def _as_it_is(self, run: Run) -> bool:
        """Move the run without a look at its pages, if whole row groups hold it, and neither store is encrypted."""
        piece, extent = run.piece, run.piece.extent
        version = self._cargo.version(piece.columns)
        whole = (piece.start, piece.stop) == (extent.start, extent.stop)  # so the extent's times are the run's
        clear = self._cargo.clear and self._target.runtime.sealer is None
        if version is None or not whole or not clear or run.keep is not None or is_attached(str(extent.key)):
            return False  # an attached file may be anybody's, with other columns than the stream's
        source = self._opened(extent)
        if len(source.parts) == 1 and source.rows == run.events and extent.place.row == 0:
            self.flush()
            self._put(run, source.data, source.parts[0], version)
            return True
        groups = source.groups.groups_of(extent.place.row, run.events)
        if groups is None:
            return False
        self._gather(run, source.groups, groups, version)
        return True

    def _opened(self, extent: Extent) -> _Source:
        """The file that an extent lies in; it is held until another one is looked at."""
        key = str(extent.key)
        if self._source is None or self._source.key != key:
            self._let_go()
            data = self._cargo.whole(extent)
            self._held.add(data.size)
            self._source = _Source(key, data)
        return self._source

    def _let_go(self) -> None:
        if self._source is not None:
            self._held.add(-self._source.data.size)
            self._source = None

    # row groups

    def _gather(self, run: Run, file: GroupedFile, groups: range, version: int) -> None:
        full = self._size + run.size > limits.JOB_RANGE_BYTES
        if self._groups is None or version != self._version or full or not self._groups.takes(file):
            self.flush()
            self._groups, self._version = GroupsBuilder(file), version
        self._held.add(run.size)
        self._size += run.size
        place = {"start": run.at, "stop": run.at + run.events}
        part = {"stream": f"{self._stage:016x}", "log": run.range.log, "schema": version, **place}
        row = self._groups.add(file, groups, part)
        self._built.append(Stored(run, PARQUET, Place(0, 0, row), version, 0, run.piece.extent.appended))

    def _flush_groups(self, groups: GroupsBuilder) -> None:
        chunks, key = groups.finish(), self._new_key()
        self._target.blobs.put(key, chunks)
        built = [each._replace(checksum=_checksum(chunks)) for each in self._built]
        self._append(built, Lasting(key, sum(map(len, chunks)), self._hold.begun_at, PARQUET))
        self._held.add(-self._size)
        self._groups, self._built, self._size = None, [], 0

    # whole files

    def _put(self, run: Run, data: pa.Buffer, part: dict[str, Any], version: int) -> None:
        key = self._new_key()
        own = {"stream": f"{self._stage:016x}", "log": run.range.log, "schema": version}
        place = {"start": run.at, "stop": run.at + run.events}
        chunks = with_parts(str(run.piece.extent.key), data, [{**part, **own, **place}])
        self._target.blobs.put(key, chunks)
        stored = Stored(run, PARQUET, Place(0, 0, 0), version, _checksum(chunks), run.piece.extent.appended)
        size = sum(len(memoryview(chunk)) for chunk in chunks)
        self._append([stored], Lasting(key, size, self._hold.begun_at, PARQUET))


def _checksum(chunks: Sequence[pa.Buffer | bytes]) -> int:
    """`core.checksum` of all chunks together."""
    digest = xxhash.xxh3_64()
    for chunk in chunks:
        digest.update(chunk)
    number = digest.intdigest()
    return number - (1 << 64) if number >> 63 else number


def _micros(value: int | None) -> Micros | None:
    return None if value is None else Micros(value)
