"""Compaction: rewrites tier-1 extents as Parquet files, once for all streams that view their logs.

Segments with many short spans are flattened first (`log.upkeep.flatten`), so that events appended to successive copies
are stored together. Offsets, running sizes, append times and event bounds do not change. A file is durable before one
transaction swaps the extents, on condition that they are still the extents that were read. If another client has
changed them, the file is garbage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.core.compaction import (
    ARROW,
    PARQUET,
    CompactionPolicy,
    FilePart,
    FilePlan,
    merged_bounds,
    plan_compaction,
)
from anabranch.core.flatten import FlattenPolicy
from anabranch.errors import CorruptStore
from anabranch.log.lease import HeldLease
from anabranch.log.parquet.builder import ParquetBuilder, WrittenFile
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.upkeep.extent_rows import ExtentRows
from anabranch.log.upkeep.failures import Isolation
from anabranch.log.upkeep.flatten import flatten
from anabranch.log.upkeep.survey import ExtentWindows
from anabranch.model.append import BlobLocation
from anabranch.model.ids import BlobId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The result of a compaction. Bytes are stored bytes, before and after; `spans` is the number of flattened short
    spans; `lost` counts runs that another client changed at the same time; `skipped` says what could not be read or
    stored, and why."""

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
    background: bool = False,
    policy: CompactionPolicy | None = None,
    progress: ProgressCallback | None = None,
) -> CompactReport:
    """Rewrites the extents that a `CompactionPolicy` selects, of one stream's logs or of all. Safe in parallel with
    appends, reads, changes of streams, and other compactions.

    Memory: one file, its current row group, and the bookkeeping of `limits.COMPACT_EXTENTS_MAX` extents. Damaged blobs,
    and streams that can't be compacted for any reason, are skipped, reported, and recorded as upkeep failures (see
    `log.upkeep.failures`); with `background`, streams that failed recently are skipped. `progress` is called with
    logical bytes. Raises StreamNotFound, StoreUnavailable and its subclasses; extents swapped before the error stay
    swapped."""
    policy = replace(policy or CompactionPolicy(), force=force)
    isolation = Isolation(catalog, runtime, "compact", background=background)
    return _Compaction(catalog, blobs, runtime, policy, isolation, progress or no_progress).run(
        stream, background=background
    )


