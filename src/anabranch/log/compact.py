"""Compaction: tier-1 extents become Parquet files, once for every stream that views their logs.

Segments in many short spans are flattened first (`log.flatten`), so that what was appended to one copy after another
lies together. Offsets, running sizes, append times and event bounds stay what they were. A file is durable before one
transaction swaps the extents, on condition that they still are those that were read; where that race is lost, the file
is garbage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.core.compaction import (
    PARQUET,
    CompactionPolicy,
    FilePart,
    FilePlan,
    joined,
    plan_compaction,
)
from anabranch.core.flatten import FlattenPolicy
from anabranch.errors import CorruptStore
from anabranch.log.flatten import flatten
from anabranch.log.lease import Hold
from anabranch.log.parquet import ParquetBuilder, WrittenFile
from anabranch.log.sources import Sources
from anabranch.log.survey import Windows
from anabranch.log.watch import Watch, silent
from anabranch.model.append import Place
from anabranch.model.ids import BlobId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did. Bytes are those stored, before and after; `spans` is how many short ones were flattened;
    `lost` counts runs that another client changed meanwhile, `skipped` says of what could not be read or stored why."""

    files: int = 0
    events: int = 0
    extents: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    spans: int = 0
    lost: int = 0
    skipped: tuple[str, ...] = ()
    seconds: float = 0.0


def compact(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    *,
    stream: StreamId | None = None,
    force: bool = False,
    policy: CompactionPolicy | None = None,
    progress: Watch | None = None,
) -> CompactReport:
    """Write what is worth writing (see `CompactionPolicy`) of one stream's logs, or of all. Safe beside appends, reads,
    changes of streams, and other compactions.

    Memory: one file, its row group under way, and the bookkeeping of `limits.COMPACT_EXTENTS_MAX` extents. Damaged
    blobs are skipped and reported. `progress` hears of logical bytes. Raises StreamNotFound; StoreUnavailable and its
    kind, after which whatever was swapped stays swapped.
    """
    policy = replace(policy or CompactionPolicy(), force=force)
    return _Compaction(catalog, blobs, runtime, policy, progress or silent).run(stream)