class _Compaction:
    def __init__(
        self,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        policy: CompactionPolicy,
        isolation: Isolation,
        progress: ProgressCallback,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._policy = policy
        self._isolation = isolation
        self._progress = isolation.wrap_progress(progress)
        self._schemas: dict[tuple[StreamId, int], StreamSchema] = {}
        self._report = CompactReport()
        self._skipped: list[str] = []
        self._done = self._planned = 0  # logical bytes

    def run(self, stream: StreamId | None, *, background: bool) -> CompactReport:
        started_s = self._runtime.clock.monotonic()
        self._flatten(stream, background=background)
        waiting: set[StreamId] = set()  # streams with tier-1 extents that are not worth a file yet
        for window in ExtentWindows(self._catalog, stream, self._isolation):
            window = [log for log in window if not self._isolation.is_backing_off(log.stream)]
            files = plan_compaction(window, self._policy, now=self._runtime.clock.now())
            waiting |= {log.stream for log in window if any(extent.encoding == ARROW for extent in log.extents)}
            waiting -= {part.stream for file in files for part in file.parts}
            self._planned += sum(file.size for file in files)
            for file in files:
                self._write(file)
        if stream is None:
            self._isolation.clear_failures(except_for=waiting)
        elif stream not in waiting:
            self._isolation.clear_failure(stream)
        seconds = self._runtime.clock.monotonic() - started_s
        skipped = (*self._skipped, *self._isolation.failed)
        return replace(self._report, skipped=skipped, seconds=seconds)

    def _flatten(self, stream: StreamId | None, *, background: bool) -> None:
        policy = FlattenPolicy(spans_min=limits.FLATTEN_SPANS_FORCED) if self._policy.force else FlattenPolicy()
        done = flatten(
            self._catalog,
            self._blobs,
            self._runtime,
            stream=stream,
            background=background,
            policy=policy,
            progress=self._progress,
        )
        self._skipped += done.skipped
        self._report = replace(self._report, files=done.files, events=done.events, spans=done.spans, lost=done.lost)

    def _write(self, file: FilePlan) -> None:
        """Writes a file. If that fails, writes one file for each stream with rows in it, to find out whose rows can't
        be written and still write the others'."""
        streams = list(dict.fromkeys(part.stream for part in file.parts))
        if len(streams) == 1:
            with self._isolation.guard(streams[0]):
                self._write_file(file)
            return
        try:
            self._write_file(file)
        except Exception as exc:
            if self._isolation.is_fatal(exc):
                raise
            for stream in streams:
                self._write(FilePlan(tuple(part for part in file.parts if part.stream == stream)))

    def _write_file(self, file: FilePlan) -> None:
        columns = pa.ipc.read_schema(pa.py_buffer(file.parts[0].columns))
        sealer = self._runtime.sealer
        with HeldLease(self._catalog, self._runtime, "compact", f"{len(file.parts)} part(s)") as lease:
            key = history_key(lease.begun_at, token(self._runtime.ids))
            large = any(_is_large(extent) for part in file.parts for extent in part.extents)
            encryption = None if sealer is None else sealer.file_encryption(key)
            builder = ParquetBuilder(columns, encryption=encryption, large=large)
            sources = ExtentRows(self._blobs, sealer)
            complete: list[tuple[FilePart, int]] = []  # parts in the file, with their first rows
            size = 0
            for part in file.parts:
                row = builder.begin(part.stream, part.log, part.start, part.version)
                try:
                    rows, expected = 0, part.stop - part.start
                    for batch, appended in self._rows_of(part, columns, sources):
                        builder.write(batch, appended)
                        rows += batch.num_rows
                        lease.renew()
                        self._progress("compact", self._done + size + part.size * rows // expected, self._planned)
                    if rows != expected:
                        raise CorruptStore(
                            f"positions {part.start} … {part.stop - 1} of log {part.log} gave {rows} events"
                        )
                    builder.end()
                    complete.append((part, row))
                except _ExtentsChanged:
                    builder.abandon()
                    self._report = replace(self._report, lost=self._report.lost + 1)
                except CorruptStore as exc:
                    builder.abandon()
                    where = f"log {part.log} at {part.start} … {part.stop - 1}"
                    self._isolation.record_failure(part.stream, exc, where=where)
                size += part.size
            if complete:
                self._publish(complete, builder.finish(), key, lease, sources.bytes_in)
        self._done += file.size

    def _publish(
        self, parts: Sequence[tuple[FilePart, int]], written: WrittenFile, key: str, lease: HeldLease, bytes_in: int
    ) -> None:
        """Replaces the extents of the parts by the file `key`. `bytes_in` stored bytes were read to make the file."""
        self._blobs.put(key, [written.data])
        swapped: list[FilePart] = []
        try:
            with self._catalog.writing() as txn:
                lease.verify(txn)
                blob = txn.insert_blob(key, written.data.size, lease.begun_at, PARQUET)
                for part, row in parts:
                    if txn.swap_extents(part.log, part.extents, [_extent(part, row, blob, key, written.checksum)]):
                        swapped.append(part)
                if not swapped:
                    raise _NothingSwapped
        except _NothingSwapped:
            self._blobs.delete(key)  # no other process knows it
        before = self._report
        self._report = replace(
            before,
            files=before.files + bool(swapped),
            events=before.events + sum(part.stop - part.start for part in swapped),
            extents=before.extents + sum(len(part.extents) for part in swapped),
            bytes_in=before.bytes_in + bytes_in,
            bytes_out=before.bytes_out + (written.data.size if swapped else 0),
            lost=before.lost + len(parts) - len(swapped),
        )

    def _rows_of(
        self, part: FilePart, columns: pa.Schema, sources: ExtentRows
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The part's rows as batches of `columns` with their append times. Raises _ExtentsChanged if the log no longer
        holds the planned extents, and CorruptStore."""
        position = part.start
        planned = iter(part.extents)
        while position < part.stop:
            with self._catalog.reading() as snapshot:
                page = snapshot.extents(part.log, position, part.stop, limits.EXTENTS_PER_PLAN_MAX)
                schemas = {extent.schema: self._schema(snapshot, part.stream, extent.schema) for extent in page}
            for extent, expected in zip(page, planned, strict=False):
                if (extent.start, extent.stop, extent.blob) != (expected.start, expected.stop, expected.blob):
                    raise _ExtentsChanged
                yield from sources.rows(extent, schemas[extent.schema].columns, columns)
            if not page:
                raise _ExtentsChanged
            position = page[-1].stop

    def _schema(self, snapshot: Reading, stream: StreamId, version: int) -> StreamSchema:
        schema = self._schemas.get((stream, version))
        if schema is None:
            schema = self._schemas[stream, version] = snapshot.schema(stream, version)
        return schema


def _is_large(extent: Extent) -> bool:
    """True if the extent is a single large event."""
    return extent.stop - extent.start == 1 and extent.location.length > limits.EVENT_BYTES_MAX


def _extent(part: FilePart, row: int, blob: BlobId, key: str, checksum: int) -> Extent:
    """The single extent that replaces a part's extents."""
    return Extent(
        log=part.log,
        start=part.start,
        stop=part.stop,
        blob=blob,
        key=key,
        encoding=PARQUET,
        location=BlobLocation(0, 0, row),
        schema=part.version,
        checksum=checksum,
        appended=merged_bounds(extent.appended for extent in part.extents),
        events=merged_bounds(extent.events for extent in part.extents),
        size_end=part.extents[-1].size_end,
    )


class _ExtentsChanged(Exception):
    """The log no longer holds the planned extents."""


class _NothingSwapped(Exception):
    """No swap of a file took place."""