class _Compaction:
    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, policy: CompactionPolicy, progress: Watch
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._policy = policy
        self._progress = progress
        self._schemas: dict[tuple[StreamId, int], StreamSchema] = {}
        self._report = CompactReport()
        self._skipped: list[str] = []
        self._done = self._planned = 0  # logical bytes

    def run(self, stream: StreamId | None) -> CompactReport:
        began = self._runtime.clock.monotonic()
        self._flatten(stream)
        for window in Windows(self._catalog, stream):
            files = plan_compaction(window, self._policy, now=self._runtime.clock.now())
            self._planned += sum(file.size for file in files)
            for file in files:
                self._write(file)
        seconds = self._runtime.clock.monotonic() - began
        return replace(self._report, skipped=tuple(self._skipped), seconds=seconds)

    def _flatten(self, stream: StreamId | None) -> None:
        policy = FlattenPolicy(spans_min=limits.FLATTEN_SPANS_FORCED) if self._policy.force else FlattenPolicy()
        done = flatten(self._catalog, self._blobs, self._runtime, stream=stream, policy=policy, progress=self._progress)
        self._skipped += done.skipped
        self._report = replace(self._report, files=done.files, events=done.events, spans=done.spans, lost=done.lost)

    def _write(self, file: FilePlan) -> None:
        columns = pa.ipc.read_schema(pa.py_buffer(file.parts[0].columns))
        with Hold(self._catalog, self._runtime, "compact", f"{len(file.parts)} part(s)") as hold:
            key = history_key(hold.begun_at, token(self._runtime.ids))
            large = any(_is_large(extent) for part in file.parts for extent in part.extents)
            building = _Building(self, hold, columns, key, large=large)
            try:
                for part in file.parts:
                    building.add(part)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as exc:
                stream = file.parts[0].stream
                self._skipped.append(f"stream {stream:016x}: its rows can't be stored as Parquet ({exc})")
            else:
                if building.parts:
                    self._publish(building, building.finish(), hold)
        self._done += file.size

    def _publish(self, building: _Building, written: WrittenFile, hold: Hold) -> None:
        key = building.key
        self._blobs.put(key, [written.data])
        won: list[FilePart] = []
        try:
            with self._catalog.writing() as txn:
                hold.verify(txn)
                blob = txn.insert_blob(key, written.data.size, hold.begun_at, PARQUET)
                for part, row in building.parts:
                    if txn.swap_extents(part.log, part.extents, [_extent(part, row, blob, key, written.checksum)]):
                        won.append(part)
                if not won:
                    raise _AllLost
        except _AllLost:
            self._blobs.delete(key)  # nobody has ever heard of it
        before = self._report
        self._report = replace(
            before,
            files=before.files + bool(won),
            events=before.events + sum(part.stop - part.start for part in won),
            extents=before.extents + sum(len(part.extents) for part in won),
            bytes_in=before.bytes_in + building.bytes_in,
            bytes_out=before.bytes_out + (written.data.size if won else 0),
            lost=before.lost + len(building.parts) - len(won),
        )

    # what a file under construction asks for

    def rows_of(
        self, part: FilePart, columns: pa.Schema, sources: Sources
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The part's rows as batches of `columns` with their append times. Raises _Lost where the log does not hold
        the planned extents any more, CorruptStore."""
        position = part.start
        planned = iter(part.extents)
        while position < part.stop:
            with self._catalog.reading() as snapshot:
                page = snapshot.extents(part.log, position, part.stop, limits.EXTENTS_PER_PLAN_MAX)
                schemas = {extent.schema: self._schema(snapshot, part.stream, extent.schema) for extent in page}
            for extent, expected in zip(page, planned, strict=False):
                if (extent.start, extent.stop, extent.blob) != (expected.start, expected.stop, expected.blob):
                    raise _Lost
                yield from sources.rows(extent, schemas[extent.schema].columns, columns)
            if not page:
                raise _Lost
            position = page[-1].stop

    def _schema(self, snapshot: Reading, stream: StreamId, version: int) -> StreamSchema:
        schema = self._schemas.get((stream, version))
        if schema is None:
            schema = self._schemas[stream, version] = snapshot.schema(stream, version)
        return schema

    def sources(self) -> Sources:
        """Where a file's rows come from."""
        return Sources(self._blobs, self._runtime.sealer)

    def encryption(self, key: str) -> Any:
        """How the file that will be the blob `key` is encrypted; None for in the clear."""
        return None if self._runtime.sealer is None else self._runtime.sealer.file_encryption(key)

    def tell(self, size: int) -> None:
        """Report logical bytes beyond those of the files that are done."""
        self._progress("compact", self._done + size, self._planned)

    def lose(self) -> None:
        """Count a run that changed before it was read."""
        self._report = replace(self._report, lost=self._report.lost + 1)

    def skip(self, part: FilePart, why: CorruptStore) -> None:
        """Remember a run that can't be read."""
        self._skipped.append(f"log {part.log} at {part.start} … {part.stop - 1}: {why}")


class _Building:
    """The file that will be the blob `key`, under construction: the parts that are whole, with their first rows."""

    def __init__(self, compaction: _Compaction, hold: Hold, columns: pa.Schema, key: str, *, large: bool) -> None:
        self.key = key
        self._compaction = compaction
        self._hold = hold
        self._columns = columns
        self._builder = ParquetBuilder(columns, encryption=compaction.encryption(key), large=large)
        self._sources = compaction.sources()
        self.parts: list[tuple[FilePart, int]] = []
        self._size = 0

    @property
    def bytes_in(self) -> int:
        """Stored bytes read so far."""
        return self._sources.bytes_in

    def add(self, part: FilePart) -> None:
        """Write a part's rows, or leave the part out where it was lost or can't be read."""
        row = self._builder.begin(part.stream, part.log, part.start, part.version)
        rows, expected = 0, part.stop - part.start
        try:
            for batch, appended in self._compaction.rows_of(part, self._columns, self._sources):
                self._builder.write(batch, appended)
                rows += batch.num_rows
                self._hold.renew()
                self._compaction.tell(self._size + part.size * rows // expected)
            assert rows == expected
            self._builder.end()
            self.parts.append((part, row))
        except _Lost:
            self._builder.abandon()
            self._compaction.lose()
        except CorruptStore as exc:
            self._builder.abandon()
            self._compaction.skip(part, exc)
        self._size += part.size

    def finish(self) -> WrittenFile:
        """The whole file."""
        return self._builder.finish()


def _is_large(extent: Extent) -> bool:
    """True if it holds a single event that is large."""
    return extent.stop - extent.start == 1 and extent.place.length > limits.EVENT_BYTES_MAX


def _extent(part: FilePart, row: int, blob: BlobId, key: str, checksum: int) -> Extent:
    """The one extent that a part becomes."""
    return Extent(
        log=part.log,
        start=part.start,
        stop=part.stop,
        blob=blob,
        key=key,
        encoding=PARQUET,
        place=Place(0, 0, row),
        schema=part.version,
        checksum=checksum,
        appended=joined(extent.appended for extent in part.extents),
        events=joined(extent.events for extent in part.extents),
        size_end=part.extents[-1].size_end,
    )


class _Lost(Exception):
    """The log does not hold the planned extents any more."""


class _AllLost(Exception):
    """No swap of a file took place."""
